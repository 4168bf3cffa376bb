"""Usage left below limits, and one reading filled from another."""

from __future__ import annotations

from typing import Any

import pytest

from kubeletpy.node.stats.scrapes import brief
from kubeletpy.node.stats.usage import (
    FORGET_NS,
    CgroupUsage,
    DeviceIo,
    GroupKind,
    GroupStats,
    Interface,
    Layer,
    NodeReading,
    PodReading,
    PodRef,
    Psi,
    PsiLine,
    Rates,
    Reading,
    filled,
    from_containers,
    from_sandboxes,
)
from kubeletpy.remote.generated import api_pb2 as cri

FIRST, SECOND = DeviceIo(8, 0, 1), DeviceIo(8, 16, 2)


@pytest.mark.parametrize(
    ("available", "limit", "used", "left"),
    [
        (None, None, 3, None),
        (None, 5, None, None),
        (None, 5, 3, 2),
        (None, 5, 5, 0),
        (None, 5, 7, 0),
        (9, 5, 3, 9),
        (0, 5, 3, 0),
        (9, None, None, 9),
    ],
)
def test_memory_available(
    available: int | None, limit: int | None, used: int | None, left: int | None
) -> None:
    stats = GroupStats(available=available, limit=limit, working_set=used)
    assert stats.memory_available == left


@pytest.mark.parametrize(
    ("limit", "used", "left"), [(None, 3, None), (5, None, None), (5, 3, 2), (5, 5, 0), (5, 7, 0)]
)
def test_swap_available(limit: int | None, used: int | None, left: int | None) -> None:
    assert GroupStats(swap_limit=limit, swap=used).swap_available == left


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        (None, None, None),
        (None, GroupStats(at=1), GroupStats(at=1)),
        (GroupStats(at=1), None, GroupStats(at=1)),
        (GroupStats(at=1), GroupStats(at=2, pids=3), GroupStats(at=1, pids=3)),
        (GroupStats(at=1, pids=0), GroupStats(at=2, pids=3), GroupStats(at=1, pids=0)),
        (GroupStats(at=1, pids=4), GroupStats(at=2), GroupStats(at=1, pids=4)),
        (GroupStats(), GroupStats(devices=(SECOND,)), GroupStats(devices=(SECOND,))),
        (GroupStats(devices=(FIRST,)), GroupStats(devices=(SECOND,)), GroupStats(devices=(FIRST,))),
        (GroupStats(devices=(FIRST,)), GroupStats(), GroupStats(devices=(FIRST,))),
        (
            GroupStats(limit=9, working_set=3),
            GroupStats(available=5),
            GroupStats(limit=9, working_set=3),
        ),
        (
            GroupStats(working_set=3),
            GroupStats(available=5),
            GroupStats(working_set=3, available=5),
        ),
    ],
)
def test_filled(
    first: GroupStats | None, second: GroupStats | None, expected: GroupStats | None
) -> None:
    assert filled(first, second) == expected


def test_complete_stats_are_returned_as_they_are() -> None:
    first = GroupStats(at=1, pids=4)
    assert filled(first, GroupStats(at=2)) is first


# Usage from CRI stats: a value that the runtime leaves out stays unknown.


def amount(value: int) -> cri.UInt64Value:
    return cri.UInt64Value(value=value)


def container(**fields: Any) -> Any:
    attributes = cri.ContainerAttributes(id="c")
    supplied = from_containers([cri.ContainerStats(attributes=attributes, **fields)])
    return supplied.containers["c"]


def sandbox(**fields: Any) -> Any:
    linux = cri.LinuxPodSandboxStats(**fields)
    attributes = cri.PodSandboxAttributes(id="s")
    each = cri.PodSandboxStats(attributes=attributes, linux=linux)
    return from_sandboxes([each]).sandboxes["s"]


def test_empty_stats_leave_everything_unknown() -> None:
    assert (container().stats, container().layer) == (GroupStats(at=0), None)
    assert (sandbox().network, sandbox().processes) == (None, None)


