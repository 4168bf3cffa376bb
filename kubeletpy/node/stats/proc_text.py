"""Parses the files of /proc for the machine, a process and a network namespace. Pure.

Machine: usage is what the root cgroup counts, working set = usage without inactive file pages.
"""

from __future__ import annotations

from collections.abc import Mapping

from kubeletpy.base.text import lines, number, sizes, tokens
from kubeletpy.node.stats.cgroup_text import pressure, table
from kubeletpy.node.stats.usage import GroupStats, Interface

_IGNORED = ("lo", "veth", "docker", "nerdctl", "cali", "cilium_", "lxc")
"""Name prefixes of interfaces whose traffic is already counted elsewhere."""
MAX_INTERFACES = 100
"""Limit per namespace: a privileged container can create any number."""


def machine(texts: dict[str, str], ticks: int, at: int, huge_pages: int = 0) -> GroupStats:
    """The node as a whole.

    Args:
        texts: of stat, meminfo, vmstat and pressure/{cpu,memory,io}, by name.
        ticks: per second, of the cpu times in /proc/stat.
        at: Unix nanoseconds.
        huge_pages: bytes of huge pages, which are no available memory.
    """
    cpu = _counts(texts.get("stat", "").partition("\n")[0].partition(" ")[2])
    tick = 1_000_000_000 // ticks
    # user, nice, system, irq, softirq, steal: all but idle and waiting (guests are in user)
    busy = sum(cpu[:3]) + sum(cpu[5:8])
    memory, faults = sizes(texts.get("meminfo", "")), table(texts.get("vmstat"))
    usage = memory_used(memory)
    swap_total, swap_free = memory.get("SwapTotal"), memory.get("SwapFree", 0)
    return GroupStats(
        at=at,
        cpu_ns=busy * tick if cpu else None,
        user_ns=sum(cpu[:2]) * tick if cpu else None,
        system_ns=cpu[2] * tick if len(cpu) > 2 else None,
        memory=usage,
        working_set=working_set(memory),
        available=available(memory, huge_pages) if huge_pages else None,
        rss=memory.get("AnonPages"),
        cache=memory.get("Cached"),
        mapped_file=memory.get("Mapped"),
        kernel=memory.get("Slab"),
        active_file=memory.get("Active(file)"),
        inactive_file=memory.get("Inactive(file)"),
        limit=memory.get("MemTotal"),
        faults=faults.get("pgfault"),
        major_faults=faults.get("pgmajfault"),
        own_faults=faults.get("pgfault"),
        own_major_faults=faults.get("pgmajfault"),
        oom_kills=faults.get("oom_kill"),
        swap=None if swap_total is None else max(0, swap_total - swap_free),
        swap_limit=swap_total,
        cpu_psi=pressure(texts.get("pressure/cpu")),
        memory_psi=pressure(texts.get("pressure/memory")),
        io_psi=pressure(texts.get("pressure/io")),
    )


def memory_used(sizes: Mapping[str, int]) -> int | None:
    """The root cgroup's usage, from /proc/meminfo in bytes: anonymous memory and page cache.

    Kernel memory is not counted: with it the node would show less memory than the thresholds of
    eviction leave. Source: docs/reference/behaviour-resources.md, ra; both versions of cgroups
    count the same.
    """
    anonymous = sizes.get("AnonPages")
    if anonymous is None:
        return None
    return anonymous + sum(sizes.get(name, 0) for name in ("Cached", "Buffers", "SwapCached"))


def working_set(sizes: Mapping[str, int]) -> int | None:
    """The root cgroup's usage without inactive file pages, from /proc/meminfo in bytes."""
    used = memory_used(sizes)
    return None if used is None else max(0, used - sizes.get("Inactive(file)", 0))


def available(sizes: Mapping[str, int], huge_pages: int = 0) -> int | None:
    """Memory that is not in use, from /proc/meminfo in bytes, without ``huge_pages`` bytes.

    Source: docs/reference/behaviour.md, u: ka16.
    """
    total, used = sizes.get("MemTotal"), working_set(sizes)
    if total is None or used is None:
        return None
    return max(0, total - used - huge_pages) if huge_pages else total - used


