"""The CSINode with a node's drivers, and how it is written."""

from __future__ import annotations

import asyncio
import json
import random
from typing import Any

import pytest

from kubeletpy.base.structs import replace
from kubeletpy.kubeapi.errors import Conflict, Unavailable
from kubeletpy.kubeapi.protocol import CSINODES, NODES
from kubeletpy.volumes.csi.objects import (
    ABSENT,
    ANNOTATION,
    MIGRATED,
    MIGRATED_ANNOTATION,
    DriverOnNode,
    NodeObjectConflict,
    TokenRequest,
    changed_csi_node,
    lifecycle_problem,
    new_csi_node,
    node_patch,
    owned_by,
    read,
)
from kubeletpy.volumes.csi.registration import CsiNodeWriter, NodeNotUpdated
from tests.kit.virtual_time import settle
from tests.kit.volumes import Cluster

pytestmark = pytest.mark.virtual_time

A = DriverOnNode("a", "node-a", 3, {"zone": "1"})
B = DriverOnNode("b", "node-b", None, {})


def node(annotation: str | None = None, **labels: str) -> dict[str, Any]:
    annotations = {ANNOTATION: annotation} if annotation else {}
    return {"metadata": {"name": "n", "annotations": annotations, "labels": labels}}


@pytest.mark.parametrize(
    ("before", "present", "removed", "patch"),
    [
        (node(), {}, set(), None),
        (node(), {"b": B}, set(), {"annotations": {ANNOTATION: '{"b":"node-b"}'}}),
        (
            node(),
            {"a": A},
            set(),
            {"annotations": {ANNOTATION: '{"a":"node-a"}'}, "labels": {"zone": "1"}},
        ),
        (node('{"a":"node-a"}', zone="1"), {"a": A}, set(), None),
        (
            node('{"a":"old","c":"other"}', zone="1"),
            {"a": A},
            set(),
            {"annotations": {ANNOTATION: '{"a":"node-a","c":"other"}'}},
        ),
        (node('{"a":"node-a"}', zone="1"), {}, {"a"}, {"annotations": {ANNOTATION: None}}),
        (
            node('{"c":"other","a":"old"}', zone="1"),
            {"a": A},
            set(),
            {"annotations": {ANNOTATION: '{"a":"node-a","c":"other"}'}},
        ),
        (node('{"c":5}'), {"b": B}, set(), {"annotations": {ANNOTATION: '{"b":"node-b"}'}}),
        (node('["c"]'), {"b": B}, set(), {"annotations": {ANNOTATION: '{"b":"node-b"}'}}),
        (node("{torn", zone="1"), {"b": B}, set(), {"annotations": {ANNOTATION: '{"b":"node-b"}'}}),
        (node(zone="2"), {"a": A}, set(), {"annotations": {ANNOTATION: '{"a":"node-a"}'}}),
    ],
)
def test_node_patch(before: Any, present: Any, removed: set[str], patch: Any) -> None:
    made = node_patch(before, present, removed)
    assert made == (None if patch is None else {"metadata": patch})


def test_a_label_of_another_value_is_not_changed() -> None:
    with pytest.raises(NodeObjectConflict, match="topology value collision: driver a"):
        node_patch(node(zone="2"), {"a": A}, set(), subject="a")


def test_a_new_csi_node() -> None:
    made = new_csi_node("n", "uid", {"a": A, "b": B})
    assert made["metadata"]["annotations"] == {MIGRATED_ANNOTATION: MIGRATED}
    assert MIGRATED.split(",") == sorted(MIGRATED.split(","))
    assert len(MIGRATED.split(",")) == 7
    assert made["spec"]["drivers"] == [
        {"name": "a", "nodeID": "node-a", "topologyKeys": ["zone"], "allocatable": {"count": 3}},
        {"name": "b", "nodeID": "node-b", "topologyKeys": []},
    ]
    assert owned_by(made, "uid")
    assert not owned_by(made, "another")


