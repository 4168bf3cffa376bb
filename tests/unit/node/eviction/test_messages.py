"""Messages and annotations of an eviction, from the pod and the numbers."""

from __future__ import annotations

from typing import Any

import pytest

from kubeletpy.config.load import default_settings
from kubeletpy.node.eviction.decide import (
    CONFIRM_S,
    Amount,
    Crossing,
    Observations,
    Rules,
    Signal,
    SignalObservation,
    Threshold,
    amount,
    from_settings,
    observation_delay,
)
from kubeletpy.node.eviction.ranking import candidate
from kubeletpy.node.eviction.report import event_annotations, evicted_status, message
from kubeletpy.node.stats.usage import (
    CgroupUsage,
    GroupKind,
    GroupStats,
    PodDisk,
    PodReading,
    PodRef,
    TreeUse,
    VolumeUse,
)
from tests.kit.eviction import GI, MI, rules
from tests.kit.pods import make_pod


def crossing(signal: Signal, quantity: int = 100 * MI, available: int = 90 * MI) -> Crossing:
    return Crossing(
        Threshold(signal, Amount(quantity)), SignalObservation(available, 1 << 40, 0.0), since=0.0
    )


def container(name: str, working_set: int | None, layer: int | None = None) -> CgroupUsage:
    stats = None if working_set is None else GroupStats(working_set=working_set, pids=2)
    use = None if layer is None else TreeUse(0, layer, 3)
    return CgroupUsage(GroupKind.CONTAINER, stats, name=name, layer=use)


def reading(
    *containers: CgroupUsage, working_set: int | None = None, pids: int | None = 7
) -> PodReading:
    stats = None if working_set is None else GroupStats(working_set=working_set, pids=pids)
    ref = PodRef("uid-web", "web", "default")
    return PodReading(ref, CgroupUsage(GroupKind.POD, stats), None, containers, processes=1)


def web(**requests: str) -> Any:
    requested = {name.replace("_", "-"): text for name, text in requests.items()}
    main = {"name": "main", "image": "i", "resources": {"requests": requested}}
    return make_pod(containers=[main, {"name": "side", "image": "i"}], priority=3)


def test_for_memory_containers_over_their_request_are_named() -> None:
    pod = candidate(
        web(memory="10Mi"),
        reading(container("main", 11 * MI), container("side", 3000), working_set=12 * MI),
        None,
    )
    assert message(pod, [crossing(Signal.MEMORY)]) == (
        "The node was low on resource: memory. Threshold quantity: 100Mi, available: 90Mi. "
        "Container main was using 11Mi, request is 10Mi, has larger consumption of memory. "
        "Container side was using 3000, request is 0, has larger consumption of memory. "
    )
    assert event_annotations(pod, crossing(Signal.MEMORY)) == {
        "offending_containers": "main,side",
        "offending_containers_usage": "11Mi,3000",
        "starved_resource": "memory",
    }
    assert (pod.priority, pod.requests) == (3, {"memory": 10 * MI})
    assert pod.use is not None
    assert (pod.use.memory, pod.use.tasks) == (12 * MI, 7)


def test_a_pod_level_request_is_named_too() -> None:
    pod = candidate(
        make_pod(resources={"requests": {"memory": "1Mi"}}),
        reading(container("main", 0), working_set=2 * MI),
        None,
    )
    assert "Pod web was using 2Mi, request is 1Mi, has larger consumption of memory. " in message(
        pod, [crossing(Signal.MEMORY)]
    )
    found = event_annotations(pod, crossing(Signal.MEMORY))
    assert (found["offending_pod"], found["offending_pod_usage"]) == ("web", "2Mi")
    assert "offending_pod" not in event_annotations(pod, crossing(Signal.NODEFS))
    assert "Pod web was using" not in message(pod, [crossing(Signal.NODEFS)])
    stopped = candidate(make_pod(resources={"requests": {"memory": "1Mi"}}), None, None)
    assert message(stopped, [crossing(Signal.MEMORY)]).endswith("available: 90Mi. ")


