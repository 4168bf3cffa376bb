"""What is read off a pod."""

from __future__ import annotations

from typing import Any

import pytest

from kubeletpy.pods import pod as pods
from kubeletpy.pods.pod import ContainerKind, MalformedPod, Pod

META = {"name": "p", "namespace": "d", "uid": "u"}


def make(spec: Any = None, **metadata: Any) -> Pod:
    full: Any = {"containers": [{"name": "a"}], **(spec or {})}
    return Pod({"metadata": {**META, **metadata}, "spec": full})  # type: ignore[typeddict-item]


@pytest.mark.parametrize(
    ("given", "of_spec", "of_deletion"),
    [(None, 30, None), (0, 0, 0), (5, 5, 5), (2**40, pods.MAX_GRACE_S, pods.MAX_GRACE_S)],
)
def test_grace_periods(given: int | None, of_spec: int, of_deletion: int | None) -> None:
    of = make({"terminationGracePeriodSeconds": given}, deletionGracePeriodSeconds=given)
    assert of.termination_grace_period == of_spec
    assert of.deletion_grace_period == of_deletion
    assert pods.MAX_GRACE_S == 2**31 - 1


@pytest.mark.parametrize(
    ("mirror", "own", "shown"),
    [
        ({pods.CONFIG_MIRROR: "h"}, {pods.CONFIG_HASH: "h"}, True),
        ({pods.CONFIG_MIRROR: "g"}, {pods.CONFIG_HASH: "h"}, False),
        ({pods.CONFIG_MIRROR: "u"}, {}, True),
        ({}, {}, False),
    ],
)
def test_whose_mirror_it_is(mirror: Any, own: Any, shown: bool) -> None:
    assert make(annotations=own).is_shown_by(make(annotations=mirror)) is shown


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


def test_pods_are_equal_by_what_they_say() -> None:
    assert make() == make()
    assert make() != make({"hostNetwork": True})
    assert make() != "p"


@pytest.mark.parametrize("deleted", [True, False])
def test_deletion_and_the_host(deleted: bool) -> None:
    of = make({"hostNetwork": deleted}, **({"deletionTimestamp": "x"} if deleted else {}))
    assert (of.being_deleted, of.host_network) == (deleted, deleted)


@pytest.mark.parametrize(
    "body",
    [
        {"metadata": META, "spec": {"containers": []}},
        {"metadata": META, "spec": {"containers": {}}},
        {"metadata": META, "spec": {"containers": ["a"]}},
        {"metadata": META, "spec": {"containers": [{}]}},
        {"metadata": {**META, "name": 1}, "spec": {"containers": [{"name": "a"}]}},
        {"metadata": META},
    ],
)
def test_what_is_no_pod(body: Any) -> None:
    with pytest.raises(MalformedPod):
        Pod(body)


def test_a_list_of_nothing_is_an_empty_one() -> None:
    of = make({"initContainers": None, "ephemeralContainers": None})
    assert (of.init_containers, of.ephemeral_containers) == ([], [])


@pytest.mark.parametrize(
    "body",
    [
        [],
        "pod",
        {"metadata": [], "spec": {"containers": []}},
        {"metadata": {**META, "name": ""}, "spec": {"containers": []}},
        {"metadata": {**META, "uid": 5}, "spec": {"containers": []}},
    ],
)
def test_what_has_not_even_a_name(body: Any) -> None:
    with pytest.raises(MalformedPod):
        Pod(body)


def test_priority() -> None:
    assert [make({"priority": given}).priority for given in (None, 0, -5, 7)] == [0, 0, -5, 7]
    assert make().priority == 0
