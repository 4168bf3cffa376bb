"""Which parts of a node's status are written, compared with those in the API."""

from __future__ import annotations

from typing import Any

import pytest

from kubeletpy.node.build import is_changes, status_patch

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
        (
            status(),
            WITHOUT_PORT,
            {"daemonEndpoints": None},
        ),
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
