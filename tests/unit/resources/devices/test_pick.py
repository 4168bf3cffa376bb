"""Which devices a container gets.

Source: docs/reference/behaviour-resources.md, ro. The numbers are its rows.
"""

from __future__ import annotations

from typing import Any

import pytest

from kubeletpy.base.host.errors import Cause, CauseKind
from kubeletpy.pods.pod import Pod
from kubeletpy.resources.devices.model import (
    FORGOTTEN_AFTER_S,
    Booking,
    DeviceHolder,
    DeviceRequest,
    DeviceState,
    PluginDevice,
    Reservation,
    by_node,
)
from kubeletpy.resources.devices.pick import (
    DeviceChoice,
    NothingToAllocate,
    Unallocatable,
    decide,
    device_hints,
    pick,
    requests,
    reusable,
)

GPU = "vendor.example/gpu"


def container(name: str, desired: str = "1", **more: Any) -> dict[str, Any]:
    return {"name": name, "resources": {"limits": {GPU: desired}}, **more}


def pod(*containers: Any, init: Any = (), status: Any = None) -> Pod:
    made: Any = {
        "metadata": {"name": "p", "namespace": "n", "uid": "uid"},
        "spec": {"containers": list(containers), "initContainers": list(init)},
        "status": status or {},
    }
    return Pod(made)


def state(
    *devices: PluginDevice, held: dict[tuple[str, str], list[str]] | None = None
) -> DeviceState:
    made = DeviceState()
    made.listed(GPU, devices)
    by_id = {device.id: device for device in devices}
    for (uid, name), ids in (held or {}).items():
        at = by_node(by_id.get(each, PluginDevice(each)) for each in ids)
        made.bookings[DeviceHolder(uid, name, GPU)] = Booking(at, b"")
    return made


def devices(*ids: str) -> list[PluginDevice]:
    return [PluginDevice(each) for each in ids]


def decided(
    made: DeviceState, number: int = 1, *, runs: bool = False, mask: int | None = None
) -> Any:
    request = DeviceRequest(DeviceHolder("uid", "c", GPU), number, mask)
    return decide(pod(container("c")), request, made, pod_runs=runs)


def test_1_served_by_a_claim() -> None:
    mapping = {"containerName": "c", "resourceName": GPU, "requestName": "r"}
    status = {"extendedResourceClaimStatus": {"requestMappings": [mapping]}}
    served = pod(container("c"), status=status)
    request = DeviceRequest(DeviceHolder("uid", "c", GPU), 1)
    assert isinstance(decide(served, request, state()), NothingToAllocate)


def test_2_changed_request() -> None:
    answer = decided(state(*devices("a", "b"), held={("uid", "c"): ["a"]}), 2)
    assert answer == Unallocatable(
        f'pod "uid" container "c" changed request for resource "{GPU}" from 1 to 2'
    )


@pytest.mark.parametrize("held", [{}, {("uid", "c"): ["gone"]}])
def test_3_a_running_pod_keeps_its_devices(held: Any) -> None:
    assert isinstance(decided(state(held=held), runs=True), NothingToAllocate)


def test_4_unknown() -> None:
    made = DeviceState()
    made.bookings[DeviceHolder("other", "c", GPU)] = Booking({-1: ("a",)}, b"")
    assert decided(made) == Unallocatable(f"cannot allocate unregistered device {GPU}")


def test_5_none_healthy() -> None:
    no = Unallocatable(
        f"no healthy devices present; cannot allocate unhealthy devices {GPU}",
        Cause(CauseKind.DEVICES_UNHEALTHY, GPU),
    )
    assert decided(state(PluginDevice("a", "Unhealthy"))) == no
    stopped = state(*devices("a"))
    stopped.stopped(GPU, 0.0)
    assert decided(stopped) == no
    assert decided(stopped, 0) == no, "also when nothing is needed"


def test_6_own_devices_became_unhealthy() -> None:
    made = state(PluginDevice("a", "Unhealthy"), PluginDevice("b"), held={("uid", "c"): ["a"]})
    assert decided(made) == Unallocatable(
        "previously allocated devices are no longer healthy; "
        f"cannot allocate unhealthy devices {GPU}"
    )


def test_7_a_container_that_has_its_devices() -> None:
    assert decided(state(*devices("a"), held={("uid", "c"): ["a"]})) == NothingToAllocate(
        "it has them"
    )
    assert decided(state(*devices("a")), 0) == NothingToAllocate("it requests none")


