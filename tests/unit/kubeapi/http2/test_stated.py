"""Limits of a connection."""

from __future__ import annotations

import pytest

from tests.stated import stated

STATED = {
    "kubeapi/http2/limits STREAM_WINDOW": 1048576,
    "kubeapi/http2/limits CONNECTION_WINDOW": 4194304,
    "kubeapi/http2/limits MAX_HEADER_BYTES": 65536,
    "kubeapi/http2/limits MAX_WRITE_BUFFER": 4194304,
    "kubeapi/http2/limits FIRST_STREAMS": 100,
    "kubeapi/http2/limits MAX_STREAMS": 1000,
    "kubeapi/http2/limits HEADER_TABLE_BYTES": 4096,
    "kubeapi/http2/limits RESERVED_STREAMS": 30,
    "kubeapi/http2/limits MAX_CONNECTIONS": 16,
    "kubeapi/http2/limits MAX_ENDING": 8,
    "kubeapi/http2/limits MAX_REFUSALS": 3,
    "kubeapi/http2/limits READ_IDLE_S": 15.0,
    "kubeapi/http2/limits PING_TIMEOUT_S": 10.0,
    "kubeapi/http2/limits IDLE_S": 60.0,
    "kubeapi/http2/limits CLOSE_S": 2.0,
    "kubeapi/http2/limits CONTROL_BURST": 2000,
    "kubeapi/http2/limits CONTROL_PER_S": 100.0,
    "kubeapi/http2/limits CONTROL_PER_STREAM": 20,
    "kubeapi/transport MAX_ANSWER_BYTES": 268435456,
}


@pytest.mark.parametrize(("place", "value"), STATED.items())
def test_stated(place: str, value: float) -> None:
    found = stated(place)
    assert (type(found), found) == (type(value), value)