def test_the_first_of_several_crossings_is_named() -> None:
    pod = candidate(web(), reading(container("main", 11)), None)
    text = message(pod, [crossing(Signal.MEMORY, 5), crossing(Signal.NODEFS, 6)])
    assert text.startswith("The node was low on resource: memory. Threshold quantity: 5, ")


@pytest.mark.parametrize(
    ("used", "named"), [(10 * MI - 1, ""), (10 * MI, ""), (10 * MI + 1, "main")]
)
def test_as_much_as_requested_is_not_too_much(used: int, named: str) -> None:
    pod = candidate(web(memory="10Mi"), reading(container("main", used)), None)
    found = event_annotations(pod, crossing(Signal.MEMORY))
    assert found["offending_containers"] == named


def test_disk_use_is_layer_plus_logs_where_both_are_known() -> None:
    disk = PodDisk(
        logs={"main": TreeUse(0, 2 * MI, 1)},
        volumes=(
            VolumeUse("data", TreeUse(0, 5 * MI, 50), ephemeral=True),
            VolumeUse("claim", TreeUse(0, 500 * MI, 5), ephemeral=False),
        ),
    )
    pod = candidate(web(), reading(container("main", 1, MI), container("side", 1, MI)), disk)
    text = message(pod, [crossing(Signal.NODEFS)])
    assert "Container main was using 3Mi, request is 0, has larger consumption of" in text
    assert "side" not in text
    assert pod.use is not None
    assert pod.use.disk.layers == (2 * MI, 6)
    assert pod.use.disk.logs == (2 * MI, 1)
    assert pod.use.disk.volumes == (5 * MI, 50)


@pytest.mark.parametrize("signal", [Signal.NODEFS_INODES, Signal.PIDS])
def test_no_container_is_blamed_for_inodes_and_tasks(signal: Signal) -> None:
    pod = candidate(web(), reading(container("main", 11, MI)), None)
    resource = "pids" if signal is Signal.PIDS else "inodes"
    assert message(pod, [crossing(signal, 500, 1025)]) == (
        f"The node was low on resource: {resource}. Threshold quantity: 500, available: 1025. "
    )
    assert event_annotations(pod, crossing(signal))["offending_containers"] == ""


def test_a_pod_that_does_not_run_has_no_numbers() -> None:
    for unknown in (None, reading()):
        pod = candidate(web(), unknown, None)
        assert pod.use is None
        assert event_annotations(pod, crossing(Signal.MEMORY)) == {}
        assert message(pod, [crossing(Signal.MEMORY)]).endswith("available: 90Mi. ")


def test_without_a_cgroup_of_its_own_a_pod_is_its_containers() -> None:
    pod = candidate(web(), reading(container("main", 5), container("side", 6)), None)
    assert pod.use is not None
    assert (pod.use.memory, pod.use.tasks) == (11, 4)


def test_unreadable_requests_are_ignored() -> None:
    assert candidate(web(memory="a lot"), None, None).requests == {}


def test_the_status_has_a_disruption_target_condition() -> None:
    made = evicted_status({"phase": "Running"}, "why", 0.0, 4)
    assert (made["phase"], made["reason"], made["message"]) == ("Failed", "Evicted", "why")
    (condition,) = made["conditions"]
    assert condition["type"] == "DisruptionTarget"
    assert condition["reason"] == "TerminationByKubelet"
    assert condition["message"] == "why"


# Thresholds parsed from settings (docs/reference/behaviour-resources.md, rb).

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
    found = rules(evictionHard={"containerfs.available": "20%", "nodefs.available": "10%"})
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


# Time until a node's next measurement.

RULES = rules(evictionHard={"memory.available": "100Mi"}, enforceNodeAllocatable=[])


def seen(available: int, at: float = 10.0) -> dict[Signal, SignalObservation]:
    return {Signal.MEMORY: SignalObservation(available, 64 * GI, at)}


