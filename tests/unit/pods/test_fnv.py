"""FNV hashes against the authors' own test vectors."""

from __future__ import annotations

import pytest

from kubeletpy.pods.pod import fnv1a_32, fnv1a_64


@pytest.mark.parametrize(
    ("data", "short", "long"),
    [
        (b"", 0x811C9DC5, 0xCBF29CE484222325),
        (b"a", 0xE40C292C, 0xAF63DC4C8601EC8C),
        (b"foobar", 0xBF9CF968, 0x85944171F73967E8),
    ],
)
def test_vectors(data: bytes, short: int, long: int) -> None:
    assert (fnv1a_32(data), fnv1a_64(data)) == (short, long)
