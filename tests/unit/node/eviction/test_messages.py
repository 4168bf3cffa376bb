"""Messages and annotations of an eviction, from the pod and the numbers."""

from __future__ import annotations

from typing import Any

import pytest

from kubeletpy.node.eviction.decide import Amount, Crossing, Signal, SignalObservation, Threshold
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
from tests.unit.node.eviction.rules import MI
from tests.unit.podworkers.builders import make_pod


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
