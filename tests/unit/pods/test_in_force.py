"""How large a pod may be while it is resized (docs/reference/behaviour.md, l; KEP-1287)."""

from __future__ import annotations

from typing import Any

import pytest

from kubeletpy.pods.in_force import in_force
from kubeletpy.pods.pod import Pod
from tests.unit.runtime_manager.pods_and_records import container, make_pod, sidecar

INFEASIBLE = {"type": "PodResizePending", "reason": "Infeasible"}


def sized(requests: dict[str, str] | None) -> dict[str, Any]:
    return {} if requests is None else {"resources": {"requests": requests}}


def status(
    name: str, actual: dict[str, str] | None, allocated: dict[str, str] | None = None
) -> dict[str, Any]:
    shown: dict[str, Any] = {"name": name}
    if actual is not None:
        shown["resources"] = {"requests": actual}
    if allocated is not None:
        shown["allocatedResources"] = allocated
    return shown


def with_status(pod: Pod, **of: Any) -> Pod:
    return Pod({**pod.object, "status": of})  # type: ignore[typeddict-item]


@pytest.mark.parametrize(
    ("asked", "shown", "conditions", "expected"),
    [
        # the greatest of what is asked for, allocated and there
        ({"cpu": "1"}, status("app", {"cpu": "2"}, {"cpu": "3"}), [], {"cpu": "3"}),
        ({"cpu": "1"}, status("app", {"cpu": "2"}, {"cpu": "1"}), [], {"cpu": "2"}),
        ({"cpu": "4"}, status("app", {"cpu": "2"}, {"cpu": "3"}), [], {"cpu": "4"}),
        ({"cpu": "1"}, status("app", {"cpu": "1000m"}), [], {"cpu": "1"}),
        ({}, status("app", {"cpu": "1", "memory": "0"}), [], {"cpu": "1"}),
        (None, status("app", {"cpu": "1"}), [], {"cpu": "1"}),
        (None, status("app", {}), [], None),
        (
            {"cpu": "1", "memory": "9"},
            status("app", {"cpu": "2", "memory": "5"}),
            [],
            {"cpu": "2", "memory": "9"},
        ),
        # only cpu and memory can be resized
        ({"x/gpu": "1"}, status("app", {"x/gpu": "2"}), [], {"x/gpu": "1"}),
        # what is asked for in vain does not count, other resources do
        (
            {"cpu": "4", "x/gpu": "1"},
            status("app", {"cpu": "2"}, {"cpu": "1"}),
            [INFEASIBLE],
            {"cpu": "2", "x/gpu": "1"},
        ),
        (
            {"cpu": "4"},
            status("app", {"cpu": "2"}),
            [{**INFEASIBLE, "reason": "Deferred"}, {**INFEASIBLE, "type": "Other"}],
            {"cpu": "4"},
        ),
        # nothing is known of what it has
        ({"cpu": "1"}, status("app", None, {"cpu": "3"}), [], {"cpu": "1"}),
        ({"cpu": "1"}, status("other", {"cpu": "3"}), [], {"cpu": "1"}),
    ],
)
def test_a_container(
    asked: dict[str, str] | None,
    shown: Any,
    conditions: list[Any],
    expected: dict[str, str] | None,
) -> None:
    pod = make_pod(container("app", **sized(asked)))
    found = in_force(with_status(pod, containerStatuses=[shown], conditions=conditions))
    assert (found.containers[0].get("resources") or {}).get("requests") == expected


def test_init_containers_are_as_they_ask_and_sidecars_may_be_larger() -> None:
    pod = make_pod(
        container("app", **sized({"cpu": "1"})),
        init=[container("first", **sized({"cpu": "1"})), sidecar("side", **sized({"cpu": "1"}))],
    )
    found = in_force(
        with_status(
            pod,
            containerStatuses=[status("app", {"cpu": "1"}), status("side", {"cpu": "9"})],
            initContainerStatuses=[status("first", {"cpu": "5"}), status("side", {"cpu": "3"})],
        )
    )
    of = {c["name"]: c["resources"]["requests"]["cpu"] for c in found.init_containers}
    assert of == {"first": "1", "side": "3"}


@pytest.mark.parametrize(
    ("asked", "shown", "allocated", "expected"),
    [
        ({"cpu": "1"}, {"requests": {"cpu": "2"}}, None, {"cpu": "2"}),
        ({"cpu": "1"}, {"requests": {"cpu": "2"}}, {"cpu": "3"}, {"cpu": "3"}),
        ({"cpu": "1"}, {"limits": {}}, {"cpu": "3"}, {"cpu": "3"}),
        ({"cpu": "1"}, None, {"cpu": "3"}, {"cpu": "1"}),
        ({}, {"requests": {"cpu": "2"}}, None, {}),
    ],
)
def test_the_resources_of_a_pod_as_a_whole(
    asked: dict[str, str], shown: Any, allocated: Any, expected: dict[str, str]
) -> None:
    pod = make_pod("app", resources={"requests": asked, "limits": {"cpu": "8"}})
    of = {"containerStatuses": [status("app", None)], "resources": shown}
    found = in_force(with_status(pod, **of, allocatedResources=allocated))
    assert found.spec["resources"] == {"requests": expected, "limits": {"cpu": "8"}}


def test_the_pod_itself_when_nothing_is_larger() -> None:
    plain = make_pod(container("app", **sized({"cpu": "2"})))
    assert in_force(plain) is plain
    shown = with_status(plain, containerStatuses=[status("app", {"cpu": "1"})])
    assert in_force(shown) is shown
    whole = make_pod("app", resources={"requests": {"cpu": "2"}})
    reported = with_status(whole, resources={"requests": {"cpu": "1"}})
    assert in_force(reported) is reported
