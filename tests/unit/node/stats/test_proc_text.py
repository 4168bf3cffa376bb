"""Parsing of the files of /proc."""

from __future__ import annotations

from typing import Any

import pytest

from kubeletpy.base.text import sizes
from kubeletpy.node.stats import cgroup_text, proc_text
from kubeletpy.node.stats.usage import DeviceIo, GroupStats, Interface

STAT = "cpu  100 10 50 9999 77 5 4 1 100 0\ncpu0 1\nbtime 1700000000\n"
MEMINFO = (
    "MemTotal: 1000 kB\nMemFree: 300 kB\nCached: 250 kB\nActive(file): 30 kB\n"
    "Inactive(file): 200 kB\nAnonPages: 400 kB\nSwapTotal: 50 kB\nSwapFree: 20 kB\n"
    "HugePages_Total: 0\n"
)
KIB = 1024


def test_the_machine() -> None:
    texts = {"stat": STAT, "meminfo": MEMINFO, "vmstat": "pgfault 9\npgmajfault 2\noom_kill 1\n"}
    texts["pressure/cpu"] = "some avg10=1.00 avg60=2.00 avg300=3.00 total=4\n"
    found = proc_text.machine(texts, 100, 7)
    assert found.at == 7
    assert found.cpu_ns == 1_700_000_000
    assert found.memory == 650 * KIB
    assert found.working_set == 450 * KIB
    assert found.rss == 400 * KIB
    assert found.memory_available == 550 * KIB
    assert (found.swap, found.swap_available) == (30 * KIB, 20 * KIB)
    assert (found.faults, found.major_faults, found.oom_kills) == (9, 2, 1)
    assert found.cpu_psi is not None
    assert found.cpu_psi.some.total == 4
    assert found.io_psi is None
    assert proc_text.boot_time(STAT) == 1_700_000_000_000_000_000


def test_a_machine_without_proc_files() -> None:
    found = proc_text.machine({}, 100, 7)
    assert (found.cpu_ns, found.memory, found.working_set, found.swap) == (None,) * 4


def test_a_process() -> None:
    fields = "S 1 2 3 4 5 6 700 8 90 10 110 120 13 14 15 16 17 18 1900"
    status = "VmRSS:\t 40 kB\nRssAnon:\t 30 kB\nVmSwap:\t 1 kB\nThreads:\t5\n"
    stat = f"42 (a) b c)) {fields}"
    found = proc_text.process(stat, status, 100, 7)
    assert found.cpu_ns == (110 + 120) * 10_000_000
    assert (found.working_set, found.rss, found.swap) == (40 * KIB, 30 * KIB, KIB)
    assert (found.faults, found.major_faults, found.pids) == (700, 90, 17)
    assert proc_text.started_after_boot(stat, 100) == 19.0
    assert proc_text.started_after_boot("", 100) is None
    assert proc_text.process("", "", 100, 7).cpu_ns is None


NET_DEV = """Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes packets errs drop
    lo:  5 1 0 0 0 0 0 0 5 1 0 0 0 0 0 0
  eth0: 1 2 3 4 0 0 0 0 5 6 7 8 0 0 0 0
vethabc: 9 9 9 9 0 0 0 0 9 9 9 9 0 0 0 0
"""


def test_interfaces() -> None:
    assert proc_text.interfaces(NET_DEV) == (Interface("eth0", 1, 3, 5, 7, 2, 4, 6, 8),)
    assert proc_text.interfaces("eth0: 1 2\n") == ()
    route = "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\n"
    assert proc_text.default_interface(route) == ""
    lines = (
        "ens3\t0001A8C0\t0\t1\t0\t0\t0\t00FFFFFF\t0\nens4\t00000000\t0\t3\t0\t0\t0\t00000000\t0\n"
    )
    assert proc_text.default_interface(route + lines) == "ens4"


@pytest.mark.parametrize(
    ("text", "count"), [("1.36 3.49 4.53 2/3518 3715089\n", 3518), ("", None), ("a b c d", None)]
)
def test_tasks(text: str, count: int | None) -> None:
    assert proc_text.tasks(text) == count