def test_an_up_to_date_csi_node_is_not_written() -> None:
    found = new_csi_node("n", "uid", {"a": A, "b": B})
    assert changed_csi_node(found, {"a": A, "b": B}, set()) is None
    assert changed_csi_node(found, {"b": B}, set()) is None


def test_other_entries_stay_and_changed_ones_move_to_the_end() -> None:
    found = new_csi_node("n", "uid", {"a": A, "b": B})
    other = DriverOnNode("a", "elsewhere", 3, {"zone": "1"})
    changed = changed_csi_node(found, {"a": other}, set())
    assert changed is not None
    assert [(d["name"], d["nodeID"]) for d in changed["spec"]["drivers"]] == [
        ("b", "node-b"),
        ("a", "elsewhere"),
    ]
    changed = changed_csi_node(found, {}, {"a"})
    assert changed is not None
    assert [d["name"] for d in changed["spec"]["drivers"]] == ["b"]


def names(cluster: Cluster) -> list[str]:
    return [each["name"] for each in cluster.get_now(CSINODES, "n")["spec"]["drivers"]]


def make(cluster: Cluster) -> CsiNodeWriter:
    return CsiNodeWriter("n", cluster, rng=random.Random(1))


async def test_the_node_is_ready_once_there_is_a_csi_node() -> None:
    cluster = Cluster()
    cluster.down = Unavailable("not yet")
    writer, ready = make(cluster), asyncio.Event()
    writer.on_ready(ready.set)
    assert writer.problem == "CSINode is not yet initialized"
    running = asyncio.create_task(writer.run())
    await asyncio.sleep(5)
    assert writer.problem
    cluster.down = None
    await ready.wait()
    assert writer.problem == ""
    assert names(cluster) == []
    running.cancel()
    assert CsiNodeWriter("n", None, random.Random(1)).problem == ""


async def test_a_driver_is_installed_and_uninstalled() -> None:
    cluster = Cluster()
    writer = make(cluster)
    await writer.install(A)
    found = cluster.get_now(NODES, "n")["metadata"]
    assert json.loads(found["annotations"][ANNOTATION]) == {"a": "node-a"}
    assert found["labels"] == {"zone": "1"}
    assert names(cluster) == ["a"]
    await writer.uninstall("a")
    found = cluster.get_now(NODES, "n")["metadata"]
    assert found["annotations"] == {}
    assert found["labels"] == {"zone": "1"}
    assert names(cluster) == []


async def test_a_write_is_tried_four_times() -> None:
    cluster = Cluster()
    writer = make(cluster)
    cluster.refusals = [Conflict("stale")] * 3
    await writer.install(B)
    assert names(cluster) == ["b"]
    cluster.refusals = [Unavailable("away")] * 4
    with pytest.raises(NodeNotUpdated, match="driver a: away"):
        await writer.install(A)
    await writer.install(B)
    assert names(cluster) == ["b"]


async def test_a_removal_that_could_not_be_written_is_written_later() -> None:
    cluster = Cluster()
    writer = make(cluster)
    running = asyncio.create_task(writer.run())
    await writer.install(A)
    cluster.down = Unavailable("away")
    await writer.uninstall("a")
    assert names(cluster) == ["a"]
    cluster.down = None
    await asyncio.sleep(60)
    assert names(cluster) == []
    running.cancel()


async def test_the_csi_node_of_a_node_that_was_deleted_is_made_anew() -> None:
    cluster = Cluster()
    cluster.put(CSINODES, "n", **new_csi_node("n", "old", {"b": B}))
    writer = make(cluster)
    begun = asyncio.get_running_loop().time()
    await writer.install(A)
    assert asyncio.get_running_loop().time() == begun
    assert names(cluster) == ["a"]
    assert cluster.get_now(CSINODES, "n")["metadata"]["ownerReferences"][0]["uid"] == "node-uid"


