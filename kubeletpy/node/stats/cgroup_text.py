"""Parses the kernel's cgroup files, both versions. Pure: texts in, GroupStats out.

The kernel writes the texts, but containers influence them: a file may be missing, a line may appear
different on another kernel, and neither is an error. Working set = usage without inactive file
pages, as the kubelet's (docs/reference/metrics.csv: container_memory_working_set_bytes).
"""

from __future__ import annotations

from collections.abc import Mapping

from kubeletpy.base.text import lines, number, tokens
from kubeletpy.node.stats.usage import UNLIMITED, DeviceIo, GroupStats, Psi, PsiLine
from kubeletpy.pods.resources import default_weight_to_shares

Texts = Mapping[str, str]
"""File name -> text; unreadable files are absent."""

V1_BASIC = (
    ("cpuacct", "cpuacct.usage"),
    ("memory", "memory.usage_in_bytes"),
    ("memory", "memory.stat"),
    ("memory", "memory.limit_in_bytes"),
    ("memory", "memory.memsw.limit_in_bytes"),
    ("pids", "pids.current"),
)
"""(controller, file) pairs that hold cpu and memory usage."""
V1_DETAIL = (
    ("cpuacct", "cpuacct.stat"),
    ("cpu", "cpu.stat"),
    ("cpu", "cpu.cfs_quota_us"),
    ("cpu", "cpu.cfs_period_us"),
    ("cpu", "cpu.shares"),
    ("memory", "memory.soft_limit_in_bytes"),
    ("memory", "memory.max_usage_in_bytes"),
    ("memory", "memory.failcnt"),
    ("memory", "memory.kmem.usage_in_bytes"),
    ("memory", "memory.oom_control"),
    ("pids", "pids.max"),
    ("blkio", "blkio.throttle.io_service_bytes_recursive"),
    ("blkio", "blkio.throttle.io_serviced_recursive"),
)
V2_BASIC = (
    "cpu.stat",
    "memory.current",
    "memory.stat",
    "memory.max",
    "memory.swap.current",
    "memory.swap.max",
    "pids.current",
    "cpu.pressure",
    "memory.pressure",
    "io.pressure",
)
V2_DETAIL = (
    "cpu.max",
    "cpu.weight",
    "memory.low",
    "memory.peak",
    "memory.events",
    "pids.max",
    "io.stat",
)
_TICK_NS = 10_000_000
"""cpuacct.stat counts in USER_HZ, which is 100 on every Linux that runs containers."""
_MICRO = 1000


def limit(text: str | None) -> int | None:
    """A limit; None when there is none."""
    found = number(text)
    return found if found is not None and found < UNLIMITED else None


def table(text: str | None) -> dict[str, int]:
    """Lines of ``name count``."""
    found: dict[str, int] = {}
    for line in lines(text or ""):
        name, _, value = line.partition(" ")
        if (count := number(value)) is not None:
            found[name] = count
    return found


def pressure(text: str | None) -> Psi | None:
    """A pressure file; ``full`` is absent for cpu before Linux 5.13. None when there is none."""
    kinds: dict[str, PsiLine] = {}
    for line in lines(text or ""):
        kind, *pairs = tokens(line) or [""]
        values = dict(pair.partition("=")[::2] for pair in pairs)
        try:
            kinds[kind] = PsiLine(
                int(values["total"]),
                float(values["avg10"]),
                float(values["avg60"]),
                float(values["avg300"]),
            )
        except (KeyError, ValueError):
            continue
    if "some" not in kinds:
        return None
    return Psi(kinds["some"], kinds.get("full", PsiLine(0, 0.0, 0.0, 0.0)))


def from_v1(texts: Texts, at: int) -> GroupStats:
    """A cgroup of version 1."""
    stat = table(texts.get("memory.stat"))
    usage = number(texts.get("memory.usage_in_bytes"))
    inactive = stat.get("total_inactive_file")
    memory_limit = limit(texts.get("memory.limit_in_bytes"))
    both = limit(texts.get("memory.memsw.limit_in_bytes"))
    cpu = table(texts.get("cpuacct.stat"))
    bandwidth = table(texts.get("cpu.stat"))
    return GroupStats(
        at=at,
        cpu_ns=number(texts.get("cpuacct.usage")),
        user_ns=_scaled(cpu.get("user"), _TICK_NS),
        system_ns=_scaled(cpu.get("system"), _TICK_NS),
        periods=bandwidth.get("nr_periods"),
        throttled_periods=bandwidth.get("nr_throttled"),
        throttled_ns=bandwidth.get("throttled_time"),
        quota_us=number(texts.get("cpu.cfs_quota_us")),
        period_us=number(texts.get("cpu.cfs_period_us")),
        shares=number(texts.get("cpu.shares")),
        memory=usage,
        working_set=_without(usage, inactive),
        rss=stat.get("total_rss"),
        cache=stat.get("total_cache"),
        mapped_file=stat.get("total_mapped_file"),
        kernel=number(texts.get("memory.kmem.usage_in_bytes")),
        active_file=stat.get("total_active_file"),
        inactive_file=inactive,
        dirty=stat.get("total_dirty"),
        writeback=stat.get("total_writeback"),
        limit=memory_limit,
        reservation=limit(texts.get("memory.soft_limit_in_bytes")),
        max_memory=number(texts.get("memory.max_usage_in_bytes")),
        failures=number(texts.get("memory.failcnt")),
        oom_kills=table(texts.get("memory.oom_control")).get("oom_kill"),
        faults=stat.get("total_pgfault"),
        major_faults=stat.get("total_pgmajfault"),
        own_faults=stat.get("pgfault"),
        own_major_faults=stat.get("pgmajfault"),
        swap=stat.get("total_swap", 0 if stat else None),
        swap_limit=_without(both, memory_limit) if memory_limit is not None else None,
        pids=number(texts.get("pids.current")),
        pids_max=number(texts.get("pids.max")),
        devices=_v1_devices(texts),
    )