def test_cgroups_of_a_process() -> None:
    text = "9:name=systemd:/s\n4:cpu,cpuacct:/a:b\n3:memory:/m\n0::/v2\nnonsense\n"
    assert proc_text.group_paths(text) == {
        "systemd": "/s",
        "cpu": "/a:b",
        "cpuacct": "/a:b",
        "memory": "/m",
        "": "/v2",
    }


def test_cpus_and_devices() -> None:
    info = "".join(
        f"processor : {n}\nphysical id : {n // 4}\ncore id : {n % 2}\n\n" for n in range(8)
    )
    assert proc_text.cpu_topology(info) == (4, 2)
    assert proc_text.cpu_topology("") == (0, 0)
    assert proc_text.devices(" 254 0 vda 1 2\nx y\n") == {(254, 0): "/dev/vda"}


def test_the_number_of_interfaces_is_bounded() -> None:
    lines = "".join(f"if{n}: 1 2 3 4 0 0 0 0 5 6 7 8 0 0 0 0\n" for n in range(500))
    assert len(proc_text.interfaces(lines)) == proc_text.MAX_INTERFACES


# Numbers in files of the kernel: positions, truncated lines, and values that are no numbers.

KERNEL_NUMBERS_MEMINFO = (
    "MemTotal: 1000 kB\nMemFree: 300 kB\nCached: 250 kB\nActive(file): 30 kB\nMapped: 7 kB\n"
    "Inactive(file): 200 kB\nAnonPages: 400 kB\nSlab: 8 kB\nSwapTotal: 50 kB\nSwapFree: 20 kB\n"
)


def test_all_of_a_machine() -> None:
    texts = {
        "stat": "cpu  100 10 50 9999 77 5 4 1 100 0\ncpu0 1\n",
        "meminfo": KERNEL_NUMBERS_MEMINFO,
        "vmstat": "pgfault 9\npgmajfault 2\noom_kill 1\n",
    }
    assert proc_text.machine(texts, 1, 7) == GroupStats(
        at=7,
        cpu_ns=170_000_000_000,
        user_ns=110_000_000_000,
        system_ns=50_000_000_000,
        memory=650 * KIB,
        working_set=450 * KIB,
        rss=400 * KIB,
        cache=250 * KIB,
        mapped_file=7 * KIB,
        kernel=8 * KIB,
        active_file=30 * KIB,
        inactive_file=200 * KIB,
        limit=1000 * KIB,
        faults=9,
        major_faults=2,
        own_faults=9,
        own_major_faults=2,
        oom_kills=1,
        swap=30 * KIB,
        swap_limit=50 * KIB,
    )


@pytest.mark.parametrize(
    ("stat", "cpu_ns", "user_ns", "system_ns"),
    [
        ("", None, None, None),
        ("cpu", None, None, None),
        ("cpu 0", 0, 0, None),
        ("cpu 1 2", 3, 3, None),
        ("cpu 1 2 3", 6, 3, 3),
        ("cpu x 2 3", 5, 2, 3),
        ("cpu 1 2 3 9 9 4 5 6 9 9", 21, 3, 3),
    ],
)
def test_cpu_times_of_a_machine(
    stat: str, cpu_ns: int | None, user_ns: int | None, system_ns: int | None
) -> None:
    found = proc_text.machine({"stat": stat}, 10**9, 0)
    assert (found.cpu_ns, found.user_ns, found.system_ns) == (cpu_ns, user_ns, system_ns)


@pytest.mark.parametrize(
    ("meminfo", "memory", "working_set", "swap"),
    [
        ("AnonPages: 5 kB\n", 5 * KIB, 5 * KIB, None),
        ("AnonPages: 5 kB\nInactive(file): 2 kB\n", 5 * KIB, 3 * KIB, None),
        ("AnonPages: 1 kB\nInactive(file): 2 kB\n", KIB, 0, None),
        ("AnonPages: 1 kB\nCached: 2 kB\nBuffers: 4 kB\n", 7 * KIB, 7 * KIB, None),
        ("AnonPages: 1 kB\nSwapCached: 8 kB\nSlab: 16 kB\n", 9 * KIB, 9 * KIB, None),
        ("MemTotal: 5 kB\nMemFree: 4 kB\nSwapFree: 2 kB\n", None, None, None),
        ("SwapTotal: 5 kB\n", None, None, 5 * KIB),
        ("SwapTotal: 5 kB\nSwapFree: 6 kB\n", None, None, 0),
    ],
)
def test_memory_of_a_machine(
    meminfo: str, memory: int | None, working_set: int | None, swap: int | None
) -> None:
    found = proc_text.machine({"meminfo": meminfo}, 100, 0)
    assert (found.memory, found.working_set, found.swap) == (memory, working_set, swap)


