"""Which parts of a node's status are written, compared with those in the API."""

from __future__ import annotations

from typing import Any

import pytest

from kubeletpy.node.build import NodeHealth, first_status, is_changes, node_conditions, status_patch

PRESSURES = ("MemoryPressure", "DiskPressure", "PIDPressure")


def condition(kind: str, status: str = "False", **more: str) -> dict[str, str]:
    return {"type": kind, "status": status, "lastTransitionTime": "t", **more}


OWN = [*map(condition, PRESSURES), condition("Ready", "True")]
FOREIGN = condition("KernelDeadlock")
AMOUNTS = {"cpu": "4", "pods": "110"}
STATUS: Any = {
    "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}],
    "capacity": AMOUNTS,
    "allocatable": AMOUNTS,
    "conditions": OWN,
    "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
    "images": [],
    "nodeInfo": {"bootID": "b", "kubeletVersion": "v1"},
}
WITHOUT_PORT: Any = {k: value for k, value in STATUS.items() if k != "daemonEndpoints"}


def status(**changes: Any) -> Any:
    made = {**STATUS, **changes}
    return {name: value for name, value in made.items() if value is not None}


@pytest.mark.parametrize(
    ("reported", "written"),
    [
        (status(), status()),
        # fields that the API leaves out because they are empty
        (status(images=None), status()),
        # fields of other writers
        (status(volumesAttached=[{"name": "v"}], config={"error": "e"}), status()),
        (status(conditions=[*OWN, FOREIGN]), status(conditions=[FOREIGN, *OWN])),
        (
            status(conditions=[condition("Ready", "True", lastHeartbeatTime="1"), *OWN[:3]]),
            status(conditions=[*OWN[:3], condition("Ready", "True", lastHeartbeatTime="2")]),
        ),
        (status(nodeInfo={**STATUS["nodeInfo"], "ofANewerVersion": "x"}), status()),
        # the API shows port 0 where none is published
        (status(daemonEndpoints={"kubeletEndpoint": {"Port": 0}}), WITHOUT_PORT),
    ],
)
def test_no_news(reported: Any, written: Any) -> None:
    assert not is_changes(reported, written)


OTHERS = {"capacity": AMOUNTS, "allocatable": {"cpu": "3", "pods": "20"}}


@pytest.mark.parametrize(
    ("reported", "written", "sent"),
    [
        (
            status(allocatable={"cpu": "3", "gone": "1", "pods": "20"}),
            status(),
            {"allocatable": {**AMOUNTS, "gone": None}},
        ),
        (status(capacity={"cpu": "2"}), status(), {"capacity": AMOUNTS}),
        (
            status(addresses=[{"type": "InternalIP", "address": "10.0.0.9"}]),
            status(),
            {"addresses": [*STATUS["addresses"], {"$patch": "replace"}]},
        ),
        (status(images=[{"sizeBytes": 1}]), status(), {"images": []}),
        (
            status(daemonEndpoints={"kubeletEndpoint": {"Port": 1}}),
            status(),
            {"daemonEndpoints": STATUS["daemonEndpoints"]},
        ),
        # fields that an earlier configuration, runtime or machine had
        (status(features={"supplementalGroupsPolicy": True}), status(), {"features": None}),
        (status(runtimeHandlers=[{"name": "kata"}]), status(), {"runtimeHandlers": None}),
        (status(), WITHOUT_PORT, {"daemonEndpoints": None}),
        (status(declaredFeatures=["A"]), status(), {"declaredFeatures": None}),
        (
            status(declaredFeatures=["A", "B"]),
            status(declaredFeatures=["A"]),
            {"declaredFeatures": ["A"]},
        ),
        (
            status(nodeInfo={**STATUS["nodeInfo"], "swap": {"capacity": 1}}),
            status(),
            {"nodeInfo": {**STATUS["nodeInfo"], "swap": None}},
        ),
        (status(volumesInUse=["v"]), status(volumesInUse=[]), {"volumesInUse": []}),
        (status(volumesInUse=["v"]), status(), None),
        (status(conditions=OWN[:3]), status(), {}),
    ],
)
def test_differences_count_as_news_and_are_sent(reported: Any, written: Any, sent: Any) -> None:
    assert is_changes(reported, written) is (sent is not None)
    patch = status_patch(reported, written, unsure=False)
    assert patch == {**(sent or {}), "conditions": OWN}


