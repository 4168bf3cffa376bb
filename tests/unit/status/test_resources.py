"""The resources a status reports (docs/reference/behaviour.md, e4; KEP-5419)."""

from __future__ import annotations

from typing import Any

import pytest

from kubeletpy.base.api import types as api
from kubeletpy.pods.pod import Pod
from kubeletpy.pods.runtime_status import RuntimeResources
from kubeletpy.status.container_status import reported_resources
from kubeletpy.status.generate import generate_api_pod_status, pod_level_resources
from tests.kit.status import inputs, pod, record, runtime


def reported(spec: Any, enforced: RuntimeResources | None, **facts: Any) -> Any:
    state = facts.pop("state", "running")
    has = record("a", state, resources=enforced)
    return reported_resources(
        {"name": "a", "resources": spec}, has, facts.get("old"), "containerd://a-0",
        facts.get("actuated"),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("requested", "quota", "period", "published"),
    [
        ("1", None, 100000, "1"),
        ("1", 0, 100000, "1"),
        ("1", -1, 100000, "1"),
        ("1", 50000, 0, "1"),
        ("1", 50000, None, "1"),
        ("1", 1, 1000, "1m"),
        ("1", 150000, 100000, "1500m"),
        ("1", 300000, 100000, "3"),
        ("500m", 50100, 100000, "500m"),
        ("500m", 49900, 100000, "500m"),
        ("500m", 50200, 100000, "502m"),
        ("500m", 49800, 100000, "498m"),
        # the smallest quota of the kernel
        ("5m", 1000, 100000, "5m"),
        ("10m", 500, 100000, "10m"),
        ("5m", 1100, 100000, "11m"),
        ("13m", 1000, 100000, "10m"),
    ],
)
def test_cpu_limits(requested: str, quota: int | None, period: int | None, published: str) -> None:
    enforced = RuntimeResources(cpu_quota=quota, cpu_period=period)
    assert reported({"limits": {"cpu": requested}}, enforced)["limits"] == {"cpu": published}


def test_resources_that_the_runtime_does_not_report_are_as_requested() -> None:
    requested: Any = {"limits": {"cpu": "1"}, "requests": {"cpu": "1"}}
    assert reported(requested, None) == requested
    assert (
        reported(requested, None, actuated={"limits": {"cpu": "1"}, "requests": {"cpu": "1"}})
        == requested
    )


@pytest.mark.parametrize(
    ("requested", "shares", "published"),
    [
        ("100m", 102, "100m"),
        ("100m", 103, "100m"),
        ("100m", 205, "201m"),
        ("1", 2048, "2"),
        ("1", None, "1"),
        ("1", 0, "1"),
        ("1", 1, "1"),
        ("1", 2, "2m"),
        ("1m", 2, "1m"),
        ("5m", 3, "3m"),
    ],
)
def test_cpu_requests(requested: str, shares: int | None, published: str) -> None:
    enforced = RuntimeResources(cpu_shares=shares)
    assert reported({"requests": {"cpu": requested}}, enforced)["requests"] == {"cpu": published}


@pytest.mark.parametrize(
    ("spec", "memory", "actuated", "expected"),
    [
        ({"limits": {"memory": "1Gi"}}, 2**30, None, {"limits": {"memory": "1Gi"}}),
        ({"limits": {"memory": "1Gi"}}, 2**20, None, {"limits": {"memory": "1Mi"}}),
        ({"limits": {"memory": "1Gi"}}, 0, None, {"limits": {"memory": "1Gi"}}),
        ({"limits": {"memory": "1Gi"}}, None, None, {"limits": {"memory": "1Gi"}}),
        (
            {"limits": {"memory": "1Gi"}},
            2**20,
            {"limits": {"memory": "1Mi"}},
            {"limits": {"memory": "1Mi"}},
        ),
        (
            {"limits": {"memory": "1Gi"}},
            2**20,
            {"limits": {"memory": "2Mi"}},
            {"limits": {"memory": "1Mi"}},
        ),
        ({"limits": {"cpu": "1"}}, 2**20, None, {"limits": {"cpu": "1"}}),
        (
            {"requests": {"memory": "1Gi"}},
            None,
            {"requests": {"memory": "2Gi"}},
            {"requests": {"memory": "2Gi"}},
        ),
        (
            {"requests": {"cpu": "1"}},
            None,
            {"requests": {"memory": "2Gi"}},
            {"requests": {"cpu": "1"}},
        ),
        ({"claims": [{"name": "c"}]}, 2**20, None, {"claims": [{"name": "c"}]}),
        ({}, None, None, {}),
    ],
)
def test_memory(spec: Any, memory: int | None, actuated: Any, expected: Any) -> None:
    enforced = RuntimeResources(memory_limit_bytes=memory)
    assert reported(spec, enforced, actuated=actuated) == expected