@pytest.mark.parametrize("line", ["", "A:", "A: 5", "A: 5 MB", "A: x kB", "A: 5 kB more"])
def test_sizes_are_in_kib(line: str) -> None:
    assert sizes(f"{line}\nB: 1 kB\n") == {"B": KIB}


STATUS = "VmRSS:\t 40 kB\nRssAnon:\t 30 kB\nVmSwap:\t 1 kB\n"


def test_all_of_a_process() -> None:
    stat = "42 (a) b c)) S " + " ".join(str(number) for number in range(1, 20))
    of_memory = GroupStats(at=7, memory=40 * KIB, working_set=40 * KIB, rss=30 * KIB, swap=1 * KIB)
    assert proc_text.process(stat, STATUS, 1, 7) == GroupStats(
        at=7,
        cpu_ns=23_000_000_000,
        user_ns=11_000_000_000,
        system_ns=12_000_000_000,
        memory=40 * KIB,
        working_set=40 * KIB,
        rss=30 * KIB,
        faults=7,
        major_faults=9,
        own_faults=7,
        own_major_faults=9,
        swap=1 * KIB,
        pids=17,
    )
    assert proc_text.started_after_boot(stat, 2) == 9.5
    short = stat.rpartition(" ")[0]
    assert proc_text.process(short, STATUS, 1, 7) == of_memory
    assert proc_text.started_after_boot(short, 2) is None


def test_boot_time() -> None:
    assert proc_text.boot_time("btime 5\n") == 5_000_000_000
    assert proc_text.boot_time("") == 0


COUNTS = " ".join(str(number) for number in range(1, 17))


@pytest.mark.parametrize(
    ("line", "names"),
    [
        (f"eth0: {COUNTS}", ["eth0"]),
        (f"eth0: {COUNTS} 17", ["eth0"]),
        (f"eth0: {COUNTS.rpartition(' ')[0]}", []),
        (f"lxc1: {COUNTS}", []),
        (f"eth0 {COUNTS}", []),
        ("", []),
    ],
)
def test_lines_of_interfaces(line: str, names: list[str]) -> None:
    found = proc_text.interfaces(f"{line}\n")
    expected = [
        Interface(
            name,
            rx_bytes=1,
            rx_packets=2,
            rx_errors=3,
            rx_dropped=4,
            tx_bytes=9,
            tx_packets=10,
            tx_errors=11,
            tx_dropped=12,
        )
        for name in names
    ]
    assert list(found) == expected


ZERO = "00000000"


@pytest.mark.parametrize(
    ("lines", "name"),
    [
        ([], ""),
        ([f"a {ZERO} 0 0 0 0 0 {ZERO}"], "a"),
        ([f"a {ZERO} 0 0 0 0 0 {ZERO} more", f"b {ZERO} 0 0 0 0 0 {ZERO}"], "a"),
        ([f"a {ZERO} 0 0 0 0 0"], ""),
        (["a"], ""),
        ([f"a {ZERO} 0 0 0 0 0 FF000000"], ""),
        ([f"a 0000000A 0 0 0 0 0 {ZERO}"], ""),
        (["a FF 0 0 0 0 0 FF"], ""),
    ],
)
def test_the_default_route(lines: list[str], name: str) -> None:
    header = f"Iface {ZERO} 2 3 4 5 6 {ZERO}"
    assert proc_text.default_interface("\n".join([header, *lines])) == name


@pytest.mark.parametrize(
    ("text", "count"),
    [("a b c 2/5", 5), ("a b c 2/5 d e", 5), ("a b c", None), ("a b c 5", None), ("", None)],
)
def test_lines_of_tasks(text: str, count: int | None) -> None:
    assert proc_text.tasks(text) == count