INIT, APP = container("i"), container("c")
SIDECAR = container("s", restartPolicy="Always")


@pytest.mark.parametrize(
    ("spec", "held", "found"),
    [
        (pod(APP), {}, set()),
        (pod(APP, init=[INIT]), {"i": ["a"]}, {"a"}),
        (pod(APP, init=[INIT, SIDECAR]), {"i": ["a", "b"], "s": ["a"]}, {"b"}),
        (pod(APP, init=[SIDECAR, INIT]), {"s": ["a"], "i": ["b"]}, {"b"}),
        (pod(container("first"), APP, init=[INIT]), {"i": ["a", "b"], "first": ["a"]}, {"b"}),
        (pod(APP, container("last"), init=[INIT]), {"i": ["a"], "last": ["a"]}, {"a"}),
    ],
)
def test_8_devices_left_by_init_containers(spec: Pod, held: Any, found: set[str]) -> None:
    made = state(held={("uid", name): ids for name, ids in held.items()})
    assert reusable(spec, "c", GPU, made) == found


def test_8_an_init_container_reuses_devices_of_earlier_ones() -> None:
    spec, made = pod(APP, init=[INIT, container("j")]), state(held={("uid", "i"): ["a"]})
    assert reusable(spec, "i", GPU, made) == set(), "but not its own"
    assert reusable(spec, "j", GPU, made) == {"a"}


def test_8_reused_devices_come_first_if_healthy() -> None:
    made = state(
        *devices("a", "b", "z"), PluginDevice("y", "Unhealthy"), held={("uid", "i"): ["y", "z"]}
    )
    request = DeviceRequest(DeviceHolder("uid", "c", GPU), 2)
    answer = decide(pod(APP, init=[container("i", "2")]), request, made)
    assert isinstance(answer, DeviceChoice)
    assert pick(answer) == ("a", "z")


def test_8_reused_devices_near_the_hint_come_first() -> None:
    near = PluginDevice("c", nodes=(1,))
    made = state(
        PluginDevice("a", nodes=(0,)), devices("b")[0], near, held={("uid", "i"): ["a", "b", "c"]}
    )
    spec = pod(APP, init=[container("i", "3")])
    for mask, ids in ((None, "a"), (0b01, "a"), (0b10, "c")):
        answer = decide(spec, DeviceRequest(DeviceHolder("uid", "c", GPU), 1, mask), made)
        assert isinstance(answer, DeviceChoice)
        assert pick(answer) == (ids,)


def test_9_too_few() -> None:
    made = state(*devices("a", "b"), held={("other", "c"): ["a"]})
    asking = DeviceHolder("asking", "c", GPU)
    made.reserved[asking] = Reservation(DeviceRequest(asking, 1), frozenset("b"))
    answer = decided(made, 2)
    assert answer == Unallocatable(
        f"requested number of devices unavailable for {GPU}. Requested: 2, Available: 0",
        Cause(CauseKind.DEVICES_TAKEN, GPU),
    )
    del made.reserved[asking]
    assert isinstance(decided(made, 1), DeviceChoice)


NUMA = [
    PluginDevice("a0", nodes=(0,)),
    PluginDevice("b1", nodes=(1,)),
    PluginDevice("c1", nodes=(1,)),
    PluginDevice("d"),
]


def test_10_groups() -> None:
    answer = decided(state(*NUMA), 1, mask=0b10)
    assert (answer.aligned, answer.unaligned, answer.anywhere) == ({"b1", "c1"}, {"a0"}, {"d"})
    for mask, made in ((None, state(*NUMA)), (0b10, state(*devices("a", "b")))):
        answer = decided(made, 1, mask=mask)
        assert not answer.aligned
        assert not answer.unaligned
    both = decided(state(PluginDevice("e", nodes=(0, 1))), 1, mask=0b10)
    assert both.aligned == {"e"}


@pytest.mark.parametrize(
    ("number", "preferred", "picked"),
    [
        (1, (), ("b1",)),
        (1, ("c1",), ("c1",)),  # 11
        (1, ("a0", "foreign"), ("b1",)),
        (2, ("d",), ("b1", "c1")),  # as many as there are: no choice
        (3, (), ("a0", "b1", "c1")),  # 12: then others, then those without a node
        (3, ("d",), ("b1", "c1", "d")),
        (4, (), ("a0", "b1", "c1", "d")),
    ],
)
def test_11_12_order(number: int, preferred: tuple[str, ...], picked: tuple[str, ...]) -> None:
    answer = decided(state(*NUMA), number, mask=0b10)
    assert pick(answer, preferred) == picked