def from_v2(texts: Texts, at: int) -> GroupStats:
    """A cgroup of version 2."""
    stat, cpu = table(texts.get("memory.stat")), table(texts.get("cpu.stat"))
    usage = number(texts.get("memory.current"))
    inactive = stat.get("inactive_file")
    quota, _, period = (texts.get("cpu.max") or "").strip().partition(" ")
    events = table(texts.get("memory.events"))
    weight = number(texts.get("cpu.weight"))
    return GroupStats(
        at=at,
        cpu_ns=_scaled(cpu.get("usage_usec"), _MICRO),
        user_ns=_scaled(cpu.get("user_usec"), _MICRO),
        system_ns=_scaled(cpu.get("system_usec"), _MICRO),
        periods=cpu.get("nr_periods"),
        throttled_periods=cpu.get("nr_throttled"),
        throttled_ns=_scaled(cpu.get("throttled_usec"), _MICRO),
        quota_us=number(quota),
        period_us=number(period),
        shares=None if weight is None else default_weight_to_shares(weight),
        weight=weight,
        memory=usage,
        working_set=_without(usage, inactive),
        rss=stat.get("anon"),
        cache=stat.get("file"),
        mapped_file=stat.get("file_mapped"),
        kernel=stat.get("kernel"),
        active_file=stat.get("active_file"),
        inactive_file=inactive,
        dirty=stat.get("file_dirty"),
        writeback=stat.get("file_writeback"),
        scanned_pages=stat.get("pgscan"),
        reclaimed_pages=stat.get("pgsteal"),
        file_refaults=stat.get("workingset_refault_file"),
        anon_refaults=stat.get("workingset_refault_anon"),
        limit=limit(texts.get("memory.max")),
        reservation=number(texts.get("memory.low")) or None,
        max_memory=number(texts.get("memory.peak")),
        failures=events.get("max"),
        throttled_at_high=events.get("high"),
        oom_kills=events.get("oom_kill"),
        faults=stat.get("pgfault"),
        major_faults=stat.get("pgmajfault"),
        own_faults=stat.get("pgfault"),
        own_major_faults=stat.get("pgmajfault"),
        swap=number(texts.get("memory.swap.current")),
        swap_limit=limit(texts.get("memory.swap.max")),
        pids=number(texts.get("pids.current")),
        pids_max=number(texts.get("pids.max")),
        devices=_v2_devices(texts.get("io.stat")),
        cpu_psi=pressure(texts.get("cpu.pressure")),
        memory_psi=pressure(texts.get("memory.pressure")),
        io_psi=pressure(texts.get("io.pressure")),
    )


def _scaled(value: int | None, factor: int) -> int | None:
    return None if value is None else value * factor


def _without(whole: int | None, part: int | None) -> int | None:
    """The whole minus a part; never below 0, because counters are not read at the same instant."""
    return None if whole is None else max(0, whole - (part or 0))


def _v1_devices(texts: Texts) -> tuple[DeviceIo, ...]:
    counts: dict[tuple[int, int], dict[str, int]] = {}
    for file, read, write in (
        ("blkio.throttle.io_service_bytes_recursive", "read_bytes", "write_bytes"),
        ("blkio.throttle.io_serviced_recursive", "reads", "writes"),
    ):
        for line in lines(texts.get(file) or ""):
            fields = tokens(line)
            device = _device(fields[0]) if len(fields) == 3 else None
            count = number(fields[-1]) if device else None
            if device is None or count is None:
                continue
            name = {"Read": read, "Write": write}.get(fields[1])
            if name:
                counts.setdefault(device, {})[name] = count
    return tuple(DeviceIo(*device, **found) for device, found in sorted(counts.items()))


def _v2_devices(text: str | None) -> tuple[DeviceIo, ...]:
    found: list[DeviceIo] = []
    for line in lines(text or ""):
        name, *pairs = tokens(line) or [""]
        device = _device(name)
        if device is None:
            continue
        supplied = ((name, number(value)) for name, _, value in (p.partition("=") for p in pairs))
        values = {name: count for name, count in supplied if count is not None}
        found.append(
            DeviceIo(
                *device,
                read_bytes=values.get("rbytes", 0),
                write_bytes=values.get("wbytes", 0),
                reads=values.get("rios", 0),
                writes=values.get("wios", 0),
            )
        )
    return tuple(found)


def _device(text: str) -> tuple[int, int] | None:
    major, _, minor = text.partition(":")
    numbers = number(major), number(minor)
    return None if numbers[0] is None or numbers[1] is None else (numbers[0], numbers[1])