async def test_a_deleted_csi_node_is_made_again_within_a_minute() -> None:
    cluster = Cluster()
    writer = make(cluster)
    running = asyncio.create_task(writer.run())
    await writer.install(A)
    await writer.install(B)
    for _ in range(3):
        await asyncio.sleep(300)
        del cluster.objects["csinodes", "", "n"]
        await asyncio.sleep(60)
        assert names(cluster) == ["a", "b"]
    running.cancel()


async def test_what_others_remove_of_drivers_is_written_again() -> None:
    cluster = Cluster()
    writer = make(cluster)
    running = asyncio.create_task(writer.run())
    await writer.install(A)
    cluster.put(CSINODES, "n", spec={"drivers": []}, metadata={})
    await asyncio.sleep(60)
    assert names(cluster) == ["a"]
    await asyncio.sleep(300)
    cluster.put(NODES, "n", metadata={"uid": "node-uid", "labels": {}})
    writer.node_reported(cluster.get_now(NODES, "n"))
    await asyncio.sleep(60)
    found = cluster.get_now(NODES, "n")["metadata"]
    assert json.loads(found["annotations"][ANNOTATION]) == {"a": "node-a"}
    assert found["labels"] == {"zone": "1"}
    running.cancel()


async def test_a_program_that_deletes_the_csi_node_each_time_gets_ever_fewer_writes() -> None:
    cluster = Cluster()
    writer = make(cluster)
    running = asyncio.create_task(writer.run())
    await writer.install(A)

    async def delete_at_once() -> None:
        while True:
            cluster.objects.pop(("csinodes", "", "n"), None)
            await cluster.wrote()

    deleting = asyncio.create_task(delete_at_once())
    await asyncio.sleep(3600)
    made = cluster.calls.count("create csinodes")
    assert 5 <= made <= 12
    deleting.cancel()
    running.cancel()


async def test_without_drivers_or_changes_the_api_has_nothing_to_do() -> None:
    cluster = Cluster()
    writer = make(cluster)
    running = asyncio.create_task(writer.run())
    await asyncio.sleep(600)
    assert cluster.calls == ["get nodes", "get csinodes", "create csinodes"]
    await writer.install(A)
    cluster.calls.clear()
    await asyncio.sleep(600)
    assert set(cluster.calls) == {"get csinodes"}
    assert len(cluster.calls) <= 15
    running.cancel()


async def test_a_node_that_was_created_anew_gets_its_drivers_at_once() -> None:
    cluster = Cluster()
    writer = make(cluster)
    running = asyncio.create_task(writer.run())
    await writer.install(A)
    cluster.put(NODES, "n", metadata={"uid": "new"})
    writer.node_replaced()
    await asyncio.sleep(1)
    assert cluster.get_now(CSINODES, "n")["metadata"]["ownerReferences"][0]["uid"] == "new"
    assert ANNOTATION in cluster.get_now(NODES, "n")["metadata"]["annotations"]
    running.cancel()


async def test_a_collision_is_final_and_takes_nothing_from_others() -> None:
    cluster = Cluster(zone="2")
    writer = make(cluster)
    await writer.install(B)
    with pytest.raises(NodeNotUpdated, match="collision"):
        await writer.install(A)
    await settle()
    await writer.install(B)
    assert names(cluster) == ["b"]


# CSIDriver and CSINode objects, valid and malformed.

EMPTY = replace(ABSENT, group_policy=None)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (None, ABSENT),
        ({}, EMPTY),
        ({"spec": None}, EMPTY),
        ({"spec": "x"}, EMPTY),
        ({"spec": {"attachRequired": None}}, EMPTY),
        ({"spec": {"attachRequired": False}}, replace(EMPTY, attach_required=False)),
        ({"spec": {"podInfoOnMount": "true"}}, EMPTY),
        ({"spec": {"podInfoOnMount": True}}, replace(EMPTY, pod_info=True)),
        ({"spec": {"requiresRepublish": True}}, replace(EMPTY, republish=True)),
        ({"spec": {"seLinuxMount": True}}, replace(EMPTY, selinux_mount=True)),
        ({"spec": {"serviceAccountTokenInSecrets": True}}, replace(EMPTY, tokens_in_secrets=True)),
        ({"spec": {"nodeAllocatableUpdatePeriodSeconds": 0}}, EMPTY),
        ({"spec": {"nodeAllocatableUpdatePeriodSeconds": -1}}, EMPTY),
        ({"spec": {"nodeAllocatableUpdatePeriodSeconds": "60"}}, EMPTY),
        (
            {"spec": {"nodeAllocatableUpdatePeriodSeconds": 1}},
            replace(EMPTY, allocatable_period=10.0),
        ),
        (
            {"spec": {"nodeAllocatableUpdatePeriodSeconds": 60}},
            replace(EMPTY, allocatable_period=60.0),
        ),
    ],
)
def test_a_driver_object(found: Any, expected: Any) -> None:
    assert read(found) == expected


