"""Limits of this package, defaults of fields."""

from __future__ import annotations

import pytest

from tests.stated import stated

STATED = {
    "kubeapi/protobuf_format LARGE": 65536,
    "kubeapi/protobuf_format _LENGTH": 4,
    "kubeapi/failing_watches FAILURES": 2,
    "kubeapi/failing_watches LASTING_S": 10.0,
    "kubeapi/formats MAX_EVENT_BYTES": 33554432,
    "kubeapi/formats MAX_BLANK_LINES": 1000,
    "kubeapi/inflating PIECE_BYTES": 65536,
    "kubeapi/inflating SLICE_BYTES": 16384,
    "kubeapi/inflating MAX_SILENT_BYTES": 16384,
    "kubeapi/inflating _GZIP": 31,
    "kubeapi/watch_slots MAX_POD_WATCHES": 64,
    "kubeapi/watch_slots MAX_WATCHES": 1536,
    "kubeapi/watch_slots MAX_HTTP1_WATCHES": 512,
}


@pytest.mark.parametrize(("place", "value"), STATED.items())
def test_stated(place: str, value: float) -> None:
    found = stated(place)
    assert (type(found), found) == (type(value), value)