def process(stat: str, status: str, ticks: int, at: int) -> GroupStats:
    """One process, for a daemon without a cgroup of its own: its memory is what is resident."""
    fields = _counts(stat.rpartition(")")[2])
    tick = 1_000_000_000 // ticks
    memory = sizes(status)
    resident = memory.get("VmRSS")
    known = len(fields) > 19
    return GroupStats(
        at=at,
        cpu_ns=(fields[11] + fields[12]) * tick if known else None,
        user_ns=fields[11] * tick if known else None,
        system_ns=fields[12] * tick if known else None,
        memory=resident,
        working_set=resident,
        rss=memory.get("RssAnon", resident),
        faults=fields[7] if known else None,
        major_faults=fields[9] if known else None,
        own_faults=fields[7] if known else None,
        own_major_faults=fields[9] if known else None,
        swap=memory.get("VmSwap"),
        pids=fields[17] if known else None,
    )


def started_after_boot(stat: str, ticks: int) -> float | None:
    """When a process started, in seconds since boot."""
    fields = _counts(stat.rpartition(")")[2])
    return fields[19] / ticks if len(fields) > 19 else None


def boot_time(stat: str) -> int:
    """When the machine booted, in Unix nanoseconds, from /proc/stat; 0 when unknown."""
    return table(stat).get("btime", 0) * 1_000_000_000


def interfaces(net_dev: str) -> tuple[Interface, ...]:
    """/proc/PID/net/dev without loopback and the host's ends of pods' links."""
    found: list[Interface] = []
    for line in lines(net_dev):
        name, _, rest = line.partition(":")
        count = _counts(rest)
        name = name.strip(" ")
        if len(count) < 16 or name.startswith(_IGNORED):
            continue
        if len(found) >= MAX_INTERFACES:
            break
        found.append(
            Interface(
                name,
                rx_bytes=count[0],
                rx_packets=count[1],
                rx_errors=count[2],
                rx_dropped=count[3],
                tx_bytes=count[8],
                tx_packets=count[9],
                tx_errors=count[10],
                tx_dropped=count[11],
            )
        )
    return tuple(found)


def default_interface(route: str) -> str:
    """The interface of the default route in /proc/PID/net/route; empty without one."""
    for line in lines(route)[1:]:
        fields = tokens(line)
        if len(fields) > 7 and fields[1] == fields[7] == "00000000":
            return fields[0]
    return ""


def tasks(loadavg: str) -> int | None:
    """How many tasks there are: ``1.36 3.49 4.53 2/3518 3715089``."""
    fields = tokens(loadavg)
    return number(fields[3].partition("/")[2]) if len(fields) > 3 else None


def group_paths(cgroup: str) -> dict[str, str]:
    """/proc/PID/cgroup: controller -> path; the hierarchy of version 2 is named ``""``."""
    found: dict[str, str] = {}
    for line in lines(cgroup):
        hierarchy, _, rest = line.partition(":")
        names, _, path = rest.partition(":")
        if number(hierarchy) is not None and path.startswith("/"):
            for name in names.split(","):
                found[name.removeprefix("name=")] = path
    return found


def cpu_topology(cpuinfo: str) -> tuple[int, int]:
    """Physical cores and sockets in /proc/cpuinfo; 0 where missing."""
    cores: set[tuple[str, str]] = set()
    sockets: set[str] = set()
    socket = ""
    for line in lines(cpuinfo):
        key, _, value = line.partition(":")
        if key.strip() == "physical id":
            socket = value.strip()
            sockets.add(socket)
        elif key.strip() == "core id":
            cores.add((socket, value.strip()))
    return len(cores), len(sockets)


def devices(diskstats: str) -> dict[tuple[int, int], str]:
    """/proc/diskstats: (major, minor) -> ``/dev/NAME``."""
    found: dict[tuple[int, int], str] = {}
    for line in lines(diskstats):
        fields = tokens(line)
        major, minor = (number(fields[0]), number(fields[1])) if len(fields) > 3 else (None, None)
        if major is not None and minor is not None:
            found[major, minor] = f"/dev/{fields[2]}"
    return found


def _counts(text: str) -> list[int]:
    """The numbers of a line, 0 for non-numbers (a process's state)."""
    return [number(word) or 0 for word in tokens(text.rstrip("\n"))]