SPEC = {"limits": {"cpu": "1"}, "requests": {"cpu": "1"}}
BEFORE = {"limits": {"cpu": "2"}}


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        ({}, SPEC),
        ({"old": {"containerID": "containerd://a-0", "resources": BEFORE}}, BEFORE),
        ({"old": {"containerID": "containerd://a-0"}}, SPEC),
        ({"old": {"containerID": "containerd://b", "resources": BEFORE}}, SPEC),
        (
            {
                "old": {"containerID": "containerd://a-0", "resources": BEFORE},
                "actuated": {"limits": {"cpu": "3", "memory": "1Gi"}, "requests": {"cpu": "2"}},
            },
            {"limits": {"cpu": "3"}, "requests": {"cpu": "2"}},
        ),
        ({"actuated": {}}, SPEC),
        ({"state": "exited", "actuated": {"limits": {"cpu": "3"}}}, SPEC),
    ],
)
def test_sources_of_resources_that_the_runtime_does_not_report(facts: Any, expected: Any) -> None:
    assert reported(SPEC, None, **facts) == expected


@pytest.mark.parametrize(
    ("spec", "statuses", "supplied", "phase", "expected"),
    [
        ({}, {}, None, "Running", {}),
        (
            {"requests": {"cpu": "1"}},
            {},
            None,
            "Pending",
            {"allocatedResources": {"cpu": "1"}, "resources": {"requests": {"cpu": "1"}}},
        ),
        (
            {"requests": {"cpu": "1"}},
            {"a": {"name": "a", "resources": {"requests": {"cpu": "2"}}}},
            None,
            "Running",
            {"allocatedResources": {"cpu": "1"}, "resources": {"requests": {"cpu": "2"}}},
        ),
        (
            {"of_pod": {"limits": {"cpu": "3"}, "requests": {"cpu": "2"}}},
            {},
            {"limits": {"cpu": "4"}, "requests": {"cpu": "1"}},
            "Running",
            {
                "allocatedResources": {"cpu": "2"},
                "resources": {"limits": {"cpu": "4"}, "requests": {"cpu": "1"}},
            },
        ),
        (
            {"of_pod": {"limits": {"cpu": "3"}, "requests": {"cpu": "2"}}},
            {},
            None,
            "Running",
            {
                "allocatedResources": {"cpu": "2"},
                "resources": {"limits": {"cpu": "3"}, "requests": {"cpu": "2"}},
            },
        ),
        # earlier resources have no meaning for a pod without resources of its own
        (
            {"requests": {"cpu": "1"}},
            {},
            {"requests": {"cpu": "4"}},
            "Running",
            {"allocatedResources": {"cpu": "1"}, "resources": {"requests": {"cpu": "1"}}},
        ),
    ],
)
def test_pod_level_resources_in_a_status(
    spec: Any, statuses: Any, supplied: Any, phase: str, expected: Any
) -> None:
    own = {"resources": spec["of_pod"]} if "of_pod" in spec else {}
    of = pod("a", **own) if own else pod({"name": "a", "resources": spec})
    assert pod_level_resources(of, statuses, supplied, phase) == expected


@pytest.mark.parametrize("phase", ["Pending", "Running"])
@pytest.mark.parametrize(
    ("memory", "published"),
    [
        ("10m", "10m"),  # less than a byte, as a resize of a pod without requests leaves it
        ("1500m", "1500m"),
        ("100M", "100M"),
        ("1024M", "1024M"),  # a multiple of 1024 bytes, written in powers of 1000
        ("1048576", "1048576"),
        ("12e6", "12e6"),
        ("1536Mi", "1536Mi"),
        ("1Gi", "1Gi"),
    ],
)
def test_memory_of_a_pod_keeps_amount_and_format(memory: str, published: str, phase: str) -> None:
    of = pod("c", resources={"requests": {"cpu": "10m", "memory": memory}})
    made = pod_level_resources(of, {}, None, phase)
    assert made["allocatedResources"] == {"cpu": "10m", "memory": published}
    assert made["resources"]["requests"] == {"cpu": "10m", "memory": published}


@pytest.mark.parametrize(
    ("first", "second", "overhead", "total"),
    [
        ("100M", "28Mi", None, "129360128"),
        ("28Mi", "100M", None, "129360128"),
        ("64Mi", "36M", None, "103108864"),
        ("64Mi", "1024k", "1Ki", "66537Ki"),
        ("0", "1Mi", None, "1Mi"),  # a zero has no format
        ("1Mi", "10m", None, "1048576010m"),
        ("10m", "20m", "30m", "60m"),
    ],
)
def test_sums_have_the_format_of_the_first_addend(
    first: str, second: str, overhead: str | None, total: str
) -> None:
    containers = (
        {"name": n, "resources": {"requests": {"memory": m}}}
        for n, m in (("a", first), ("b", second))
    )
    more: Any = {} if overhead is None else {"overhead": {"memory": overhead}}
    published = pod_level_resources(pod(*containers, **more), {}, None, "Pending")
    assert published["allocatedResources"] == {"memory": total}


def test_a_memory_limit_in_force_is_written_in_binary() -> None:
    enforced = RuntimeResources(memory_limit_bytes=96 << 20)
    published = reported({"limits": {"memory": "100M"}}, enforced)
    assert published["limits"] == {"memory": "96Mi"}


# The status of containers that the agent removed to restart all containers of a pod.

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
