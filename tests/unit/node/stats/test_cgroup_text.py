"""Kernel files of a busybox container, recorded on Linux 6.18 (v1) and 6.8 (v2)."""

from __future__ import annotations

import pytest

from kubeletpy.base.structs import replace
from kubeletpy.node.stats.cgroup_text import (
    V1_BASIC,
    V1_DETAIL,
    V2_BASIC,
    V2_DETAIL,
    from_v1,
    from_v2,
)
from kubeletpy.node.stats.usage import DeviceIo, GroupStats, Psi, PsiLine

V1 = {
    "cpuacct.usage": "1234567890\n",
    "cpuacct.stat": "user 81\nsystem 42\n",
    "cpu.stat": (
        "nr_periods 250\nnr_throttled 249\nthrottled_time 12437508191\nnr_bursts 0\nburst_time 0\n"
    ),
    "cpu.cfs_quota_us": "50000\n",
    "cpu.cfs_period_us": "100000\n",
    "cpu.shares": "512\n",
    "memory.usage_in_bytes": "53301248\n",
    "memory.limit_in_bytes": "134217728\n",
    "memory.memsw.limit_in_bytes": "201326592\n",
    "memory.soft_limit_in_bytes": "9223372036854771712\n",
    "memory.max_usage_in_bytes": "53649408\n",
    "memory.failcnt": "3\n",
    "memory.kmem.usage_in_bytes": "561152\n",
    "memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n",
    "memory.stat": (
        "cache 50331648\nrss 262144\nmapped_file 4096\npgfault 3300\npgmajfault 3\nswap 0\n"
        "inactive_file 1048576\nactive_file 0\nhierarchical_memory_limit 134217728\n"
        "total_cache 50331648\ntotal_rss 270336\ntotal_mapped_file 8192\ntotal_swap 65536\n"
        "total_pgfault 3400\ntotal_pgmajfault 4\ntotal_inactive_file 1052672\n"
        "total_active_file 12288\ndirty 1\nwriteback 2\ntotal_dirty 4096\ntotal_writeback 8192\n"
    ),
    "pids.current": "2\n",
    "pids.max": "max\n",
    "blkio.throttle.io_service_bytes_recursive": (
        "254:0 Read 4096\n254:0 Write 8388608\n254:0 Sync 0\n254:0 Async 8392704\n"
        "254:0 Discard 0\n254:0 Total 8392704\nTotal 8392704\n"
    ),
    "blkio.throttle.io_serviced_recursive": "254:0 Read 1\n254:0 Write 9\n254:0 Total 10\n",
}
V2 = {
    "cpu.stat": (
        "usage_usec 1234567\nuser_usec 1000000\nsystem_usec 234567\ncore_sched.force_idle_usec 0\n"
        "nr_periods 250\nnr_throttled 249\nthrottled_usec 12437508\nnr_bursts 0\nburst_usec 0\n"
    ),
    "cpu.max": "50000 100000\n",
    "cpu.weight": "20\n",
    "cpu.pressure": (
        "some avg10=1.25 avg60=0.50 avg300=0.10 total=5029049\n"
        "full avg10=0.00 avg60=0.10 avg300=0.00 total=17\n"
    ),
    "memory.current": "53301248\n",
    "memory.max": "134217728\n",
    "memory.low": "0\n",
    "memory.peak": "53649408\n",
    "memory.events": "low 0\nhigh 7\nmax 3\noom 2\noom_kill 2\noom_group_kill 0\n",
    "memory.swap.current": "65536\n",
    "memory.swap.max": "max\n",
    "memory.pressure": "some avg10=0.00 avg60=0.00 avg300=0.00 total=8\n",
    "memory.stat": (
        "anon 270336\nfile 50331648\nkernel 561152\nkernel_stack 32768\nfile_mapped 8192\n"
        "inactive_file 1052672\nactive_file 12288\npgfault 3400\npgmajfault 4\n"
        "file_dirty 4096\nfile_writeback 8192\npgscan 70\npgsteal 60\n"
        "workingset_refault_anon 5\nworkingset_refault_file 6\n"
    ),
    "pids.current": "2\n",
    "pids.max": "99\n",
    "io.stat": "254:0 rbytes=4096 wbytes=8388608 rios=1 wios=9 dbytes=0 dios=0\n8:0 \n",
}


