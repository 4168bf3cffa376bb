"""Objects in the protobuf form of the API: bytes follow the API's own field numbers."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf.message import DecodeError

from kubeletpy.base.wire.api_messages import (
    OWN_FORM,
    ApiMessages,
    MessageField,
    Unfit,
    message_classes,
)

TABLE = {
    "core/Thing": {
        "1": ["metadata", "meta/About"],
        "2": ["names", "[]string"],
        "3": ["parts", "[]core/Part"],
        "4": ["labels", "map string"],
        "5": ["limits", "map Quantity"],
        "6": ["extra", "map core/Part"],
        "7": ["source", "^core/Source"],
        "20": ["count", "*int"],
        "21": ["ready", "bool"],
    },
    "meta/About": {"1": ["created", "*Time"], "2": ["fields", "*FieldsV1"]},
    "core/Part": {"3": ["port", "IntOrString"]},
    "core/Source": {"8": ["inner", "^core/Inner"], "9": ["path", "string"]},
    "core/Inner": {"10": ["deep", "*core/Part"]},
}


def number(field: int, value: int) -> bytes:
    """A field with a small number."""
    return bytes([field << 3, value])


def inside(field: int, *content: bytes) -> bytes:
    """A field with a text or a message."""
    whole = b"".join(content)
    return bytes([field << 3 | 2, len(whole)]) + whole


PORT_80 = inside(3, number(1, 0), number(2, 80))
PORT_NAMED = inside(3, number(1, 1), inside(3, b"http"))


@pytest.mark.parametrize(
    ("thing", "fields"),
    [
        ({}, b""),
        ({"names": None, "unknown": 1}, b""),
        ({"names": []}, b""),
        ({"names": ["a", ""]}, inside(2, b"a") + inside(2)),
        ({"parts": [{"port": 80}, {}]}, inside(3, PORT_80) + inside(3)),
        ({"parts": [{"port": "http"}]}, inside(3, PORT_NAMED)),
        ({"labels": {"a": "b"}}, inside(4, inside(1, b"a"), inside(2, b"b"))),
        ({"limits": {"cpu": 2}}, inside(5, inside(1, b"cpu"), inside(2, inside(1, b"2")))),
        ({"extra": {"x": {"port": 80}}}, inside(6, inside(1, b"x"), inside(2, PORT_80))),
        ({"path": "/"}, inside(7, inside(9, b"/"))),
        ({"deep": {"port": 80}}, inside(7, inside(8, inside(10, PORT_80)))),
        ({"count": 0, "ready": False}, b"\xa0\x01\x00\xa8\x01\x00"),
        ({"metadata": {}}, inside(1)),
        ({"metadata": {"created": "1970-01-01T00:01:07Z"}}, inside(1, inside(1, number(1, 67)))),
        ({"metadata": {"fields": {"f": [1]}}}, inside(1, inside(2, inside(1, b'{"f":[1]}')))),
    ],
)
def test_an_object_in_bytes(thing: dict[str, Any], fields: bytes) -> None:
    assert ApiMessages(TABLE).encode("core/Thing", thing) == fields


@pytest.mark.parametrize(
    ("thing", "named"),
    [
        ([], "core/Thing is not an object"),
        ({"count": "1"}, "Thing.count: str instead of int"),
        ({"count": 1 << 63}, "Thing.count: ValueError"),
        ({"ready": 1}, "Thing.ready: int instead of bool"),
        ({"path": 5}, "Thing.path: int instead of string"),
        ({"labels": {"a": 5}}, "Thing.labels: int instead of string"),
        ({"parts": [5]}, "Thing.parts: core/Part is not an object"),
        ({"parts": [{"port": []}]}, "Thing.parts: Part.port: TypeError"),
        ({"metadata": {"created": "soon"}}, "Thing.metadata: About.created: ValueError"),
    ],
)
def test_values_of_another_type_are_named(thing: Any, named: str) -> None:
    with pytest.raises(Unfit) as raised:
        ApiMessages(TABLE).encode("core/Thing", thing)
    assert str(raised.value) == named


def test_a_message_that_is_not_in_the_table() -> None:
    with pytest.raises(KeyError):
        ApiMessages(TABLE).encode("core/Pod", {})


def test_messages_besides_those_of_the_table() -> None:
    messages = ApiMessages(TABLE, {"Envelope": (MessageField(1, "raw", "bytes"),)})
    assert messages.message("Envelope")(raw=b"x").SerializeToString() == inside(1, b"x")
    assert messages.message("core/Part").DESCRIPTOR.name == "core_Part"


def test_field_numbers_of_types_with_another_form_in_json() -> None:
    """They are the numbers of the API's generated.proto; intstr.proto numbers its type first."""
    assert {
        name: [(each.number, each.name, each.kind, each.repeated) for each in fields]
        for name, fields in OWN_FORM.items()
    } == {
        "Quantity": [(1, "text", "string", False)],
        "Time": [(1, "seconds", "int64", False), (2, "nanos", "int64", False)],
        "MicroTime": [(1, "seconds", "int64", False), (2, "nanos", "int64", False)],
        "IntOrString": [
            (1, "type", "int64", False),
            (2, "number", "int64", False),
            (3, "text", "string", False),
        ],
        "Duration": [(1, "nanoseconds", "int64", False)],
        "FieldsV1": [(1, "raw", "bytes", False)],
        "RawExtension": [(1, "raw", "bytes", False)],
        "ExtraValue": [(1, "items", "string", True)],
    }


# Protobuf message classes made from tables.

MESSAGES_TABLE = {
    "Outer": (
        MessageField(1, "name", "string"),
        MessageField(2, "inner", "Inner"),
        MessageField(3, "more", "Inner", repeated=True),
        MessageField(4, "raw", "bytes"),
    ),
    "Inner": (
        MessageField(1, "number", "int64"),
        MessageField(2, "numbers", "int64", repeated=True),
    ),
}


def test_the_encoding_follows_the_table() -> None:
    outer = message_classes("test", MESSAGES_TABLE)["Outer"]
    made = outer(name="a", inner={"number": -1, "numbers": [1, 2]}, more=[{}])
    data = made.SerializeToString()
    numbers = b"\x12\x02\x01\x02"
    minus_one = b"\x08" + b"\xff" * 9 + b"\x01"
    assert data == b"\x0a\x01a" + b"\x12\x0f" + minus_one + numbers + b"\x1a\x00"
    assert outer.FromString(data) == made


def test_set_fields_are_present() -> None:
    outer = message_classes("test", MESSAGES_TABLE)["Outer"]
    assert not outer.FromString(b"").HasField("name")
    assert outer.FromString(b"\x0a\x00").HasField("name")


@pytest.mark.parametrize("data", [b"\x0a\x01\xff", b"\x0a\x7f", b"\x0b", b"\x12\x02\x0a"])
def test_malformed_messages_are_refused(data: bytes) -> None:
    with pytest.raises(DecodeError):
        message_classes("test", MESSAGES_TABLE)["Outer"].FromString(data)


def test_an_unknown_kind_is_an_error() -> None:
    with pytest.raises(KeyError):
        message_classes("test", {"A": (MessageField(1, "b", "C"),)})


def test_packages_of_one_name_do_not_meet() -> None:
    first = message_classes("test", {"A": (MessageField(1, "b", "string"),)})["A"]
    second = message_classes("test", {"A": (MessageField(1, "b", "int64"),)})["A"]
    assert (first(b="x").b, second(b=1).b) == ("x", 1)
