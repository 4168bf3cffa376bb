"""The subresource pods/resize: accepted changes, unchanged fields, refusals and messages."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from kubeletpy.pods.resources import MEMORY_VOLUMES_GATE
from kubeletpy_up.errors import ApiError
from kubeletpy_up.requests import ADMIN
from tests.unit.kubeletpy_up.helpers import bound_pod, make_registry, node

Pod = dict[str, Any]


def needs(requests: str = "", limits: str = "") -> dict[str, Any]:
    made = {}
    for kind, parts in (("requests", requests), ("limits", limits)):
        if parts:
            made[kind] = dict(word.split("=") for word in parts.split())
    return made


def container(name: str, resources: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"name": name, "image": "b:1", "resources": resources, **more}


BURST = needs("cpu=1 memory=1Gi ephemeral-storage=1Gi", "cpu=2 memory=2Gi")
SPEC: dict[str, Any] = {
    "containers": [container("a", BURST), container("b", needs("cpu=1"))],
    "initContainers": [
        container("i", needs("cpu=1")),
        container("s", needs("cpu=1"), restartPolicy="Always"),
    ],
}


def made(**spec: Any) -> tuple[Any, Pod]:
    registry = make_registry()
    room = {"cpu": "64", "memory": "256Gi", "pods": "10"}
    registry.create(ADMIN, "nodes", node(allocatable=room))
    return registry, bound_pod(registry, **{**copy.deepcopy(SPEC), **spec})


def resized(change: Any, **spec: Any) -> list[str]:
    """Replaces a pod through its resize subresource, as ``kubectl edit`` does; returns errors."""
    registry, pod = made(**spec)
    desired = copy.deepcopy(pod)
    change(desired)
    status = desired.pop("was", None)
    if status is not None:
        reported = {**pod, "status": {**pod["status"], **status}}
        registry.update(ADMIN, "pods", reported, "default", name="web", subresource="status")
        desired["metadata"].pop("resourceVersion")
    try:
        registry.update(ADMIN, "pods", desired, "default", name="web", subresource="resize")
    except ApiError as error:
        assert error.code == 422
        return [f"{cause['field']}: {cause['message']}" for cause in error.details["causes"]]
    return []


def give(resources: dict[str, Any], which: str = "containers", index: int = 0) -> Any:
    return lambda p: p["spec"][which][index].update(resources=resources)


def change(path: str, index: int, **fields: Any) -> Any:
    return lambda p: p["spec"][path][index].update(**fields)


ONLY = "spec: Forbidden: only cpu and memory resources are mutable"


@pytest.mark.parametrize(
    ("act", "expected"),
    [
        (give({**BURST, **needs("cpu=2 memory=2Gi ephemeral-storage=1Gi")}), []),
        (give(needs("cpu=1m memory=1 ephemeral-storage=1024Mi", "cpu=2m memory=2")), []),
        (give(needs("cpu=1 memory=1Gi"), index=1), []),
        (give(needs("cpu=2"), "initContainers", 0), []),
        (give(needs("cpu=2"), "initContainers", 1), []),
        (
            give(needs("cpu=1 memory=1Gi ephemeral-storage=2Gi", "cpu=2 memory=2Gi")),
            [ONLY],
        ),
        (
            give(needs("cpu=1 memory=1Gi ephemeral-storage=1Gi", "cpu=2")),
            [
                "spec.containers[0].resources.limits: Forbidden: resource limits cannot be removed",
            ],
        ),
        (
            give({}, index=1),
            [
                "spec.containers[1].resources.requests: Forbidden: resource requests cannot be "
                "removed"
            ],
        ),
        (
            give(needs("cpu=3 memory=1Gi ephemeral-storage=1Gi", "cpu=2 memory=2Gi")),
            [
                'spec.containers[0].resources.requests: Invalid value: "3": must be less than or '
                "equal to cpu limit of 2"
            ],
        ),
        (change("containers", 0, image="other"), []),
        (lambda p: p["metadata"].update(labels={"x": "y"}), []),
        (lambda p: p["spec"].update(hostname="x"), []),
        (
            change(
                "containers",
                0,
                resizePolicy=[{"resourceName": "cpu", "restartPolicy": "NotRequired"}],
            ),
            [ONLY],
        ),
        (
            lambda p: p["spec"]["containers"].pop(),
            ["spec.containers: Forbidden: containers may not be added or removed on resize"],
        ),
        (
            lambda p: p["spec"]["containers"].reverse(),
            [
                "spec.containers[0].name: Forbidden: containers may not be renamed or reordered on "
                "resize",
                "spec.containers[1].name: Forbidden: containers may not be renamed or reordered on "
                "resize",
            ],
        ),
    ],
)
def test_changes_that_a_resize_may_make(act: Any, expected: list[str]) -> None:
    assert resized(act) == expected


def test_other_fields_are_not_changed() -> None:
    registry, pod = made()
    desired = copy.deepcopy(pod)
    desired["spec"]["containers"][0].update(
        image="other", resources={**BURST, **needs("cpu=2 memory=1Gi ephemeral-storage=1Gi")}
    )
    desired["metadata"]["labels"] = {"x": "y"}
    desired["status"] = {"phase": "Failed"}
    after = registry.update(ADMIN, "pods", desired, "default", name="web", subresource="resize")
    expected = copy.deepcopy(pod)
    expected["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "2"
    expected["metadata"]["generation"] = pod["metadata"]["generation"] + 1
    for obj in (after, expected):
        obj["metadata"].pop("resourceVersion")
        obj["metadata"].pop("managedFields", None)
    assert after == expected


def test_the_qos_class_may_not_change() -> None:
    full = needs("cpu=1 memory=1Gi", "cpu=1 memory=1Gi")
    text = "Pod QOS Class may not change as a result of resizing"
    only = {"containers": [container("a", full)], "initContainers": []}
    assert resized(give(needs("cpu=2 memory=1Gi", "cpu=2 memory=1Gi")), **only) == []
    assert resized(give(needs("cpu=1 memory=1Gi", "cpu=2 memory=1Gi")), **only) == [
        f'spec: Invalid value: "Guaranteed": {text}'
    ]
    nothing = {"containers": [container("a", {})], "initContainers": []}
    assert resized(give(needs("cpu=1")), **nothing) == [
        f'spec: Invalid value: "BestEffort": {text}'
    ]


def test_a_limit_alone_sets_its_request() -> None:
    registry, _ = made()
    patch = {"spec": {"containers": [{"name": "b", "resources": {"limits": {"memory": "1Gi"}}}]}}
    after = registry.patch(ADMIN, "pods", "web", patch, "default", subresource="resize")
    assert after["spec"]["containers"][1]["resources"] == needs("cpu=1 memory=1Gi", "memory=1Gi")


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (needs("cpu=2"), needs("cpu=3"), []),
        (None, needs("cpu=3"), []),
        (needs("cpu=2"), None, []),
        (needs("cpu=2 memory=2Gi"), needs("cpu=2"), []),
        (
            needs("cpu=2", "cpu=4"),
            needs("cpu=2"),
            ["spec.resources.limits: Forbidden: pod-level resource limits cannot be removed"],
        ),
    ],
)
def test_pod_level_resources(before: Any, after: Any, expected: list[str]) -> None:
    def act(p: Pod) -> None:
        p["spec"].pop("resources", None)
        if after is not None:
            p["spec"]["resources"] = after

    plain = {"containers": [container("a", needs("cpu=1 memory=1Gi"))], "initContainers": []}
    level = {} if before is None else {"resources": before}
    assert resized(act, **plain, **level) == expected


def test_a_node_that_shows_no_resources_can_not_resize() -> None:
    def act(p: Pod) -> None:
        give(needs("cpu=2"), index=1)(p)
        p["was"] = {"containerStatuses": [{"name": "a", "state": {"running": {}}}]}

    assert resized(act) == [
        "spec: Forbidden: Pod running on node without support for resize",
    ]


def test_an_init_container_that_would_have_to_restart_can_not_be_resized() -> None:
    policy = [{"resourceName": "cpu", "restartPolicy": "RestartContainer"}]
    inits = [
        container("i", needs("cpu=1"), resizePolicy=policy),
        container("s", needs("cpu=1"), resizePolicy=policy, restartPolicy="Always"),
    ]
    assert resized(give(needs("cpu=2"), "initContainers", 1), initContainers=inits) == []
    assert resized(give(needs("cpu=2"), "initContainers", 0), initContainers=inits) == [
        "spec.initContainers[0]: Forbidden: non-sidecar init containers with a resize policy of "
        "RestartContainer cannot be resized"
    ]


def test_mirrors_and_windows_are_not_resized() -> None:
    assert resized(give(needs("cpu=2"), index=1), os={"name": "windows"}) == [
        ": Forbidden: windows pods cannot be resized"
    ]


def in_memory(size: str | None = "1Mi", name: str = "v", medium: str = "Memory") -> dict[str, Any]:
    source = {"medium": medium, **({} if size is None else {"sizeLimit": size})}
    return {"name": name, "emptyDir": source}


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ([in_memory()], [in_memory("2Mi")], ""),
        ([in_memory()], [], "spec.volumes: volumes may not be added or removed on resize"),
        (
            [in_memory()],
            [in_memory(name="w")],
            "spec.volumes[0].name: volumes may not be renamed or reordered on resize",
        ),
        (
            [in_memory()],
            [in_memory(medium="")],
            "spec.volumes[0]: only sizeLimit of memory-backed emptyDir volumes is mutable on "
            "resize",
        ),
        (
            [in_memory()],
            [in_memory(None)],
            "spec.volumes[0].emptyDir.sizeLimit: adding or removing sizeLimit on an existing "
            "volume is not allowed",
        ),
        (
            [in_memory(medium="")],
            [in_memory("2Mi", medium="")],
            "spec.volumes[0].emptyDir.sizeLimit: sizeLimit is only mutable for memory-backed "
            "emptyDir volumes",
        ),
    ],
)
@pytest.mark.parametrize("gate", [False, True])
def test_only_sizes_of_volumes_in_memory_change_and_only_with_the_gate(
    gate: bool, old: list[Pod], new: list[Pod], problem: str
) -> None:
    registry, pod = made(volumes=old)
    registry.feature_gates = frozenset([MEMORY_VOLUMES_GATE] if gate else [])
    desired = copy.deepcopy(pod)
    desired["spec"]["volumes"] = new
    try:
        stored = registry.update(
            ADMIN, "pods", desired, "default", name="web", subresource="resize"
        )
    except ApiError as error:
        found = [f"{cause['field']}: {cause['message']}" for cause in error.details["causes"]]
        assert found == [problem.replace(": ", ": Forbidden: ", 1)]
        assert gate
    else:
        assert not (gate and problem)
        assert stored["spec"]["volumes"] == (new if gate else pod["spec"]["volumes"])
