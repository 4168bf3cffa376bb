"""Protobuf message classes made from tables."""

from __future__ import annotations

import pytest
from google.protobuf.message import DecodeError

from kubeletpy.base.wire.api_messages import MessageField, message_classes

TABLE = {
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
    outer = message_classes("test", TABLE)["Outer"]
    made = outer(name="a", inner={"number": -1, "numbers": [1, 2]}, more=[{}])
    data = made.SerializeToString()
    numbers = b"\x12\x02\x01\x02"
    minus_one = b"\x08" + b"\xff" * 9 + b"\x01"
    assert data == b"\x0a\x01a" + b"\x12\x0f" + minus_one + numbers + b"\x1a\x00"
    assert outer.FromString(data) == made


def test_set_fields_are_present() -> None:
    outer = message_classes("test", TABLE)["Outer"]
    assert not outer.FromString(b"").HasField("name")
    assert outer.FromString(b"\x0a\x00").HasField("name")


@pytest.mark.parametrize("data", [b"\x0a\x01\xff", b"\x0a\x7f", b"\x0b", b"\x12\x02\x0a"])
def test_malformed_messages_are_refused(data: bytes) -> None:
    with pytest.raises(DecodeError):
        message_classes("test", TABLE)["Outer"].FromString(data)


def test_an_unknown_kind_is_an_error() -> None:
    with pytest.raises(KeyError):
        message_classes("test", {"A": (MessageField(1, "b", "C"),)})


def test_packages_of_one_name_do_not_meet() -> None:
    first = message_classes("test", {"A": (MessageField(1, "b", "string"),)})["A"]
    second = message_classes("test", {"A": (MessageField(1, "b", "int64"),)})["A"]
    assert (first(b="x").b, second(b=1).b) == ("x", 1)
