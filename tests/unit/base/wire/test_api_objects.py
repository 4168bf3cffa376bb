"""Objects in protobuf converted to JSON: messages as Go writes them, and malformed ones."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubeletpy.base.wire.api_messages import Unfit, consisting_of
from kubeletpy.base.wire.api_objects import ApiObjects, Malformed, message_name
from kubeletpy.base.wire.api_table import load_table
from tests.kit.messages import body, entry, field

OWN = ApiObjects(load_table())
TABLE = {
    "core/Thing": {
        "1": ["metadata", "meta/ObjectMeta"],
        "2": ["names", "[]string"],
        "3": ["parts", "[]core/Part"],
        "4": ["labels", "map string"],
        "5": ["limits", "map Quantity"],
        "6": ["extra", "map ExtraValue"],
        "7": ["source", "^core/Source"],
        "8": ["image", "!string"],
        "9": ["count", "!int"],
        "10": ["ready", "!bool"],
        "11": ["note", "string"],
        "12": ["times", "int"],
        "13": ["old", "bool"],
        "14": ["grace", "*int"],
        "15": ["host", "*string"],
        "16": ["privileged", "*bool"],
        "17": ["port", "IntOrString"],
        "18": ["divisor", "Quantity"],
        "19": ["size", "*Quantity"],
        "20": ["at", "Time"],
        "21": ["ended", "*Time"],
        "22": ["renewed", "*MicroTime"],
        "23": ["fields", "*FieldsV1"],
        "24": ["parameters", "RawExtension"],
        "25": ["request", "bytes"],
        "26": ["files", "map bytes"],
        "27": ["part", "*core/Part"],
        "28": ["codes", "[]int"],
    },
    "core/Part": {"1": ["key", "!string"], "2": ["value", "string"]},
    "core/Source": {"1": ["empty", "*core/Part"], "2": ["kept", "!string"]},
    "meta/ObjectMeta": {"1": ["name", "string"], "8": ["creationTimestamp", "Time"]},
    "meta/ListMeta": {"2": ["resourceVersion", "string"]},
}
THING = ApiObjects(TABLE)
ZEROS = {
    "metadata": {},
    "image": "",
    "count": 0,
    "ready": False,
    "port": 0,
    "divisor": "0",
    "kept": "",
}
"""JSON of a thing without any field set."""


@pytest.mark.parametrize(
    ("message", "read"),
    [
        (b"", {}),
        (field(1, b""), {}),
        (field(1, field(1, "") + field(8, b"")), {}),
        (field(1, field(1, "a")), {"metadata": {"name": "a"}}),
        (field(2, "a") + field(2, ""), {"names": ["a", ""]}),
        (field(3, b"") + field(3, field(1, "k")), {"parts": [{"key": ""}, {"key": "k"}]}),
        (field(4, entry("a", "")) + field(4, field(1, "b")), {"labels": {"a": "", "b": ""}}),
        (field(5, entry("cpu", field(1, "1"))), {"limits": {"cpu": "1"}}),
        (field(6, entry("u", field(1, "x") + field(1, "y"))), {"extra": {"u": ["x", "y"]}}),
        (field(7, field(1, b"")), {"empty": {"key": ""}}),
        (field(7, field(2, "k")), {"kept": "k"}),
        (field(8, "") + field(9, 0) + field(10, 0), {}),
        (field(8, "i") + field(9, -1) + field(10, 1), {"image": "i", "count": -1, "ready": True}),
        (field(11, "") + field(12, 0) + field(13, 0), {}),
        (field(11, "n") + field(12, 5) + field(13, 1), {"note": "n", "times": 5, "old": True}),
        (
            field(14, 0) + field(15, "") + field(16, 0),
            {"grace": 0, "host": "", "privileged": False},
        ),
        (field(17, field(1, 0) + field(2, 80) + field(3, "")), {"port": 80}),
        (field(17, field(1, 1) + field(2, 0) + field(3, "http")), {"port": "http"}),
        (field(17, field(1, 1) + field(2, 0) + field(3, "")), {"port": ""}),
        (field(18, field(1, "1Mi")), {"divisor": "1Mi"}),
        (field(19, b""), {"size": "0"}),
        (field(20, b"") + field(21, b"") + field(22, b""), {}),
        (field(20, field(1, 1700000000) + field(2, 5)), {"at": "2023-11-14T22:13:20Z"}),
        (field(21, field(1, 0)), {"ended": "1970-01-01T00:00:00Z"}),
        (
            field(22, field(1, 1700000000) + field(2, 123456000)),
            {"renewed": "2023-11-14T22:13:20.123456Z"},
        ),
        (field(22, field(1, 1700000000)), {"renewed": "2023-11-14T22:13:20.000000Z"}),
        (field(23, field(1, '{"f:a":{},"b":null}')), {"fields": {"f:a": {}}}),
        (field(23, b"") + field(24, b""), {}),
        (field(24, field(1, "[1,null]")), {"parameters": [1, None]}),
        (field(25, b""), {}),
        (field(25, b"\xff"), {"request": "/w=="}),
        (field(26, entry("a", b"\0")), {"files": {"a": "AA=="}}),
        (field(26, entry("a", b"")) + field(26, field(1, "e")), {"files": {"a": "", "e": ""}}),
        (field(27, b""), {"part": {"key": ""}}),
        (field(28, 0) + field(28, -1), {"codes": [0, -1]}),
        (field(28, b"\0\5"), {"codes": [0, 5]}),
        (field(99, "from a newer server"), {}),
    ],
)  # fmt: skip
def test_the_json_of_a_message(message: bytes, read: dict[str, Any]) -> None:
    assert THING.to_json("core/Thing", message) == {**ZEROS, **read}


def test_empty_fields_can_be_left_out() -> None:
    plain = ApiObjects(TABLE, zeros=False)
    message = field(1, b"") + field(8, "") + field(9, 0) + field(14, 0) + field(27, b"")
    assert plain.to_json("core/Thing", message) == {"grace": 0, "part": {}}


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"metadata": {"name": "a", "creationTimestamp": "2023-11-14T22:13:20Z"}},
        {"names": ["a", ""], "codes": [0, -5], "labels": {"a": ""}, "limits": {"cpu": "100m"}},
        {"extra": {"u": ["a", "b"]}, "empty": {"key": "k"}, "kept": "x", "image": "i"},
        {"note": "n", "times": 5, "old": True, "grace": 0, "host": "", "privileged": False},
        {"port": "http", "divisor": "1", "size": "5Gi", "request": "/w==", "part": {"key": "k"}},
        {"at": "2023-11-14T22:13:20Z", "renewed": "2023-11-14T22:13:20.000001Z"},
        {"renewed": "1969-12-31T23:59:59.999999Z"},
        {"files": {"a": base64.b64encode(bytes(range(256))).decode()}, "fields": {"f:x": {}}},
        {"parameters": {"a": [1, 2.5, "x", {}]}},
    ],
)
def test_objects_survive_a_round_trip(more: dict[str, Any]) -> None:
    thing = {"kind": "Thing", "apiVersion": "v1", **ZEROS, **more}
    assert THING.decode(THING.enclose("v1", "Thing", thing)) == thing


@pytest.mark.parametrize(
    ("thing", "named"),
    [
        ({"novel": 1}, "Thing.novel is not known"),
        ({"part": {"key": "k", "novel": []}}, "Thing.part: Part.novel is not known"),
        ({"part": {"kind": "x"}}, "Thing.part: Part.kind is not known"),
        ({"request": "no base64"}, "Thing.request: no base64"),
        ({"request": 5}, "Thing.request: TypeError"),
    ],
)
def test_objects_that_would_lose_fields_are_refused(thing: dict[str, Any], named: str) -> None:
    with pytest.raises(Unfit) as raised:
        THING.enclose("v1", "Thing", thing)
    assert str(raised.value) == named


def test_unknown_fields_are_left_out_if_allowed() -> None:
    sent = THING.enclose("v1", "Thing", {"novel": 1, "image": "i"}, whole=False)
    assert sent == THING.enclose("v1", "Thing", {"image": "i"})


def test_a_null_is_no_field() -> None:
    assert THING.enclose("v1", "Thing", {"novel": None}) == THING.enclose("v1", "Thing", {})


def test_a_list_has_no_kinds_in_it() -> None:
    message = field(1, field(2, "7")) + field(2, field(8, "i")) + field(2, b"")
    assert THING.decode(body("v1", "ThingList", message)) == {
        "kind": "ThingList",
        "apiVersion": "v1",
        "metadata": {"resourceVersion": "7"},
        "items": [{**ZEROS, "image": "i"}, ZEROS],
    }
    listed = {
        "kind": "ThingList",
        "apiVersion": "v1",
        "metadata": {"resourceVersion": "7"},
        "items": [{**ZEROS, "image": "i"}],
    }
    assert THING.decode(THING.enclose("v1", "ThingList", listed)) == listed
    empty = THING.decode(body("v1", "ThingList", b""))
    assert (empty["metadata"], empty["items"]) == ({}, [])


def test_an_event_has_an_object_in_its_envelope() -> None:
    frame = field(1, "ADDED") + field(2, field(1, body("v1", "Thing", b"")))
    assert THING.event(frame) == ("ADDED", {"kind": "Thing", "apiVersion": "v1", **ZEROS})


@pytest.mark.parametrize(
    ("api_version", "kind", "name"),
    [
        ("v1", "Pod", "core/Pod"),
        ("storage.k8s.io/v1", "CSINode", "storage.k8s.io/CSINode"),
        ("certificates.k8s.io/v1beta1", "X", "certificates.k8s.io/v1beta1/X"),
        ("policy/v1", "DeleteOptions", "meta/DeleteOptions"),
        ("v1", "Status", "meta/Status"),
        ("", "Pod", "core//Pod"),
    ],
)
def test_a_kind_has_its_name_in_the_table(api_version: str, kind: str, name: str) -> None:
    assert message_name(api_version, kind) == name


DEEP = field(24, field(1, "[" * 100_000))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"k8s",
        b"k8s\0",
        b"{}",
        b"k8s\0\xff\xff",
        body("v1", "Gadget", b""),
        body("v1", "GadgetList", b""),
        body("v1", "List", b""),
        body("", "", b""),
        body("v1", "Thing", b"\xff" * 20),
        body("v1", "Thing", field(8, "image"), encoding="gzip"),
        body("v1", "Thing", b"{}", media_type="application/json"),
        body("v1", "Thing", field(8, 5)),
        body("v1", "Thing", field(1, 5)),
        body("v1", "Thing", field(1, field(1, 5))),
        body("v1", "Thing", field(3, field(1, 5))),
        body("v1", "Thing", field(4, field(1, "a") + field(2, 5))),
        body("v1", "Thing", field(5, entry("a", field(1, 5)))),
        body("v1", "Thing", field(6, entry("a", field(1, 5)))),
        body("v1", "Thing", field(17, field(1, "x"))),
        body("v1", "Thing", field(20, field(1, "x"))),
        body("v1", "Thing", field(20, field(1, 1 << 62))),
        body("v1", "Thing", field(22, field(1, 1 << 62))),
        body("v1", "Thing", field(24, field(1, "{"))),
        body("v1", "Thing", DEEP),
        body("v1", "Thing", field(8, b"\xff\xfe")),
        body("v1", "Thing", field(1, field(1, "a"))[:-1]),
        body("v1", "Thing", b"\x0b"),
        body("v1", "ThingList", field(2, field(8, 5))),
        body("v1", "ThingList", field(1, field(2, 5))),
        body("v1", "ThingList", field(2, 5)),
    ],
)
def test_malformed_objects_are_refused(data: bytes) -> None:
    with pytest.raises(Malformed) as raised:
        THING.decode(data)
    assert "image" not in str(raised.value)


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        field(1, "ADDED"),
        field(1, "ADDED") + field(2, b""),
        field(1, 5) + field(2, field(1, body("v1", "Thing", b""))),
        field(1, "ADDED") + field(2, 5),
        field(1, "ADDED") + field(2, field(1, b"{}")),
    ],
)
def test_malformed_events_are_refused(frame: bytes) -> None:
    with pytest.raises(Malformed):
        THING.event(frame)


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    for each in (data, b"k8s\0" + data, body("v1", "Pod", data), body("v1", "PodList", data)):
        try:
            OWN.decode(each)
        except Malformed:
            continue


def test_the_part_of_a_table_that_one_message_needs() -> None:
    assert sorted(consisting_of(TABLE, ("core/Source", "core/None"))) == [
        "core/Part",
        "core/Source",
    ]
