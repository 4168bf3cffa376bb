"""A compressed watch is divided so that every reader gets each event at once."""

from __future__ import annotations

import zlib

import pytest

from kubeletpy_up.http.responses import member

_GZIP = 16 + zlib.MAX_WBITS
_FLUSHED = b"\x00\x00\xff\xff"
"""An empty stored block, which ends a sync flush."""


@pytest.mark.parametrize("size", [1, 100, 100_000])
def test_all_data_of_a_member_is_flushed_before_its_end(size: int) -> None:
    """Go's reader holds back data that arrives with a member's end until the next member begins."""
    data = bytes(range(256)) * (size // 256) + b"x" * (size % 256)
    packed = member(data)
    flushed = packed[: packed.rindex(_FLUSHED) + len(_FLUSHED)]
    assert zlib.decompressobj(_GZIP).decompress(flushed) == data
    whole = zlib.decompressobj(_GZIP)
    assert whole.decompress(packed) == data
    assert (whole.eof, whole.unused_data) == (True, b"")
