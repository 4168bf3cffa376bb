"""Decompresses a gzip body as it arrives, in pieces of a bounded size.

An API server compresses answers of 128 KiB and more. From Kubernetes 1.37 on it also compresses a
watch that begins with a list (gate WatchListCompression). Such a body is a series of gzip members,
one for each flush, so a body may contain any number of them. Must never hold back decompressed
bytes, also when their member has not ended yet.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncIterator, Iterator

from kubeletpy.kubeapi.transport import TransportError

PIECE_BYTES = 64 * 1024
"""Decompressed bytes that are returned at once at most, however well they were compressed."""
SLICE_BYTES = 16 * 1024
"""Compressed bytes that are processed at once: what is left of them is copied for each piece."""
MAX_SILENT_BYTES = 16 * 1024
"""Compressed bytes in a row that yield nothing (some 800 empty members, headers without end):
they cost time and a reader never sees them."""
_GZIP = 16 + zlib.MAX_WBITS


class Inflater:
    """Takes the bytes of a body in order; call :meth:`end` after the last."""

    def __init__(self) -> None:
        self._member = zlib.decompressobj(_GZIP)
        self._begun = False
        """Whether the current member has bytes."""
        self._members = 0
        """Members that have ended."""
        self._silent = 0

    def decompress(self, data: bytes) -> Iterator[bytes]:
        """Yield what these bytes decompress to, piece by piece. Raises TransportError."""
        for at in range(0, len(data), SLICE_BYTES):
            yield from self._decompress_slice(data[at : at + SLICE_BYTES])

    def _decompress_slice(self, data: bytes) -> Iterator[bytes]:
        pending = False
        while data or pending:
            self._begun = True
            try:
                piece = self._member.decompress(data, PIECE_BYTES)
            except zlib.error as error:
                raise TransportError(self._broken(error)) from None
            left = self._member.unused_data or self._member.unconsumed_tail
            self._silent = 0 if piece else self._silent + len(data) - len(left)
            if self._silent > MAX_SILENT_BYTES:
                raise TransportError(f"{self._silent} bytes of the answer's gzip contain nothing")
            data = left
            # a full piece may leave output inside zlib although it has taken all of its input
            pending = len(piece) == PIECE_BYTES
            if self._member.eof:
                self._member, self._begun, pending = zlib.decompressobj(_GZIP), False, False
                self._members += 1
            if piece:
                yield piece

    def end(self) -> None:
        """End the body. Raises TransportError if it ends inside a gzip member."""
        if self._begun:
            raise TransportError("the answer ends before its gzip")

    def _broken(self, error: zlib.error) -> str:
        if not self._members:
            return f"the answer is no gzip: {error}"
        return f"the answer is no gzip after its member {self._members}: {error}"


async def decompressed(encoding: str, chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Yield the chunks of a body without their Content-Encoding, each as soon as it arrives.

    Raises:
        TransportError: the encoding is neither gzip nor identity, or the bytes do not match it.
    """
    if encoding in ("", "identity"):
        async for chunk in chunks:
            yield chunk
        return
    if encoding != "gzip":
        raise TransportError("the answer has a content-encoding that was not requested")
    inflater = Inflater()
    async for chunk in chunks:
        for piece in inflater.decompress(chunk):
            yield piece
            await asyncio.sleep(0)  # a little may become a lot
    inflater.end()
