"""Properties of a pod."""

from __future__ import annotations

import re
from typing import Any

import pytest

from kubeletpy.pods import pod as pods
from kubeletpy.pods.pod import ContainerKind, MalformedPod, Pod

META = {"name": "p", "namespace": "d", "uid": "u"}
SPEC = {"containers": [{"name": "a"}]}
NO_TEXT = "is missing or not a string"


def make(spec: Any = None, **metadata: Any) -> Pod:
    full: Any = {"containers": [{"name": "a"}], **(spec or {})}
    return Pod({"metadata": {**META, **metadata}, "spec": full})  # type: ignore[typeddict-item]


@pytest.mark.parametrize(
    ("supplied", "of_spec", "of_deletion"),
    [(None, 30, None), (0, 0, 0), (5, 5, 5), (2**40, pods.MAX_GRACE_S, pods.MAX_GRACE_S)],
)
def test_grace_periods(supplied: int | None, of_spec: int, of_deletion: int | None) -> None:
    of = make({"terminationGracePeriodSeconds": supplied}, deletionGracePeriodSeconds=supplied)
    assert of.termination_grace_period == of_spec
    assert of.deletion_grace_period == of_deletion
    assert pods.MAX_GRACE_S == 2**31 - 1


@pytest.mark.parametrize(
    ("mirror", "own", "reported"),
    [
        ({pods.CONFIG_MIRROR: "h"}, {pods.CONFIG_HASH: "h"}, True),
        ({pods.CONFIG_MIRROR: "g"}, {pods.CONFIG_HASH: "h"}, False),
        ({pods.CONFIG_MIRROR: "u"}, {}, True),
        ({}, {}, False),
    ],
)
def test_whose_mirror_it_is(mirror: Any, own: Any, reported: bool) -> None:
    assert make(annotations=own).is_reported_by(make(annotations=mirror)) is reported


@pytest.mark.parametrize(
    ("phase", "terminal"),
    [("Succeeded", True), ("Failed", True), ("Running", False), ("", False), (None, False)],
)
def test_terminal_phases(phase: str | None, terminal: bool) -> None:
    body: Any = {"metadata": META, "spec": {"containers": [{"name": "a"}]}}
    if phase is not None:
        body["status"] = {"phase": phase}
    of = Pod(body)
    assert of.is_terminal_in_api is terminal
    assert of.phase == (phase or "")


def test_containers_by_name() -> None:
    of = make({"initContainers": [{"name": "i"}], "ephemeralContainers": [{"name": "e"}]})
    found = {name: of.find_container(name) for name in ("i", "a", "e", "x")}
    assert found == {
        "i": (ContainerKind.INIT, {"name": "i"}),
        "a": (ContainerKind.REGULAR, {"name": "a"}),
        "e": (ContainerKind.EPHEMERAL, {"name": "e"}),
        "x": None,
    }


def test_pods_with_equal_content_are_equal() -> None:
    assert make() == make()
    assert make() != make({"hostNetwork": True})
    assert make() != "p"


@pytest.mark.parametrize("deleted", [True, False])
def test_deletion_and_the_host(deleted: bool) -> None:
    of = make({"hostNetwork": deleted}, **({"deletionTimestamp": "x"} if deleted else {}))
    assert (of.being_deleted, of.host_network) == (deleted, deleted)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"metadata": META, "spec": {"containers": []}}, "pod d/p: spec.containers is empty"),
        ({"metadata": META, "spec": {"containers": {}}}, "spec.containers is not a list"),
        ({"metadata": META, "spec": {"containers": ["a"]}}, "spec.containers[0] has no name"),
        (
            {"metadata": META, "spec": {"containers": [{"name": "a"}, {}]}},
            "spec.containers[1] has no name",
        ),
        (
            {"metadata": META, "spec": {"containers": [{"name": "a"}], "initContainers": {}}},
            "spec.initContainers is not a list",
        ),
        ({"metadata": META}, "spec is missing or not an object"),
        ({"metadata": [], "spec": SPEC}, "metadata is missing or not an object"),
        ({"metadata": {**META, "name": 1}, "spec": SPEC}, f"metadata.name {NO_TEXT}"),
        ({"metadata": {**META, "name": ""}, "spec": SPEC}, f"metadata.name {NO_TEXT}"),
        ({"metadata": {**META, "uid": 5}, "spec": SPEC}, f"metadata.uid {NO_TEXT}"),
        ([], "metadata is missing or not an object"),
        ("pod", "metadata is missing or not an object"),
    ],
)
def test_malformed_pods_are_refused(body: Any, message: str) -> None:
    with pytest.raises(MalformedPod, match=f"^{re.escape(message)}$"):
        Pod(body)


def test_null_lists_are_empty() -> None:
    of = make({"initContainers": None, "ephemeralContainers": None})
    assert (of.init_containers, of.ephemeral_containers) == ([], [])


def test_absent_fields_have_defaults() -> None:
    bare = make()
    assert (bare.generation, bare.restart_policy, bare.labels, bare.annotations) == (
        0,
        "Always",
        {},
        {},
    )
    assert (make(generation=3).generation, make({"restartPolicy": "Never"}).restart_policy) == (
        3,
        "Never",
    )


def test_priority() -> None:
    assert [make({"priority": supplied}).priority for supplied in (None, 0, -5, 7)] == [0, 0, -5, 7]
    assert make().priority == 0