@pytest.mark.parametrize(
    ("number", "requests"),
    [(1, ({"b1", "c1"}, set())), (2, None), (3, ({"a0", "b1", "c1", "d"}, {"b1", "c1"}))],
)
def test_requests_for_preferred_devices(number: int, requests: Any) -> None:
    assert decided(state(*NUMA), number, mask=0b10).preferred_request == requests
    assert DeviceChoice(1, frozenset("a"), aligned=frozenset("b")).preferred_request is None, (
        "it has all already"
    )


def test_requests_are_limits_of_plugins_resources_rounded_up() -> None:
    desired: Any = {
        "limits": {GPU: "1500m", "cpu": "2", "other.example/x": "1"},
        "requests": {GPU: "7"},
    }
    assert requests({"name": "c", "resources": desired}, state()) == {GPU: 2}


# -- state ---------------------------------------------------------------------------------------


def test_pods_with_changed_health() -> None:
    made = state(*devices("a", "b"), held={("one", "c"): ["a"], ("two", "c"): ["b"]})
    assert made.listed(GPU, devices("a", "b")) == frozenset()
    assert made.listed(GPU, [PluginDevice("a", "Unhealthy"), PluginDevice("b")]) == {"one"}
    assert made.listed(GPU, [PluginDevice("b")]) == frozenset(), "an id that vanishes is not news"
    assert made.listed(GPU, devices("a", "b")) == {"one"}
    assert made.resources[GPU].unhealthy == frozenset()


def test_a_resource_is_forgotten_five_minutes_after_its_plugin() -> None:
    made = state(*devices("a"), held={("one", "c"): ["a"]})
    made.stopped(GPU, 10.0)
    assert not made.resources[GPU].healthy
    assert made.resources[GPU].unhealthy == {"a"}
    assert made.expires_at() == 10.0 + FORGOTTEN_AFTER_S
    assert made.expire(10.0 + FORGOTTEN_AFTER_S - 1) == ()
    assert made.expire(10.0 + FORGOTTEN_AFTER_S) == (GPU,)
    assert made.concerns(GPU), "somebody has one"
    made.release_others(())
    assert not made.concerns(GPU)


# -- hints ---------------------------------------------------------------------------------------


def hints(made: DeviceState, number: int, name: str | None = "c", spec: Pod | None = None) -> Any:
    requests = spec if spec is not None else pod(container("c"))
    found = device_hints(requests, name, {GPU: number}, made, (0, 1))[GPU]
    return None if found is None else [(hint.mask, hint.preferred) for hint in found]


def test_hints() -> None:
    assert hints(state(*devices("a")), 1) is None, "no topology, no preference"
    assert hints(DeviceState(), 1) is None, "not known"
    near = state(PluginDevice("a", nodes=(0,)))
    assert hints(near, 1) == [(1, True)], "a node without any is not among them"
    assert hints(near, 0) == [(1, True)]
    far = state(PluginDevice("a", nodes=(7,)))
    assert hints(far, 1) == []
    assert hints(far, 0) == [(1, True), (2, True), (3, False)]
    assert hints(state(*NUMA, held={("uid", "c"): ["gone"]}), 1) == []
    assert hints(state(*NUMA), 1) == [(1, True), (2, True), (3, False)]
    assert hints(state(*NUMA), 2) == [(2, True), (3, False)]
    assert hints(state(*NUMA), 3) == [(3, True)]
    assert hints(state(*NUMA), 9) == []
    held = state(*NUMA, held={("other", "x"): ["b1"]})
    assert hints(held, 2) == [(3, False)], "one node could hold two, but not now"
    own = state(*NUMA, held={("uid", "c"): ["b1", "c1"]})
    assert hints(own, 2) == [(2, True), (3, False)]
    assert hints(own, 2, None) == [(2, True), (3, False)]
    assert hints(own, 1) == []
    nowhere = state(*NUMA, *devices("x"), held={("uid", "i"): ["x"]})
    assert hints(nowhere, 1, spec=pod(APP, init=[INIT])) == [(1, True), (2, True), (3, False)]
    left = state(*NUMA, held={("uid", "i"): ["a0"]})
    assert hints(left, 1, spec=pod(APP, init=[INIT])) == [(1, True), (3, False)]
