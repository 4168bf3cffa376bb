"""The records of who set which field are removed from the text of objects; all else stays."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kubeletpy.api.managed_fields import without_managed_fields

MANAGED = [{"manager": "kubelet", "fieldsV1": {'k:{"name":"a"}': {".": {}}}}]
POD = {
    "kind": "Pod",
    "metadata": {"name": "p", "managedFields": MANAGED, "annotations": {"a": '"managedFields":[]'}},
    "spec": {"containers": [{"name": "é", "managedFields": 1}]},
    "status": None,
}
CUT = {**POD, "metadata": {"name": "p", "annotations": {"a": '"managedFields":[]'}}}


@pytest.mark.parametrize(
    ("given", "left"),
    [
        (POD, CUT),
        ({"type": "ADDED", "object": POD}, {"type": "ADDED", "object": CUT}),
        ({"items": [POD]}, {"items": [POD]}),
        ({"managedFields": 1}, {"managedFields": 1}),
        ({"metadata": "managedFields"}, {"metadata": "managedFields"}),
        ({"metadata": None, "x": "managedFields"}, {"metadata": None, "x": "managedFields"}),
        ({"object": ["managedFields"]}, {"object": ["managedFields"]}),
        (["managedFields"], ["managedFields"]),
    ],
)
def test_they_are_removed_from_an_object_and_from_an_event(given: Any, left: Any) -> None:
    assert json.loads(without_managed_fields(json.dumps(given).encode())) == left


@pytest.mark.parametrize(
    "text", [b"", b"managedFields", b'{"managedFields"', b'{"managedFields":1}\xff', b"[1"]
)
def test_what_cannot_be_decoded_stays_as_it_is(text: bytes) -> None:
    assert without_managed_fields(text) == text
