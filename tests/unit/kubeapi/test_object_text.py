"""Objects are decoded without who set which field; equal specs and statuses become one value."""

from __future__ import annotations

import json
import threading
from collections.abc import AsyncIterator
from typing import Any

import pytest

from kubeletpy.base.api import object_text
from kubeletpy.base.api.object_text import ObjectText
from kubeletpy.kubeapi.client import JSON_FORMAT, JSON_TYPE

MANAGED = [{"manager": "kubelet", "fieldsV1": {'k:{"name":"a"}': {".": {}}}}]
POD = {
    "kind": "Pod",
    "metadata": {"name": "p", "managedFields": MANAGED, "annotations": {"managedFields": "x"}},
    "spec": {"containers": [{"name": "é", "managedFields": 1, "image": None}]},
    "status": None,
}
CUT = {
    "kind": "Pod",
    "metadata": {"name": "p", "annotations": {"managedFields": "x"}},
    "spec": {"containers": [{"name": "é", "managedFields": 1}]},
}


def decode(value: Any, objects: ObjectText | None = None) -> Any:
    return (objects or ObjectText()).decode(json.dumps(value).encode())


@pytest.mark.parametrize(
    ("supplied", "decoded"),
    [
        (POD, CUT),
        ({"type": "ADDED", "object": POD}, {"type": "ADDED", "object": CUT}),
        ({"status": "Failure", "code": 403}, {"status": "Failure", "code": 403}),
        ({"items": [{"metadata": {"managedFields": 1}}]},) * 2,
        ({"metadata": "x", "spec": {"a": None}}, {"metadata": "x", "spec": {}}),
        ({"metadata": None, "spec": 1}, {"spec": 1}),
        ({"object": ["x"], "status": None}, {"object": ["x"]}),
        ({}, {}),
        ([{"a": None}], [{}]),
        (None, None),
    ],
)
def test_an_object_has_neither_nulls_nor_managed_fields(supplied: Any, decoded: Any) -> None:
    assert decode(supplied) == decoded


@pytest.mark.parametrize("text", [b"", b"{", b'{"spec":{}', b'{"kind":"\xff"}', b'{"spec":nul}'])
def test_garbage_is_refused(text: bytes) -> None:
    with pytest.raises((json.JSONDecodeError, UnicodeDecodeError)):
        ObjectText().decode(text)


def pod(name: str, phase: str) -> dict[str, Any]:
    large = "x" * object_text.LEAST
    return {"metadata": {"name": name}, "spec": {"a": large}, "status": {"b": large, "c": phase}}


def test_equal_values_are_decoded_once() -> None:
    objects = ObjectText()
    first = decode(pod("p", "Pending"), objects)
    again = decode({"type": "MODIFIED", "object": pod("p", "Pending")}, objects)["object"]
    later = decode(pod("p", "Running"), objects)
    assert (again, later) == (pod("p", "Pending"), pod("p", "Running"))
    assert again["spec"] is first["spec"] is later["spec"]
    assert again["status"] is first["status"]


def test_values_that_were_not_used_for_long_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(object_text, "MOST", 10 * object_text.LEAST)
    objects = ObjectText()
    first = decode(pod("p", "0"), objects)
    for number in range(20):
        assert decode(pod("p", f"{number}"), objects)["spec"] is first["spec"]
    assert decode(pod("p", "0"), objects)["status"] is not first["status"]
    assert objects._held == sum(map(len, objects._known)) <= object_text.MOST


# Large JSON texts of answers and events are decoded in threads, small ones at once.


@pytest.mark.parametrize(("keys", "apart"), [(10, False), (20_000, True)])
async def test_a_large_text_is_decoded_off_the_event_loop(
    keys: int, apart: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, threads = threading.get_ident(), []
    read = object_text.loads

    def loads(text: bytes) -> Any:
        threads.append(threading.get_ident())
        return read(text)

    monkeypatch.setattr(object_text, "loads", loads)
    obj = {"metadata": {"name": "s"}, "data": {f"key-{n}": "" for n in range(keys)}}
    line = json.dumps({"type": "MODIFIED", "object": obj}).encode() + b"\n"

    async def arriving() -> AsyncIterator[bytes]:
        yield line

    found = [each.object async for each in JSON_FORMAT.events(JSON_TYPE, arriving())]
    assert found == [obj]
    assert await JSON_FORMAT.decode(JSON_TYPE, json.dumps(obj).encode()) == obj
    assert {thread != here for thread in threads} == {apart}
