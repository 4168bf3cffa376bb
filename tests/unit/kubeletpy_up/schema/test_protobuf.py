"""Protobuf bodies: what kubectl's typed commands send, and what nobody should."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubeletpy_up.errors import ApiError
from kubeletpy_up.schema import protobuf


def _varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _field(number: int, value: bytes | str | int) -> bytes:
    if isinstance(value, int):
        return _varint(number << 3) + _varint(value)
    data = value.encode() if isinstance(value, str) else value
    return _varint(number << 3 | 2) + _varint(len(data)) + data


def _body(api_version: str, kind: str, message: bytes) -> bytes:
    about = _field(1, api_version) + _field(2, kind)
    return b"k8s\0" + _field(1, about) + _field(2, message) + _field(3, "") + _field(4, "")


def _meta(name: str) -> bytes:
    # As Go writes it: fields that nobody set are there and empty.
    return b"".join(
        (_field(1, name), _field(2, ""), _field(3, "default"), _field(7, 0), _field(8, b""))
    )


def _entry(key: str, value: bytes | str) -> bytes:
    return _field(1, key) + _field(2, value)


@pytest.mark.parametrize(
    ("api_version", "kind", "message", "expected"),
    [
        (
            "v1",
            "ConfigMap",
            _field(1, _meta("c")) + _field(2, _entry("a", "b")) + _field(3, _entry("x", b"\xff")),
            {
                "metadata": {"name": "c", "namespace": "default"},
                "data": {"a": "b"},
                "binaryData": {"x": "/w=="},
            },
        ),
        (
            "v1",
            "Secret",
            _field(1, _meta("s")) + _field(2, _entry("k", b"v")) + _field(3, "Opaque"),
            {
                "metadata": {"name": "s", "namespace": "default"},
                "data": {"k": "dg=="},
                "type": "Opaque",
            },
        ),
        (
            "v1",
            "Service",
            _field(
                2,
                _field(
                    1,
                    _field(1, "web")
                    + _field(3, 80)
                    + _field(4, _field(1, 1) + _field(2, 0) + _field(3, "http"))
                    + _field(5, 0),
                ),
            ),
            {"spec": {"ports": [{"name": "web", "port": 80, "targetPort": "http"}]}},
        ),
        (
            "v1",
            "Pod",
            _field(
                2,
                _field(1, _field(1, "v") + _field(2, _field(2, b"")))
                + _field(2, _field(1, "c") + _field(8, _field(1, _entry("cpu", _field(1, "1")))))
                + _field(4, 0)
                + _field(11, 0),
            ),
            {
                "spec": {
                    "volumes": [{"name": "v", "emptyDir": {}}],
                    "containers": [{"name": "c", "resources": {"limits": {"cpu": "1"}}}],
                    "terminationGracePeriodSeconds": 0,
                }
            },
        ),
        (
            "authentication.k8s.io/v1",
            "TokenRequest",
            _field(2, _field(1, "aud") + _field(4, 3600)),
            {"spec": {"audiences": ["aud"], "expirationSeconds": 3600}},
        ),
        ("v1", "DeleteOptions", _field(1, -1), {"gracePeriodSeconds": -1}),
        (
            "scheduling.k8s.io/v1",
            "PriorityClass",
            _field(1, _field(1, "p") + _field(8, _field(1, 1700000000))) + _field(2, 7),
            {
                "metadata": {"name": "p", "creationTimestamp": "2023-11-14T22:13:20Z"},
                "value": 7,
            },
        ),
    ],
)
def test_objects(api_version: str, kind: str, message: bytes, expected: dict[str, Any]) -> None:
    found = protobuf.decode(_body(api_version, kind, message))
    assert found == {"kind": kind, "apiVersion": api_version, **expected}


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"k8s\0",
        b"{}",
        _body("v1", "Gadget", b""),
        _body("v1", "Pod", b"\xff" * 20),
        _body("v1", "Pod", _field(2, b"\x12\x7f")),
        _body("v1", "ConfigMap", _field(2, 5)),
        _body("v1", "ConfigMap", _field(2, _field(1, "a") + _field(2, 5))),
        _body("v1", "ConfigMap", _field(1, _field(8, _field(1, "text")))),
        _body("v1", "ConfigMap", _field(1, _field(17, _field(7, _field(1, "[" * 100_000))))),
        _body("v1", "ConfigMap", _field(2, _entry("a", b"\xff\xfe"))),
        _body("v1", "ConfigMap", _field(1, b"\x0b")),
    ],
)
def test_what_is_none_of_these(body: bytes) -> None:
    with pytest.raises(ApiError) as caught:
        protobuf.decode(body)
    assert caught.value.code == 400


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    for body in (data, b"k8s\0" + data, _body("v1", "Pod", data)):
        try:
            protobuf.decode(body)
        except ApiError as error:
            assert error.code == 400