@pytest.mark.parametrize(
    ("line", "paths"),
    [
        ("3:cpu:/a", {"cpu": "/a"}),
        ("x:cpu:/a", {}),
        ("3:cpu:a", {}),
        ("x:cpu:a", {}),
        ("0::/", {"": "/"}),
    ],
)
def test_lines_of_cgroups(line: str, paths: dict[str, str]) -> None:
    assert proc_text.group_paths(line) == paths


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("8 1 sda 5", {(8, 1): "/dev/sda"}),
        ("8 1 sda 5 6", {(8, 1): "/dev/sda"}),
        ("8 1 sda", {}),
        ("x 1 sda 5", {}),
        ("8 x sda 5", {}),
        ("", {}),
    ],
)
def test_lines_of_disks(line: str, found: dict[tuple[int, int], str]) -> None:
    assert proc_text.devices(line) == found


# -- cgroups -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (None, None),
        ("max", None),
        ("0", 0),
        (str((1 << 62) - 1), (1 << 62) - 1),
        (str(1 << 62), None),
    ],
)
def test_limits(text: str | None, expected: int | None) -> None:
    assert cgroup_text.limit(text) == expected


@pytest.mark.parametrize(
    ("weight", "shares"),
    [("0", 2), ("1", 2), ("2", 5), ("100", 1024), ("9999", 262114), ("10000", 262144), ("", None)],
)
def test_shares_of_a_weight(weight: str, shares: int | None) -> None:
    assert cgroup_text.from_v2({"cpu.weight": weight}, 0).shares == shares


@pytest.mark.parametrize(
    ("texts", "known"),
    [
        ({}, {}),
        ({"memory.stat": "total_rss 5\n"}, {"rss": 5, "swap": 0}),
        ({"memory.stat": "total_swap 5\n"}, {"swap": 5}),
        ({"memory.usage_in_bytes": "5"}, {"memory": 5, "working_set": 5}),
        (
            {"memory.usage_in_bytes": "5", "memory.stat": "total_inactive_file 5\n"},
            {"memory": 5, "working_set": 0, "inactive_file": 5, "swap": 0},
        ),
        ({"memory.memsw.limit_in_bytes": "9"}, {}),
        (
            {"memory.memsw.limit_in_bytes": "9", "memory.limit_in_bytes": "4"},
            {"limit": 4, "swap_limit": 5},
        ),
        ({"memory.limit_in_bytes": "0"}, {"limit": 0}),
        ({"cpuacct.stat": "user 0\nsystem 1\n"}, {"user_ns": 0, "system_ns": 10_000_000}),
    ],
)
def test_stats_of_cgroup_version_1(texts: dict[str, str], known: dict[str, Any]) -> None:
    assert cgroup_text.from_v1(texts, 3) == GroupStats(at=3, **known)


BYTES = "blkio.throttle.io_service_bytes_recursive"
READ = DeviceIo(8, 1, read_bytes=5)


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("8:1 Read 5", (READ,)),
        ("8:1 Write 5", (DeviceIo(8, 1, write_bytes=5),)),
        ("8:1 Sync 5", ()),
        ("8:1 Read x", ()),
        ("8:1 Read", ()),
        ("8:x Read 5", ()),
        ("x:1 Read 5", ()),
        ("8 Read 5", ()),
        ("Total Read 5", ()),
        ("8:1 Read 5 6", ()),
        ("Total 5", ()),
        ("", ()),
    ],
)
def test_lines_of_devices(line: str, found: tuple[DeviceIo, ...]) -> None:
    assert cgroup_text.from_v1({BYTES: line}, 0).devices == found


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("8:1 rbytes=1 wbytes=2 rios=3 wios=4", (DeviceIo(8, 1, 1, 2, 3, 4),)),
        ("8:1 rbytes=x wbytes=2", (DeviceIo(8, 1, 0, 2, 0, 0),)),
        ("8:1", (DeviceIo(8, 1, 0, 0, 0, 0),)),
        ("8 rbytes=1", ()),
        ("8:x rbytes=1", ()),
        ("x:1 rbytes=1", ()),
        ("", ()),
    ],
)
def test_lines_of_io_stat(line: str, found: tuple[DeviceIo, ...]) -> None:
    assert cgroup_text.from_v2({"io.stat": line}, 0).devices == found
