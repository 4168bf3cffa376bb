"""Certificates as PEM text and as DER. Pure."""

from __future__ import annotations

import base64
import binascii
import contextlib
from collections.abc import Iterator

_BEGIN, _END = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"


def certificates(text: str) -> Iterator[bytes]:
    """The certificates (DER) of a text in their order; headers and all else are left out."""
    lines: list[str] | None = None
    for line in map(str.strip, text.splitlines()):
        if line == _BEGIN:
            lines = []
        elif line == _END and lines is not None:
            with contextlib.suppress(binascii.Error, ValueError):
                yield base64.b64decode("".join(lines), validate=True)
            lines = None
        elif lines is not None and ":" not in line:  # a header of the block has a colon
            lines.append(line)


def block(der: bytes) -> bytes:
    """One certificate as a PEM block, in lines of 64."""
    text = base64.b64encode(der).decode()
    lines = (text[start : start + 64] for start in range(0, len(text), 64))
    return "\n".join((_BEGIN, *lines, _END, "")).encode()
