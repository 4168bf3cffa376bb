"""How large a pod may be while it is resized (docs/reference/behaviour.md, c10; KEP-1287)."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from kubeletpy.pods.pod import Pod
from kubeletpy.pods.resources import requests_in_force
from tests.unit.runtime_manager.pods_and_records import container, make_pod, sidecar

INFEASIBLE = {"type": "PodResizePending", "reason": "Infeasible"}


def sized(requests: dict[str, str] | None) -> dict[str, Any]:
    return {} if requests is None else {"resources": {"requests": requests}}


def status(
    name: str, actual: dict[str, str] | None, allocated: dict[str, str] | None = None
) -> dict[str, Any]:
    reported: dict[str, Any] = {"name": name}
    if actual is not None:
        reported["resources"] = {"requests": actual}
    if allocated is not None:
        reported["allocatedResources"] = allocated
    return reported


def with_status(pod: Pod, **of: Any) -> Pod:
    return Pod({**pod.object, "status": of})  # type: ignore[typeddict-item]


def amounts(**of: int) -> dict[str, Decimal]:
    return {name.replace("_", "/"): Decimal(amount) for name, amount in of.items()}


@pytest.mark.parametrize(
    ("requested", "reported", "conditions", "expected"),
    [
        # the greatest of the requested, allocated and actual amounts
        ({"cpu": "1"}, status("app", {"cpu": "2"}, {"cpu": "3"}), [], {"cpu": 3}),
        ({"cpu": "1"}, status("app", {"cpu": "2"}, {"cpu": "1"}), [], {"cpu": 2}),
        ({"cpu": "4"}, status("app", {"cpu": "2"}, {"cpu": "3"}), [], {"cpu": 4}),
        ({"cpu": "1"}, status("app", {"cpu": "1000m"}), [], {"cpu": 1}),
        ({}, status("app", {"cpu": "1", "memory": "0"}), [], {"cpu": 1, "memory": 0}),
        (None, status("app", {"cpu": "1"}), [], {"cpu": 1}),
        (None, status("app", {}), [], {}),
        (
            {"cpu": "1", "memory": "9"},
            status("app", {"cpu": "2", "memory": "5"}),
            [],
            {"cpu": 2, "memory": 9},
        ),
        # only cpu and memory can be resized
        ({"x/gpu": "1"}, status("app", {"x/gpu": "2"}), [], {"x_gpu": 1}),
        # requests that an infeasible resize raised do not count, other resources do
        (
            {"cpu": "4", "x/gpu": "1"},
            status("app", {"cpu": "2"}, {"cpu": "1"}),
            [INFEASIBLE],
            {"cpu": 2, "x_gpu": 1},
        ),
        (
            {"cpu": "4"},
            status("app", {"cpu": "2"}),
            [{**INFEASIBLE, "reason": "Deferred"}, {**INFEASIBLE, "type": "Other"}],
            {"cpu": 4},
        ),
        # what is allocated is in effect as far as is known
        ({"cpu": "1"}, status("app", None, {"cpu": "3"}), [], {"cpu": 3}),
        # its actual resources are unknown
        ({"cpu": "1"}, status("other", {"cpu": "3"}), [], {"cpu": 1}),
        ({"cpu": "1"}, status("other", {"cpu": "3"}), [INFEASIBLE], {"cpu": 1}),
    ],
)
def test_a_container(
    requested: dict[str, str] | None, reported: Any, conditions: list[Any], expected: dict[str, int]
) -> None:
    pod = make_pod(container("app", **sized(requested)))
    supplied = with_status(pod, containerStatuses=[reported], conditions=conditions)
    assert requests_in_force(supplied) == amounts(**expected)


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        # the second gets what the first gives up: neither sum is larger than 3
        (status("a", {"cpu": "2"}, {"cpu": "1"}), status("b", {"cpu": "1"}, {"cpu": "2"}), 3),
        # both shrink, but the runtime has not applied it yet
        (status("a", {"cpu": "2"}, {"cpu": "1"}), status("b", {"cpu": "4"}, {"cpu": "2"}), 6),
    ],
)
def test_sums_of_containers_are_compared(first: Any, second: Any, expected: int) -> None:
    pod = make_pod(container("a", **sized({"cpu": "1"})), container("b", **sized({"cpu": "2"})))
    supplied = with_status(pod, containerStatuses=[first, second])
    assert requests_in_force(supplied) == amounts(cpu=expected)


def test_statuses_belong_to_init_containers_or_to_others() -> None:
    pod = make_pod(
        container("app", **sized({"cpu": "1"})),
        init=[container("first", **sized({"cpu": "1"})), sidecar("side", **sized({"cpu": "1"}))],
    )
    supplied = with_status(
        pod,
        containerStatuses=[status("app", {"cpu": "1"}), status("side", {"cpu": "9"})],
        initContainerStatuses=[status("first", {"cpu": "2"}), status("side", {"cpu": "3"})],
    )
    assert requests_in_force(supplied) == amounts(cpu=4)
    larger = [status("first", {"cpu": "5"}), status("side", {"cpu": "3"})]
    assert requests_in_force(with_status(pod, initContainerStatuses=larger)) == amounts(cpu=5)


@pytest.mark.parametrize(
    ("requested", "reported", "allocated", "expected"),
    [
        ({"cpu": "1"}, {"requests": {"cpu": "2"}}, None, {"cpu": 2}),
        ({"cpu": "1"}, {"requests": {"cpu": "2"}}, {"cpu": "3"}, {"cpu": 3}),
        ({"cpu": "1"}, {"limits": {}}, {"cpu": "3"}, {"cpu": 3}),
        ({"cpu": "1"}, {"requests": {"memory": "2"}}, None, {"cpu": 1}),
        ({"cpu": "1"}, None, {"cpu": "3"}, {"cpu": 1}),
        ({}, {"requests": {"cpu": "2"}}, None, {}),
    ],
)
def test_pod_level_resources(
    requested: dict[str, str], reported: Any, allocated: Any, expected: dict[str, int]
) -> None:
    pod = make_pod("app", resources={"requests": requested, "limits": {"cpu": "8"}})
    of = {"containerStatuses": [status("app", None)], "resources": reported}
    supplied = with_status(pod, **of, allocatedResources=allocated)
    assert requests_in_force(supplied) == amounts(**expected)
