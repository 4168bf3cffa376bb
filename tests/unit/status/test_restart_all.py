"""The status of containers that the agent removed to restart all containers of a pod."""

from __future__ import annotations

from typing import Any

import pytest

from kubeletpy.base.api import types as api
from kubeletpy.pods.pod import Pod
from kubeletpy.status.generate import generate_api_pod_status

from .samples import inputs, pod, record, runtime

RULE = {"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [42]}}
ASKS: dict[str, Any] = {"name": "asks", "restartPolicyRules": [RULE]}


def whole(status: str = "True", **states: Any) -> api.PodStatus:
    """The status reported while all containers were being removed."""
    reported: list[Any] = [
        {"name": name, "restartCount": 0, "state": state, "lastState": {}}
        for name, state in states.items()
    ]
    return {
        "phase": "Running",
        "conditions": [{"type": "AllContainersRestarting", "status": status}],
        "containerStatuses": [each for each in reported if each["name"] != "side"],
        "initContainerStatuses": [each for each in reported if each["name"] == "side"],
    }


def with_sidecar() -> Pod:
    side = {**ASKS, "name": "side", "restartPolicy": "Always"}
    return pod("other", init=[side], restartPolicy="Never")


ENDED = {"terminated": {"exitCode": 42, "reason": "Error"}}
RUNS: dict[str, Any] = {"running": {}}


def test_a_pod_all_of_whose_containers_were_removed_to_start_again_has_not_failed() -> None:
    old = whole(side=ENDED, other=RUNS)
    status = generate_api_pod_status(inputs(with_sidecar(), runtime(), old=old))
    assert status["phase"] not in ("Failed", "Succeeded")
    (other,) = status["containerStatuses"]
    assert other["state"]["waiting"]["reason"] == "RestartingAllContainers"
    assert other["lastState"]["terminated"]["reason"] == "RestartingAllContainers"
    assert other["restartCount"] == 1


def test_the_exit_that_caused_the_restart_is_kept() -> None:
    old = whole(asks=ENDED, other=RUNS)
    of = pod({**ASKS, "restartPolicy": "Never"}, "other", restartPolicy="Never")
    status = generate_api_pod_status(inputs(of, runtime(), old=old))
    asks = next(each for each in status["containerStatuses"] if each["name"] == "asks")
    assert asks["state"]["waiting"]["reason"] == "RestartingAllContainers"
    assert asks["lastState"]["terminated"]["exitCode"] == 42
    assert asks["restartCount"] == 1
    notified = {each["type"]: each["status"] for each in status["conditions"]}
    assert notified["AllContainersRestarting"] == "False"
    # the next status, still with nothing started, counts nothing twice
    again = generate_api_pod_status(inputs(of, runtime(), old=status))
    assert [each["restartCount"] for each in again["containerStatuses"]] == [1, 1]
    assert again["phase"] not in ("Failed", "Succeeded")


@pytest.mark.parametrize("notified", ["False", "Unknown"])
def test_containers_lost_without_a_restart_of_all_are_reported_as_lost(notified: str) -> None:
    old = whole(notified, side=RUNS, other=RUNS)
    status = generate_api_pod_status(inputs(with_sidecar(), runtime(), old=old))
    (other,) = status["containerStatuses"]
    assert other["lastState"]["terminated"]["reason"] == "ContainerStatusUnknown"


def test_a_container_that_has_started_since_is_reported_as_running() -> None:
    old = whole(side=ENDED, other=RUNS)
    has = runtime(record("side", attempt=1))
    status = generate_api_pod_status(inputs(with_sidecar(), has, old=old))
    (other,), (side,) = status["containerStatuses"], status["initContainerStatuses"]
    assert other["state"]["waiting"]["reason"] == "RestartingAllContainers"
    assert "running" in side["state"]
    assert (side["restartCount"], side["lastState"]["terminated"]["exitCode"]) == (1, 42)
    assert status["phase"] not in ("Failed", "Succeeded")
