"""A body compressed as kube-apiserver compresses a watch: one gzip member for each flush.

Source: the feature gate WatchListCompression of Kubernetes 1.37.
"""

from __future__ import annotations

import zlib


def opened(data: bytes) -> tuple[bytes, bytes]:
    """A gzip member in two parts: all of its data, flushed, and then its end."""
    packing = zlib.compressobj(1, zlib.DEFLATED, 16 + zlib.MAX_WBITS)
    return packing.compress(data) + packing.flush(zlib.Z_SYNC_FLUSH), packing.flush()


def member(data: bytes) -> bytes:
    """A complete gzip member."""
    return b"".join(opened(data))
