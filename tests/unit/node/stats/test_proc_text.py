"""Parsing of the files of /proc."""

from __future__ import annotations

import pytest

from kubeletpy.node.stats import proc_text
from kubeletpy.node.stats.usage import Interface

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
