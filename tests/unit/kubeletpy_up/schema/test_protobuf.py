"""Protobuf bodies: those of kubectl's typed commands, and malformed ones."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubeletpy_up.errors import ApiError
from kubeletpy_up.schema import definitions
from tests.kit.messages import body, entry, field


def _meta(name: str) -> bytes:
    # Go's encoding: unset fields are present and empty.
    return b"".join((field(1, name), field(2, ""), field(3, "default"), field(7, 0), field(8, b"")))


@pytest.mark.parametrize(
    ("api_version", "kind", "message", "expected"),
    [
        (
            "v1",
            "ConfigMap",
            field(1, _meta("c")) + field(2, entry("a", "b")) + field(3, entry("x", b"\xff")),
            {
                "metadata": {"name": "c", "namespace": "default"},
                "data": {"a": "b"},
                "binaryData": {"x": "/w=="},
            },
        ),
        (
            "v1",
            "Secret",
            field(1, _meta("s")) + field(2, entry("k", b"v")) + field(3, "Opaque"),
            {
                "metadata": {"name": "s", "namespace": "default"},
                "data": {"k": "dg=="},
                "type": "Opaque",
            },
        ),
        (
            "v1",
            "Service",
            field(
                2,
                field(
                    1,
                    field(1, "web")
                    + field(3, 80)
                    + field(4, field(1, 1) + field(2, 0) + field(3, "http"))
                    + field(5, 0),
                ),
            ),
            {"spec": {"ports": [{"name": "web", "port": 80, "targetPort": "http"}]}},
        ),
        (
            "v1",
            "Pod",
            field(
                2,
                field(1, field(1, "v") + field(2, field(2, b"")))
                + field(2, field(1, "c") + field(8, field(1, entry("cpu", field(1, "1")))))
                + field(4, 0)
                + field(11, 0),
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
            field(2, field(1, "aud") + field(4, 3600)),
            {"spec": {"audiences": ["aud"], "expirationSeconds": 3600}},
        ),
        ("v1", "DeleteOptions", field(1, -1), {"gracePeriodSeconds": -1}),
        (
            "scheduling.k8s.io/v1",
            "PriorityClass",
            field(1, field(1, "p") + field(8, field(1, 1700000000))) + field(2, 7),
            {"metadata": {"name": "p", "creationTimestamp": "2023-11-14T22:13:20Z"}, "value": 7},
        ),
    ],
)
def test_objects(api_version: str, kind: str, message: bytes, expected: dict[str, Any]) -> None:
    found = definitions.decode(body(api_version, kind, message))
    assert found == {"kind": kind, "apiVersion": api_version, **expected}


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"k8s\0",
        b"{}",
        body("v1", "Gadget", b""),
        body("v1", "Pod", b"\xff" * 20),
        body("v1", "Pod", field(2, b"\x12\x7f")),
        body("v1", "ConfigMap", field(2, 5)),
        body("v1", "ConfigMap", field(2, field(1, "a") + field(2, 5))),
        body("v1", "ConfigMap", field(1, field(8, field(1, "text")))),
        body("v1", "ConfigMap", field(1, field(17, field(7, field(1, "[" * 100_000))))),
        body("v1", "ConfigMap", field(2, entry("a", b"\xff\xfe"))),
        body("v1", "ConfigMap", field(1, b"\x0b")),
    ],
)
def test_malformed_bodies_are_refused(sent: bytes) -> None:
    with pytest.raises(ApiError) as caught:
        definitions.decode(sent)
    assert caught.value.code == 400


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    for each in (data, b"k8s\0" + data, body("v1", "Pod", data)):
        try:
            definitions.decode(each)
        except ApiError as error:
            assert error.code == 400
