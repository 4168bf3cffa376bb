"""D-Bus messages: what we write is what we read, and what is none is refused."""

from __future__ import annotations

import contextlib
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubeletpy.shutdown.dbus_message import (
    CALL,
    MAX_MESSAGE,
    SIGNAL,
    DBusError,
    Message,
    decode,
    encode,
)


def test_a_message_survives_the_wire() -> None:
    sent = Message(
        SIGNAL,
        serial=7,
        path="/org/freedesktop/login1",
        interface="org.freedesktop.login1.Manager",
        member="PrepareForShutdown",
        sender=":1.2",
        signature="bsutivg",
        body=(True, "tëxt", 5, 2**40, -3, ("t", 9), "su"),
    )
    data = encode(sent)
    found = decode(data + b"more")
    assert found is not None
    got, size = found
    assert size == len(data)
    assert got.body == (True, "tëxt", 5, 2**40, -3, 9, "su")
    assert (got.path, got.member, got.sender, got.serial) == (
        sent.path,
        sent.member,
        sent.sender,
        7,
    )
    for cut in range(len(data)):
        assert decode(data[:cut]) is None


def test_the_first_bytes_are_as_the_specification_has_them() -> None:
    data = encode(Message(CALL, serial=1, member="Hello"))
    assert data[:16] == b"l\x01\x00\x01" + struct.pack("<III", 0, 1, 14)
    assert data[16:] == b"\x03\x01s\x00\x05\x00\x00\x00Hello\x00\x00\x00"


@pytest.mark.parametrize(
    "data",
    [
        b"x" * 16,
        b"l\x01\x00\x02" + bytes(12),
        b"l\x01\x00\x01" + struct.pack("<III", MAX_MESSAGE, 1, 0),
        b"l\x01\x00\x01" + struct.pack("<III", 0, 1, 2**31),
    ],
)
def test_what_is_no_message_is_refused(data: bytes) -> None:
    with pytest.raises(DBusError):
        decode(data)


@given(st.binary(max_size=200))
def test_any_bytes_end_in_a_message_or_a_refusal(tail: bytes) -> None:
    data = b"l\x04\x01\x01" + struct.pack("<III", 8, 1, max(len(tail) - 8, 0)) + tail
    with contextlib.suppress(DBusError, struct.error):
        decode(data + bytes(16))
