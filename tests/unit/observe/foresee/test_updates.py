"""The API server's treatment of a change, for each field."""

from __future__ import annotations

from typing import Any

import pytest

from kubeletpy.observe.foresee.change import Change, ChangeMethod, changes
from kubeletpy.pods.pod import Pod

BASE: dict[str, Any] = {
    "containers": [
        {"name": "a", "image": "a:1", "resources": {"requests": {"cpu": "1"}}},
        {"name": "b", "image": "b:1"},
    ],
    "initContainers": [{"name": "i", "image": "i:1"}],
    "tolerations": [{"key": "k", "operator": "Exists", "tolerationSeconds": 5}],
}


def spec(**more: Any) -> Pod:
    made: Any = {"metadata": {"name": "p", "namespace": "d", "uid": "u"}, "spec": {**BASE, **more}}
    return Pod(made)


def a(**more: Any) -> dict[str, Any]:
    return {"containers": [{**BASE["containers"][0], **more}, BASE["containers"][1]]}


IMAGE = Change("containers[a].image", ChangeMethod.UPDATE)
CPU = "containers[a].resources.requests.cpu"


@pytest.mark.parametrize(
    ("after", "found"),
    [
        ({}, []),
        (a(image="a:2"), [IMAGE]),
        (
            {"initContainers": [{"name": "i", "image": "i:2"}]},
            [Change("initContainers[i].image", ChangeMethod.UPDATE)],
        ),
        (a(command=["x"]), [Change("containers[a].command", ChangeMethod.NEVER)]),
        (a(image="a:2", tty=True), [IMAGE, Change("containers[a].tty", ChangeMethod.NEVER)]),
        (a(resources={"requests": {"cpu": "2"}}), [Change(CPU, ChangeMethod.RESIZE)]),
        (a(resources={}), [Change(CPU, ChangeMethod.RESIZE)]),
        (
            a(resources={"requests": {"cpu": "1"}, "limits": {"memory": "1Gi"}}),
            [Change("containers[a].resources.limits.memory", ChangeMethod.RESIZE)],
        ),
        (
            a(resources={"requests": {"cpu": "1", "example.org/gpu": "1"}}),
            [Change("containers[a].resources.requests.example.org/gpu", ChangeMethod.NEVER)],
        ),
        (a(resizePolicy=[{}]), [Change("containers[a].resizePolicy", ChangeMethod.RESIZE)]),
        (
            {"resources": {"requests": {"memory": "1Gi"}}},
            [Change("resources.requests.memory", ChangeMethod.RESIZE)],
        ),
        ({"containers": BASE["containers"][:1]}, [Change("containers[b]", ChangeMethod.NEVER)]),
        ({"containers": BASE["containers"][::-1]}, [Change("containers", ChangeMethod.NEVER)]),
        (
            {"containers": [*BASE["containers"], {"name": "c"}]},
            [Change("containers[c]", ChangeMethod.NEVER)],
        ),
        (
            {"ephemeralContainers": [{"name": "e"}]},
            [Change("ephemeralContainers[e]", ChangeMethod.DEBUG)],
        ),
        ({"hostNetwork": True}, [Change("hostNetwork", ChangeMethod.NEVER)]),
        ({"activeDeadlineSeconds": 5}, [Change("activeDeadlineSeconds", ChangeMethod.UPDATE)]),
        (
            {"terminationGracePeriodSeconds": 1},
            [Change("terminationGracePeriodSeconds", ChangeMethod.NEVER)],
        ),
        ({"tolerations": []}, [Change("tolerations", ChangeMethod.NEVER)]),
        (
            {"tolerations": [{"key": "k", "operator": "Exists"}, {"key": "more"}]},
            [Change("tolerations", ChangeMethod.UPDATE)],
        ),
    ],
)
def test_one_change(after: dict[str, Any], found: list[Change]) -> None:
    assert changes(spec(), spec(**after)) == found


@pytest.mark.parametrize(
    ("field", "old", "new", "way"),
    [
        ("activeDeadlineSeconds", 9, 9.5, ChangeMethod.NEVER),
        ("activeDeadlineSeconds", 9, 8, ChangeMethod.UPDATE),
        ("activeDeadlineSeconds", 9, None, ChangeMethod.NEVER),
        ("terminationGracePeriodSeconds", -1, 1, ChangeMethod.UPDATE),
        ("terminationGracePeriodSeconds", -1, 2, ChangeMethod.NEVER),
        ("terminationGracePeriodSeconds", 0, 1, ChangeMethod.NEVER),
        ("terminationGracePeriodSeconds", None, 1, ChangeMethod.NEVER),
        ("tolerations", [{"key": "k"}], [{"key": "l"}], ChangeMethod.NEVER),
        (
            "tolerations",
            [{"key": "k"}],
            [{"key": "k", "tolerationSeconds": 1}],
            ChangeMethod.UPDATE,
        ),
        ("tolerations", None, [{"key": "k"}], ChangeMethod.UPDATE),
        ("tolerations", [{"key": "k"}], None, ChangeMethod.NEVER),
        ("ephemeralContainers", [{"name": "e"}], [], ChangeMethod.NEVER),
    ],
)
def test_values_that_may_change_one_way_only(
    field: str, old: Any, new: Any, way: ChangeMethod
) -> None:
    [found] = changes(spec(**{field: old}), spec(**{field: new}))
    assert (found.path.partition("[")[0], found.way) == (field, way)


def test_labels_and_status_change_nothing_that_runs() -> None:
    labelled: Any = {
        **spec().object,
        "metadata": {"name": "p", "namespace": "d", "uid": "u", "labels": {"a": "b"}},
        "status": {"phase": "Failed"},
    }
    assert changes(spec(), Pod(labelled)) == []


def in_memory(**limits: str) -> dict[str, Any]:
    return {
        "volumes": [
            {"name": name, "emptyDir": {"medium": "Memory", "sizeLimit": limit}}
            for name, limit in limits.items()
        ]
    }


CACHE = Change("volumes[cache].emptyDir.sizeLimit", ChangeMethod.RESIZE)
VOLUMES = Change("volumes", ChangeMethod.NEVER)


@pytest.mark.parametrize(
    ("after", "gate", "found"),
    [
        (in_memory(cache="2Gi", other="1Gi"), True, [CACHE]),
        (in_memory(cache="2Gi", other="1Gi"), False, [VOLUMES]),
        (in_memory(cache="1Gi", other="1Gi"), True, []),
        (in_memory(cache="1Gi"), True, [VOLUMES]),
        (in_memory(cache="2Gi"), True, [CACHE, VOLUMES]),
        (
            {"volumes": [{"name": "cache", "emptyDir": {"sizeLimit": "2Gi"}}]},
            True,
            [VOLUMES],
        ),
    ],
)
def test_limits_of_volumes_in_memory_are_resized_with_the_gate(
    after: dict[str, Any], gate: bool, found: list[Change]
) -> None:
    before = spec(**in_memory(cache="1Gi", other="1Gi"))
    assert changes(before, spec(**after), memory_volumes=gate) == found