def test_no_processes_are_none_and_no_number_is_unknown() -> None:
    assert sandbox(process=cri.ProcessUsage(process_count=amount(0))).processes == 0
    assert sandbox(process=cri.ProcessUsage()).processes is None


@pytest.mark.parametrize(
    ("available", "reported"),
    [(0, None), (1, 1), ((1 << 60) - 1, (1 << 60) - 1), (1 << 60, None), (1 << 63, None)],
)
def test_an_absurd_limit_is_none(available: int, reported: int | None) -> None:
    memory = cri.MemoryUsage(available_bytes=amount(available))
    assert container(memory=memory).stats.available == reported


@pytest.mark.parametrize(
    ("used", "left", "limit"), [(1, 2, 3), (0, 0, 0), (1, None, None), (None, 2, None)]
)
def test_the_limit_of_swap(used: int | None, left: int | None, limit: int | None) -> None:
    swap = cri.SwapUsage()
    if used is not None:
        swap.swap_usage_bytes.value = used
    if left is not None:
        swap.swap_available_bytes.value = left
    stats = container(swap=swap).stats
    assert (stats.swap, stats.swap_limit) == (used, limit)


def test_pressure() -> None:
    psi = cri.PsiStats(
        Full=cri.PsiData(Total=1, Avg10=1.5, Avg60=2.5, Avg300=3.5), Some=cri.PsiData(Total=2)
    )
    stats = container(cpu=cri.CpuUsage(psi=psi)).stats
    assert stats.cpu_psi == Psi(PsiLine(2, 0.0, 0.0, 0.0), PsiLine(1, 1.5, 2.5, 3.5))
    assert (stats.memory_psi, stats.io_psi) == (None, None)


@pytest.mark.parametrize(("own", "of_cpu", "at"), [(5, 7, 5), (0, 7, 7), (5, 0, 5)])
def test_a_layer_has_the_time_of_its_container_at_least(own: int, of_cpu: int, at: int) -> None:
    usage = cri.FilesystemUsage(
        timestamp=own, used_bytes=amount(3), fs_id=cri.FilesystemIdentifier(mountpoint="/m")
    )
    of = container(writable_layer=usage, cpu=cri.CpuUsage(timestamp=of_cpu))
    assert of.layer == Layer(at, 3, None, "/m", uncounted=not own)


@pytest.mark.parametrize(("of_cpu", "of_memory", "at"), [(1, 2, 1), (0, 2, 2)])
def test_when_it_was_read(of_cpu: int, of_memory: int, at: int) -> None:
    of = container(cpu=cri.CpuUsage(timestamp=of_cpu), memory=cri.MemoryUsage(timestamp=of_memory))
    assert of.stats.at == at


def interface(name: str, count: int = 0) -> Any:
    return cri.NetworkInterfaceUsage(name=name, rx_bytes=amount(count))


@pytest.mark.parametrize(
    ("default", "others", "names"),
    [
        ("eth0", [], ["eth0"]),
        ("eth0", ["eth0", "eth1"], ["eth0", "eth1"]),
        ("eth0", ["eth1", "eth0"], ["eth1", "eth0"]),
        ("eth0", ["eth1"], ["eth0", "eth1"]),
        ("", ["eth1"], ["eth1"]),
        ("", [], []),
    ],
)
def test_the_default_interface_is_one_of_them(
    default: str, others: list[str], names: list[str]
) -> None:
    usage = cri.NetworkUsage(
        default_interface=interface(default, 5), interfaces=[interface(n) for n in others]
    )
    network = sandbox(network=usage).network
    assert [each.name for each in network.interfaces] == names
    assert network.default == default
    if default and default not in others:
        assert network.interfaces[0] == Interface("eth0", rx_bytes=5)


# CPU rates from samples at any intervals.

SECOND_NS = 1_000_000_000