@pytest.mark.parametrize(
    ("supplied", "expected"),
    [
        ("x", ()),
        (["x"], ()),
        ([{}], (TokenRequest("", 3600),)),
        ([{"audience": "a", "expirationSeconds": 1}], (TokenRequest("a", 1),)),
        ([{"expirationSeconds": 0}], (TokenRequest("", 3600),)),
        ([{"expirationSeconds": "5"}], (TokenRequest("", 3600),)),
    ],
)
def test_the_tokens_that_a_driver_requests(supplied: Any, expected: Any) -> None:
    assert read({"spec": {"tokenRequests": supplied}}).tokens == expected


def test_the_hint_is_for_inline_volumes() -> None:
    neither = replace(ABSENT, lifecycles=frozenset())
    assert "CSIDriver" in lifecycle_problem("d", neither, inline=True)
    assert "CSIDriver" not in lifecycle_problem("d", neither, inline=False)


@pytest.mark.parametrize(
    ("owners", "owned"),
    [
        (None, True),
        ([], True),
        (["x"], True),
        ([{"kind": "Pod", "uid": "other"}], True),
        ([{"kind": "Node", "uid": "u"}], True),
        ([{"kind": "Node", "uid": "other"}], False),
        ([{"kind": "Node", "uid": "other"}, {"kind": "Node", "uid": "u"}], True),
        ([{"kind": "Node", "uid": "other"}, {"kind": "Pod", "uid": "u"}], False),
    ],
)
def test_the_owner_of_a_csi_node(owners: Any, owned: bool) -> None:
    assert owned_by({"metadata": {"ownerReferences": owners}}, "u") is owned
    assert owned_by({}, "u")


ENTRY = A.entry()
NOTES = {"metadata": {"annotations": {MIGRATED_ANNOTATION: MIGRATED}}}


@pytest.mark.parametrize(
    ("entries", "removed", "drivers"),
    [
        ([ENTRY], set(), None),
        ([], set(), [ENTRY]),
        (["torn"], set(), [ENTRY]),
        ([{**ENTRY, "nodeID": "x"}], set(), [ENTRY]),
        ([{**ENTRY, "topologyKeys": []}], set(), [ENTRY]),
        ([{**ENTRY, "allocatable": {"count": 4}}], set(), [ENTRY]),
        ([{**ENTRY, "allocatable": None}], set(), [ENTRY]),
        ([{"name": "b"}], set(), [{"name": "b"}, ENTRY]),
        ([{"name": "b"}, ENTRY], {"b"}, [ENTRY]),
        ([ENTRY, {"name": "b"}], {"c"}, None),
    ],
)
def test_a_csi_node_that_changes(entries: Any, removed: set[str], drivers: Any) -> None:
    made = changed_csi_node({**NOTES, "spec": {"drivers": entries}}, {"a": A}, removed)
    assert (None if made is None else made["spec"]["drivers"]) == drivers


def test_the_migrated_plugins_are_named() -> None:
    made = changed_csi_node({"spec": {"drivers": [ENTRY]}}, {"a": A}, set())
    assert made is not None
    assert made["metadata"]["annotations"] == {MIGRATED_ANNOTATION: MIGRATED}
