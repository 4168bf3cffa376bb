"""Resources allocated to a pod, and the pod with an allocation applied."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from kubeletpy.base.api import types as api
from kubeletpy.pods.pod import Pod
from kubeletpy.resources.allocation.conditions import resize_message
from kubeletpy.resources.allocation.resources import (
    PodResources,
    ResourceChange,
    never_resized,
    pod_level_changes,
    reported_resources,
    requested_resources,
    resource_changes,
    same,
    with_resources,
)
from tests.unit.resources.allocation.pods import needs, pod


@pytest.mark.parametrize(
    ("one", "other", "equal"),
    [
        (None, None, True),
        (None, {}, True),
        ({}, needs(), True),
        (needs("cpu=1"), needs("cpu=1000m"), True),
        (needs("memory=1Gi"), needs("memory=1024Mi"), True),
        (needs("memory=1Gi"), needs("memory=1G"), False),
        (needs("cpu=1"), needs("cpu=2"), False),
        (needs("cpu=1"), needs("cpu=1 memory=1"), False),
        (needs("cpu=1"), needs("", "cpu=1"), False),
        (needs("cpu=x"), needs("cpu=y"), False),
    ],
)
def test_resources_are_compared_by_value(
    one: api.ResourceRequirements | None, other: api.ResourceRequirements | None, equal: bool
) -> None:
    assert same(one, other) is equal
    assert same(other, one) is equal


@pytest.mark.parametrize(
    ("supplied", "nothing"),
    [
        (pod(a={}), True),
        (pod(a=needs("ephemeral-storage=1Gi")), True),
        (pod(a={}, b=needs("cpu=1")), False),
        (pod(a=needs("", "memory=1Gi")), False),
        (pod(a={}, init={"i": needs("cpu=1")}), False),
        (pod(a={}, pod_level=needs("cpu=1")), False),
    ],
)
def test_a_pod_without_cpu_and_memory_is_never_resized(supplied: Pod, nothing: bool) -> None:
    assert never_resized(requested_resources(supplied)) is nothing


def test_a_pod_that_has_its_requests_is_not_copied() -> None:
    desired = pod(a=needs("cpu=1"), init={"i": needs("cpu=2")}, pod_level=needs("cpu=3"))
    assert with_resources(desired, requested_resources(desired)) is desired
    in_other_words = PodResources(
        {"a": needs("cpu=1000m"), "i": needs("cpu=2000m")}, needs("cpu=3000m")
    )
    assert with_resources(desired, in_other_words) is desired


def test_a_pod_has_its_allocation_instead_of_its_requests() -> None:
    desired = pod(
        a=needs("cpu=1", "memory=1Gi"),
        b=needs("cpu=5"),
        init={"i": needs("cpu=2")},
        more={"a": {"image": "x"}},
    )
    before = copy.deepcopy(desired.object)
    supplied = PodResources({"a": needs("cpu=500m"), "i": needs("cpu=4")}, None)
    made = with_resources(desired, supplied)
    assert [c["resources"] for c in made.containers] == [needs("cpu=500m"), needs("cpu=5")]
    assert made.init_containers[0]["resources"] == needs("cpu=4")
    assert made.containers[0]["image"] == "x"
    assert made.containers[1] is desired.containers[1]
    assert desired.object == before


@pytest.mark.parametrize("supplied", [None, needs("cpu=1")])
def test_pod_level_resources_are_those_allocated(supplied: api.ResourceRequirements | None) -> None:
    made = with_resources(pod(a={}, pod_level=needs("cpu=9")), PodResources({"a": {}}, supplied))
    assert made.spec.get("resources") == supplied
    assert ("resources" in made.spec) is (supplied is not None)


@pytest.mark.parametrize(
    ("old", "new", "found"),
    [
        (needs("cpu=1"), needs("cpu=1000m"), []),
        (needs("cpu=1"), needs("cpu=2"), [ResourceChange("cpu", "requests", "increase")]),
        (needs("cpu=2"), needs("cpu=1"), [ResourceChange("cpu", "requests", "decrease")]),
        (needs("cpu=2"), needs("cpu=2", "memory=1"), [ResourceChange("memory", "limits", "add")]),
        (
            needs("cpu=2", "memory=1"),
            needs("cpu=2"),
            [ResourceChange("memory", "limits", "remove")],
        ),
        (needs("ephemeral-storage=1"), needs("ephemeral-storage=2"), []),
    ],
)
def test_resizes_requested_by_an_update(
    old: api.ResourceRequirements, new: api.ResourceRequirements, found: list[ResourceChange]
) -> None:
    assert list(resource_changes(pod(a=old, b={}), pod(a=new, b={}))) == found
    assert list(resource_changes(pod(a=old), pod(a=new, added=needs("cpu=1")))) == found


def test_a_change_of_pod_level_resources_is_detected() -> None:
    old = pod(a={}, pod_level=needs("cpu=1"))
    assert not pod_level_changes(old, pod(a={}, pod_level=needs("cpu=1000m")))
    assert pod_level_changes(old, pod(a={}, pod_level=needs("cpu=2")))


def test_the_allocation_is_read_from_the_status() -> None:
    desired = pod(
        a=needs("cpu=2 memory=2Gi", "cpu=3"),
        b=needs("cpu=5"),
        c=needs("cpu=1"),
        status={
            "containerStatuses": [
                {
                    "name": "a",
                    "allocatedResources": {"cpu": "1", "memory": "1Gi"},
                    "resources": needs("cpu=500m memory=1Gi", "cpu=2 memory=7Gi"),
                },
                {"name": "c", "resources": needs("cpu=2", "memory=9")},
                {"name": "gone", "resources": needs("cpu=9")},
            ]
        },
    )
    notified = reported_resources(desired)
    assert notified.containers == {
        "a": needs("cpu=1 memory=1Gi", "cpu=2"),
        "b": needs("cpu=5"),
        "c": needs("cpu=2"),
    }
    fresh = pod(a=needs("cpu=2"))
    assert with_resources(fresh, reported_resources(fresh)) is fresh


def test_events_contain_the_requested_resources() -> None:
    supplied = pod(a=needs("memory=1Gi cpu=1", "cpu=2"), b={}, init={"i": needs("cpu=1")})
    assert resize_message("Pod resize started", supplied, 4) == (
        'Pod resize started: {"initContainers":[{"name":"i","resources":{"requests":{"cpu":"1"}}}],'
        '"containers":[{"name":"a","resources":{"limits":{"cpu":"2"},'
        '"requests":{"cpu":"1","memory":"1Gi"}}},{"name":"b","resources":{}}],"generation":4}'
    )
    assert resize_message("W", pod(a={}), 1, 'no "room"').endswith(
        '"generation":1,"error":"no \\"room\\""}'
    )


METADATA: Any = {"name": "web", "namespace": "default", "uid": "u"}


def test_claims_and_init_containers_are_in_the_message_of_a_resize() -> None:
    resources: Any = {**needs("memory=1Gi cpu=1"), "claims": [{"name": "g"}]}
    claimed: Any = {"name": "c", "resources": resources}
    of = Pod({"metadata": METADATA, "spec": {"containers": [claimed]}})
    assert resize_message("Pod resize", of, 3, "no") == (
        'Pod resize: {"containers":[{"name":"c","resources":{"requests":{"cpu":"1",'
        '"memory":"1Gi"},"claims":[{"name":"g"}]}}],"generation":3,"error":"no"}'
    )
    init: Any = {**claimed, "name": "i"}
    both = Pod({"metadata": METADATA, "spec": {"containers": [claimed], "initContainers": [init]}})
    notified = json.loads(resize_message("x", both, 3).partition(": ")[2])
    assert list(notified) == ["initContainers", "containers", "generation"]


def test_pod_level_resources_are_read_from_the_status() -> None:
    def whole(status: Any) -> Any:
        spec: Any = {"containers": [{"name": "c"}], "resources": needs("cpu=1", "cpu=2 memory=1Gi")}
        return reported_resources(Pod({"metadata": METADATA, "spec": spec, "status": status})).pod

    reported = needs("cpu=500m memory=5Mi", "memory=512Mi")
    assert whole({}) == needs("cpu=1", "cpu=2 memory=1Gi")
    assert whole({"resources": reported}) == needs("cpu=500m", "cpu=2 memory=512Mi")
    unasked = reported_resources(pod(a={}, status={"resources": reported}))
    assert unasked.pod is None, "no resources are added"


def test_a_resize_of_the_pod_itself_is_named_with_its_values() -> None:
    desired: Any = {"requests": {"cpu": "1"}, "limits": {"memory": "1Gi", "cpu": "2"}}
    container: Any = {"name": "c"}
    spec: Any = {"containers": [container], "resources": desired}
    of = Pod({"metadata": METADATA, "spec": spec})
    notified = json.loads(resize_message("Pod resize completed", of, 3).partition(": ")[2])
    assert notified["resources"] == desired
    supplied = Pod({"metadata": METADATA, "spec": {"containers": [container]}})
    assert "resources" not in json.loads(resize_message("x", supplied, 3).partition(": ")[2])