OF_V1 = GroupStats(
    at=5,
    cpu_ns=1_234_567_890,
    user_ns=810_000_000,
    system_ns=420_000_000,
    periods=250,
    throttled_periods=249,
    throttled_ns=12_437_508_191,
    quota_us=50_000,
    period_us=100_000,
    shares=512,
    memory=53_301_248,
    working_set=53_301_248 - 1_052_672,
    rss=270_336,
    cache=50_331_648,
    mapped_file=8192,
    kernel=561_152,
    active_file=12_288,
    inactive_file=1_052_672,
    limit=128 << 20,
    reservation=None,
    dirty=4096,
    writeback=8192,
    max_memory=53_649_408,
    failures=3,
    oom_kills=2,
    faults=3400,
    major_faults=4,
    own_faults=3300,
    own_major_faults=3,
    swap=65_536,
    swap_limit=64 << 20,
    pids=2,
    pids_max=None,
    devices=(DeviceIo(254, 0, 4096, 8_388_608, 1, 9),),
)


def test_version_1() -> None:
    assert from_v1(V1, 5) == OF_V1


def test_version_2() -> None:
    found = from_v2(V2, 5)
    assert found == replace(
        OF_V1,
        cpu_ns=1_234_567_000,
        user_ns=1_000_000_000,
        system_ns=234_567_000,
        throttled_ns=12_437_508_000,
        shares=127,
        weight=20,
        scanned_pages=70,
        reclaimed_pages=60,
        file_refaults=6,
        anon_refaults=5,
        throttled_at_high=7,
        own_faults=3400,
        own_major_faults=4,
        swap_limit=None,
        pids_max=99,
        devices=(DeviceIo(254, 0, 4096, 8_388_608, 1, 9), DeviceIo(8, 0)),
        cpu_psi=Psi(PsiLine(5_029_049, 1.25, 0.5, 0.1), PsiLine(17, 0.0, 0.1, 0.0)),
        memory_psi=Psi(PsiLine(8, 0.0, 0.0, 0.0), PsiLine(0, 0.0, 0.0, 0.0)),
    )
    assert found.memory_available == (128 << 20) - (53_301_248 - 1_052_672)
    assert found.swap_available is None


def test_every_text_is_one_that_is_read() -> None:
    assert {name for _, name in (*V1_BASIC, *V1_DETAIL)} == set(V1)
    assert {*V2_BASIC, *V2_DETAIL} - {"io.pressure"} == set(V2)


@pytest.mark.parametrize(("read", "texts"), [(from_v1, V1), (from_v2, V2)])
@pytest.mark.parametrize(
    "text", ["", "\n", "max\n", "-1\n", "garbage 5\nx", "254:0 Read\n: x=y\n", "9" * 40]
)
def test_odd_texts_are_no_error(read: object, texts: dict[str, str], text: str) -> None:
    assert callable(read)
    read({}, 1)
    for name in texts:
        read({**texts, name: text}, 1)
    read(dict.fromkeys(texts, text), 1)


def test_no_limit() -> None:
    unlimited = {**V1, "memory.limit_in_bytes": "9223372036854771712\n", "cpu.cfs_quota_us": "-1\n"}
    found = from_v1(unlimited, 1)
    assert (found.limit, found.quota_us, found.swap_limit) == (None, None, None)
    found = from_v2({**V2, "memory.max": "max\n", "cpu.max": "max 100000\n"}, 1)
    assert (found.limit, found.quota_us, found.period_us) == (None, None, 100_000)


def test_more_inactive_pages_than_memory_is_a_race_of_two_files() -> None:
    assert from_v1({**V1, "memory.usage_in_bytes": "4096\n"}, 1).working_set == 0
