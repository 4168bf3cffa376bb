"""Thresholds parsed from settings (docs/reference/behaviour-resources.md, rb)."""

from __future__ import annotations

import pytest

from kubeletpy.config.load import default_settings
from kubeletpy.node.eviction.decide import (
    Amount,
    Signal,
    SignalObservation,
    Threshold,
    amount,
    from_settings,
)
from tests.unit.node.eviction.rules import GI, MI, rules

NO_PODS: dict[str, object] = {"enforceNodeAllocatable": []}


@pytest.mark.parametrize(
    ("text", "capacity", "units"),
    [
        ("100Mi", 10 * GI, 100 * MI),
        ("1.5G", 10 * GI, 1_500_000_000),
        ("10%", 1000, 100),
        ("15%", 1000, 150),
        ("5%", 10_000_000_000, 500_000_007),  # single precision: 0.05 is 0.05000000074505806
        ("0.5%", 1000, 4),
        ("33.3%", 0, 0),
    ],
)
def test_an_amount(text: str, capacity: int, units: int) -> None:
    assert amount(text).in_units(capacity) == units


def test_the_defaults_of_a_file() -> None:
    made = rules()
    assert [(t.signal.value, t.hard, t.grace) for t in made.thresholds] == [
        ("memory.available", True, 0.0),
        ("allocatableMemory.available", True, 0.0),
        ("nodefs.available", True, 0.0),
        ("nodefs.inodesFree", True, 0.0),
        ("imagefs.available", True, 0.0),
        ("imagefs.inodesFree", True, 0.0),
    ]
    assert (made.transition, made.max_grace) == (300.0, 0)


@pytest.mark.parametrize("text", ["0%", "100%"])
def test_zero_or_all_removes_a_threshold(text: str) -> None:
    assert rules(evictionHard={"memory.available": text, "nodefs.available": text}).thresholds == ()


def test_an_empty_map_has_no_thresholds() -> None:
    assert rules(evictionHard={}).thresholds == ()


@pytest.mark.parametrize(
    ("document", "ignore", "there"),
    [
        ({}, False, True),
        ({}, True, False),
        (NO_PODS, False, False),
        ({"enforceNodeAllocatable": ["none"]}, False, False),
    ],
)
def test_allocatable_memory_has_the_threshold_of_memory(
    document: dict[str, object], ignore: bool, there: bool
) -> None:
    settings = default_settings(
        evictionHard={"memory.available": "200Mi"},
        evictionMinimumReclaim={"memory.available": "50Mi"},
        evictionSoft={"memory.available": "1Gi"},
        evictionSoftGracePeriod={"memory.available": "30s"},
        **document,
    )
    found = from_settings(settings, ignore_allocatable=ignore).thresholds
    copies = [t for t in found if t.signal is Signal.ALLOCATABLE_MEMORY]
    hard = Threshold(
        Signal.ALLOCATABLE_MEMORY, Amount(200 * MI), 0.0, Amount(50 * MI), "evictionHard"
    )
    assert copies == ([hard] if there else []), "the soft one is not copied"


def test_a_soft_threshold_has_its_grace_and_without_one_it_is_hard() -> None:
    found = rules(
        evictionHard={},
        evictionSoft={"memory.available": "1Gi", "pid.available": "10%"},
        evictionSoftGracePeriod={"memory.available": "1m30s", "pid.available": "0s"},
        evictionMaxPodGracePeriod=20,
        evictionPressureTransitionPeriod="0s",
    )
    memory, pids = found.thresholds
    assert (memory.grace, memory.hard, memory.at) == (90.0, False, "evictionSoft")
    assert pids.hard
    assert (found.max_grace, found.transition) == (20, 300.0)


def test_how_long_a_condition_is_held() -> None:
    assert rules(evictionPressureTransitionPeriod="1m").transition == 60.0


@pytest.mark.parametrize(("grace", "hard"), [(0.0, True), (0.5, False), (1.0, False)])
def test_a_grace_makes_a_threshold_soft(grace: float, hard: bool) -> None:
    assert Threshold(Signal.MEMORY, Amount(1), grace).hard is hard


def test_writable_layers_have_the_threshold_of_the_file_system_that_they_are_on() -> None:
    found = rules(
        evictionHard={"containerfs.available": "20%", "nodefs.available": "10%"},
    )
    assert [t.signal for t in found.thresholds] == [Signal.NODEFS]
    assert found.instead == ("evictionHard.containerfs.available",)


@pytest.mark.parametrize(
    ("available", "met", "unresolved"),
    [(99, True, True), (100, False, True), (149, False, True), (150, False, False)],
)
def test_strictly_below(available: int, met: bool, unresolved: bool) -> None:
    threshold = Threshold(Signal.PIDS, Amount(100), reclaim=Amount(50))
    seen = SignalObservation(available, 1000, 0.0)
    assert (threshold.met(seen), threshold.unresolved(seen)) == (met, unresolved)