def test_a_patch_contains_no_condition_of_others() -> None:
    patch = status_patch(status(), status(conditions=[FOREIGN, *OWN]), unsure=True)
    assert patch["conditions"] == OWN


def test_when_unsure_all_is_sent_but_lists_with_other_writers() -> None:
    written = status(features={"supplementalGroupsPolicy": True}, volumesInUse=["v"])
    patch = status_patch(written, written, unsure=True)
    assert set(patch) == set(written) - {"addresses", "volumesInUse"}


# Whether the first status of a node waits.

SILENT = NodeHealth(runtime_error="not asked", unanswered=("not asked",))
BOTH = NodeHealth(
    runtime_error="not asked", storage_error="no CSINode", unanswered=("not asked", "no CSINode")
)


@pytest.mark.parametrize(
    ("ready", "health", "waited", "period", "wait", "why"),
    [
        ("True", SILENT, 0, 10, 10, "not answered yet: not asked"),
        ("True", BOTH, 4, 10, 6, "not answered yet: not asked"),
        ("True", SILENT, 9.9, 10, 0.1, "not answered yet: not asked"),
        ("True", SILENT, 10, 10, 0, "waited for 10.0 s: not asked"),
        ("True", SILENT, 0, 300, 30, "not answered yet: not asked"),
        ("True", SILENT, 30, 300, 0, "waited for 30.0 s: not asked"),
        ("True", NodeHealth(), 0, 10, 0, "everything has answered"),
        ("True", NodeHealth(runtime_error="down"), 0, 10, 0, "known: down"),
        (
            "True",
            NodeHealth(network_error="no network", storage_error="-", unanswered=("-",)),
            0,
            10,
            0,
            "known: no network",
        ),
        (
            "True",
            NodeHealth(shutting_down=True, storage_error="-", unanswered=("-",)),
            0,
            10,
            0,
            "known: node is shutting down",
        ),
        ("False", SILENT, 0, 10, 0, "the API does not show the node as Ready"),
        ("Unknown", SILENT, 0, 10, 0, "the API does not show the node as Ready"),
        (None, SILENT, 0, 10, 0, "the API does not show the node as Ready"),
    ],
)
def test_it_waits_only_for_components_without_an_answer(
    ready: str | None, health: NodeHealth, waited: float, *, period: float, wait: float, why: str
) -> None:
    conditions: Any = [] if ready is None else [{"type": "Ready", "status": ready}]
    found = first_status({"conditions": conditions}, health, waited, period)
    assert found.wait == pytest.approx(wait)
    assert found.why == why


# The node's conditions.


@pytest.mark.parametrize(
    ("kind", "reason", "message"),
    [
        (
            "MemoryPressure",
            "KubeletHasInsufficientMemory",
            "kubelet has insufficient memory available",
        ),
        ("DiskPressure", "KubeletHasDiskPressure", "kubelet has disk pressure"),
        ("PIDPressure", "KubeletHasInsufficientPID", "kubelet has insufficient PID available"),
    ],
)
def test_a_pressure_is_reported_and_the_node_stays_ready(
    kind: str, reason: str, message: str
) -> None:
    calm = node_conditions((), NodeHealth(), 0.0)
    pressed = node_conditions(calm, NodeHealth(pressures=(kind,)), 60.0)
    assert [each["type"] for each in calm] == [each["type"] for each in pressed]
    by_type = {each["type"]: each for each in pressed}
    assert by_type[kind]["status"] == "True"
    assert (by_type[kind]["reason"], by_type[kind]["message"]) == (reason, message)
    assert by_type[kind]["lastTransitionTime"] == "1970-01-01T00:01:00Z"
    others = {each["status"] for name, each in by_type.items() if name not in (kind, "Ready")}
    assert others == {"False"}
    assert by_type["Ready"]["status"] == "True"
