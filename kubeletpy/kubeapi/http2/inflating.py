"""A gzip body as it arrives, in pieces of a bounded size.

An API server compresses answers of 128 KiB and more, watches never.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator

from kubeletpy.kubeapi.transport import TransportError

PIECE_BYTES = 1024 * 1024
"""What comes out at once at most, however well it was compressed."""
_GZIP = 16 + zlib.MAX_WBITS


class Inflater:
    """Takes the bytes of a body in order; call :meth:`end` after the last."""

    def __init__(self) -> None:
        self._state = zlib.decompressobj(_GZIP)

    def take(self, data: bytes) -> Iterator[bytes]:
        """What these bytes are, piece by piece. Raises TransportError."""
        while data:
            try:
                piece = self._state.decompress(data, PIECE_BYTES)
            except zlib.error as error:
                raise TransportError(f"the answer is no gzip: {error}") from None
            if self._state.unused_data:
                raise TransportError("the answer goes on after its gzip has ended")
            data = self._state.unconsumed_tail
            if piece:
                yield piece

    def end(self) -> None:
        """The body is over. Raises TransportError if the gzip is not."""
        if not self._state.eof:
            raise TransportError("the answer ends before its gzip")