@pytest.mark.parametrize(
    ("available", "seconds"),
    [
        (60 * GI, 10.0),
        (2 * GI + 100 * MI, 2.0),
        (612 * MI, 0.5),
        (101 * MI, 0.1),
        (100 * MI, 0.1),
        (100 * MI - 1, 10.0),
        (99 * MI, 10.0),
    ],
)
def test_the_nearer_the_sooner(available: int, seconds: float) -> None:
    assert observation_delay(seen(available), {}, RULES) == seconds


def test_a_crossed_threshold_is_confirmed_at_once() -> None:
    assert CONFIRM_S == 0.05


A_SECOND = {
    Signal.MEMORY: GI,
    Signal.ALLOCATABLE_MEMORY: GI,
    Signal.NODEFS: 512 * MI,
    Signal.NODEFS_INODES: 100_000,
    Signal.IMAGEFS: 512 * MI,
    Signal.IMAGEFS_INODES: 100_000,
    Signal.CONTAINERFS: 512 * MI,
    Signal.CONTAINERFS_INODES: 100_000,
    Signal.PIDS: 10_000,
}


@pytest.mark.parametrize("signal", Signal)
def test_the_interval_assumes_a_greatest_rate(signal: Signal) -> None:
    one = Rules((Threshold(signal, Amount(7)),))
    found = {signal: SignalObservation(7 + 3 * A_SECOND[signal], 64 * GI, 10.0)}
    assert observation_delay(found, {}, one) == 3.0


def test_the_nearest_of_all_counts() -> None:
    two = Rules((Threshold(Signal.NODEFS, Amount(0)), Threshold(Signal.PIDS, Amount(0))))
    found = {
        Signal.NODEFS: SignalObservation(GI, 64 * GI, 10.0),
        Signal.PIDS: SignalObservation(50_000, 64 * GI, 10.0),
    }
    assert observation_delay(found, {}, two) == 2.0
    found[Signal.NODEFS] = SignalObservation(3 * GI, 64 * GI, 10.0)
    assert observation_delay(found, {}, two) == 5.0
    del found[Signal.PIDS]
    assert observation_delay(found, {}, two) == 6.0


@pytest.mark.parametrize(
    ("before", "seconds"),
    [
        ({}, 5.0),
        (seen(6 * GI + 100 * MI, 9.0), 2.5),
        (seen(15 * GI + 100 * MI, 5.0), 1.25),
        (seen(5 * GI + 100 * MI + MI, 9.0), 5.0),
        (seen(0, 9.0), 5.0),
        # seen at the same time, or in another order: these give no rate
        (seen(6 * GI + 100 * MI, 10.0), 5.0),
        (seen(0, 11.0), 5.0),
        (seen(60 * GI, 11.0), 5.0),
    ],
)
def test_faster_growth_is_measured_sooner(before: Observations, seconds: float) -> None:
    assert observation_delay(seen(5 * GI + 100 * MI), before, RULES) == pytest.approx(seconds)


def test_without_observations_the_period_applies() -> None:
    assert observation_delay({}, {}, RULES) == 10.0


@pytest.mark.parametrize(("grace", "seconds"), [("3s", 3.0), ("30s", 10.0), ("0s", 10.0)])
def test_a_soft_threshold_that_is_crossed_waits_for_its_grace(grace: str, seconds: float) -> None:
    soft = rules(
        evictionHard={},
        evictionSoft={"memory.available": "1Gi"},
        evictionSoftGracePeriod={"memory.available": grace},
    )
    assert observation_delay(seen(0), {}, soft) == seconds


@pytest.mark.parametrize("a_second", [64 * MI, 512 * MI, GI, 3 * GI])
def test_no_eater_is_seen_later_than_a_fifth_of_a_second(a_second: int) -> None:
    start = 40 * GI
    now, found = 0.0, seen(start, 0.0)
    before: dict[Signal, SignalObservation] = {}
    crossed_at = (start - 100 * MI) / a_second
    while now < crossed_at:
        wait = observation_delay(found, before, RULES)
        now += wait
        left = max(0, start - int(a_second * now))
        before, found = found, seen(left, now)
    late = now - crossed_at
    assert late <= (0.2 if a_second <= 2 * GI else 10.0 * 0.5)