def test_a_rate_needs_two_samples_with_time_between() -> None:
    rates = Rates()
    assert rates.nano_cores("a", 0, 0) is None
    assert rates.nano_cores("a", SECOND_NS // 4, SECOND_NS // 4) is None
    assert rates.nano_cores("a", 2 * SECOND_NS, 3 * SECOND_NS) == 1_500_000_000
    assert rates.nano_cores("b", 2 * SECOND_NS, 3 * SECOND_NS) is None


def test_the_window_moves_on() -> None:
    rates = Rates()
    found = [
        rates.nano_cores("a", at * SECOND_NS, min(at, 30) * SECOND_NS) for at in range(0, 61, 5)
    ]
    assert found[1:7] == [SECOND_NS] * 6
    assert found[-1] == 0, "nothing was used for half a minute"


def test_a_rare_reading_covers_the_time_since_the_previous_one() -> None:
    rates = Rates()
    for minute in range(5):
        used = minute * 60 * SECOND_NS // 4
        rate = rates.nano_cores("a", minute * 60 * SECOND_NS, used)
    assert rate == SECOND_NS // 4


def test_a_counter_that_starts_anew_and_one_that_is_too_old() -> None:
    rates = Rates()
    rates.nano_cores("a", 0, 5 * SECOND_NS)
    assert rates.nano_cores("a", 2 * SECOND_NS, SECOND_NS) is None
    assert rates.nano_cores("a", 3 * SECOND_NS, 2 * SECOND_NS) == SECOND_NS
    assert rates.nano_cores("a", 3 * SECOND_NS + FORGET_NS, 9 * SECOND_NS) is None


def test_a_clock_that_was_set_back() -> None:
    rates = Rates()
    rates.nano_cores("a", 100 * SECOND_NS, SECOND_NS)
    assert rates.nano_cores("a", 50 * SECOND_NS, 2 * SECOND_NS) is None
    assert rates.nano_cores("a", 51 * SECOND_NS, 3 * SECOND_NS) == SECOND_NS
    assert rates.nano_cores("a", 51 * SECOND_NS, 3 * SECOND_NS) == SECOND_NS, "it stands still"
    assert rates.nano_cores("a", 51 * SECOND_NS - 1, 3 * SECOND_NS) is None


def test_others_are_forgotten() -> None:
    rates = Rates()
    rates.nano_cores("a", 0, 0)
    rates.forget_others(["b"])
    assert rates.nano_cores("a", SECOND_NS, SECOND_NS) is None


def test_half_a_second_is_enough_and_is_needed() -> None:
    rates = Rates()
    rates.nano_cores("a", 0, 0)
    assert rates.nano_cores("a", SECOND_NS // 2 - 1, SECOND_NS) is None
    assert rates.nano_cores("a", SECOND_NS // 2, SECOND_NS) == 2 * SECOND_NS


def test_ten_minutes_are_too_long() -> None:
    rates = Rates()
    rates.nano_cores("a", 0, 0)
    rates.nano_cores("b", 0, 0)
    assert rates.nano_cores("a", FORGET_NS - 1, 0) == 0
    assert rates.nano_cores("b", FORGET_NS, 0) is None
    assert FORGET_NS == 600 * SECOND_NS


def test_a_window_of_ten_seconds_ends_and_the_next_overlaps_it() -> None:
    rates = Rates()
    rates.nano_cores("a", 0, 0)
    rates.nano_cores("a", 4 * SECOND_NS, 4 * SECOND_NS)
    # up to 10 s the rate starts at the first sample; the next window begins at the previous sample
    assert rates.nano_cores("a", 10 * SECOND_NS, 4 * SECOND_NS) == 4 * SECOND_NS // 10
    assert rates.nano_cores("a", 12 * SECOND_NS, 6 * SECOND_NS) == 2 * SECOND_NS // 8


def test_after_ten_seconds_without_a_sample_the_next_window_begins_at_the_new_one() -> None:
    rates = Rates()
    rates.nano_cores("a", 0, 0)
    rates.nano_cores("a", 10 * SECOND_NS, 5 * SECOND_NS)
    assert rates.nano_cores("a", 12 * SECOND_NS, 7 * SECOND_NS) == SECOND_NS
    rates.nano_cores("b", 0, 0)
    rates.nano_cores("b", SECOND_NS, 0)
    rates.nano_cores("b", 11 * SECOND_NS - 1, 10 * SECOND_NS)
    rate = rates.nano_cores("b", 12 * SECOND_NS - 1, 11 * SECOND_NS)
    assert rate == 11 * SECOND_NS * SECOND_NS // (11 * SECOND_NS - 1), (
        "a nanosecond less: at the one before"
    )


def test_within_ten_seconds_the_rate_is_since_the_begin() -> None:
    rates = Rates()
    for at, used in ((0, 0), (4, 4), (8, 4)):
        rates.nano_cores("a", at * SECOND_NS, used * SECOND_NS)
    assert rates.nano_cores("a", 9 * SECOND_NS, 9 * SECOND_NS) == SECOND_NS


def test_a_window_can_begin_with_a_start_of_the_last_minute() -> None:
    rates, now = Rates(), 1_000 * SECOND_NS
    assert rates.nano_cores("a", now, SECOND_NS, now - 10 * SECOND_NS) == SECOND_NS // 10
    assert rates.nano_cores("b", now, SECOND_NS, now - 60 * SECOND_NS) is None, "no current usage"
    assert rates.nano_cores("c", now, SECOND_NS, now + SECOND_NS) is None, (
        "a clock that was set back"
    )
    assert rates.nano_cores("d", now, SECOND_NS, now - SECOND_NS // 4) is None, "too short"
    assert rates.nano_cores("d", now + SECOND_NS // 4, SECOND_NS) == 2 * SECOND_NS
    # a counter that starts anew under the same key has no known start
    assert rates.nano_cores("a", now + SECOND_NS, SECOND_NS // 2, now - 10 * SECOND_NS) is None


def test_rates_that_are_worth_a_second_sample() -> None:
    rates, now = Rates(), 1_000 * SECOND_NS
    rates.nano_cores("fresh", now, SECOND_NS)
    rates.nano_cores("old", now - SECOND_NS, SECOND_NS)
    rates.nano_cores("known", now, SECOND_NS, now - SECOND_NS)
    assert rates.lacks(["fresh", "known"], now)
    assert not rates.lacks(["known", "unseen"], now)
    assert not rates.lacks(["old"], now), "its source has no newer numbers"
    assert not rates.lacks(["fresh"], now + SECOND_NS // 2)


# The short form of CPU and memory usage.

NODE = NodeReading(CgroupUsage(GroupKind.NODE, None))
POD = CgroupUsage(GroupKind.POD, None)
REF = PodRef("uid", "web", "default")


def brief_container(stats: GroupStats | None) -> Any:
    groups = (CgroupUsage(GroupKind.CONTAINER, stats, name="main"),)
    reading = Reading(5_000_000_000, NODE, (PodReading(REF, POD, None, groups),), "why")
    stated = brief(reading)
    assert (stated["at"], stated["problem"], [pod["uid"] for pod in stated["pods"]]) == (
        *(5.0, "why"),
        ["uid"],
    )
    (found,) = stated["pods"][0]["containers"]
    return found


def test_everything() -> None:
    stats = GroupStats(
        at=4_000_000_000, cpu_ns=1_500_000_000, memory=20, working_set=15, limit=64,
    )  # fmt: skip
    assert brief_container(stats) == {
        "name": "main",
        "at": 4.0,
        "cpu": 1.5,
        "memory": 15,
        "memory_limit": 64,
    }


@pytest.mark.parametrize(
    ("stats", "field", "value"),
    [
        (GroupStats(memory=20), "memory", 20),
        (GroupStats(memory=20, working_set=0), "memory", 0),
        (GroupStats(memory=20), "memory_limit", None),
        (GroupStats(memory=20), "at", None),
        (GroupStats(memory=20), "cpu", None),
        (GroupStats(cpu_ns=0), "cpu", 0.0),
        (None, "cpu", None),
        (None, "name", "main"),
    ],
)
def test_unknown_values_are_null(stats: GroupStats | None, field: str, value: object) -> None:
    assert brief_container(stats)[field] == value
