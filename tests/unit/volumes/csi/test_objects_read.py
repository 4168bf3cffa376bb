"""CSIDriver and CSINode objects, valid and malformed."""

from __future__ import annotations

from typing import Any

import pytest

from kubeletpy.base.structs import replace
from kubeletpy.volumes.csi.objects import (
    ABSENT,
    MIGRATED,
    MIGRATED_ANNOTATION,
    DriverOnNode,
    TokenRequest,
    changed_csi_node,
    lifecycle_problem,
    owned_by,
    read,
)

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


A = DriverOnNode("a", "node-a", 3, {"zone": "1"})
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
