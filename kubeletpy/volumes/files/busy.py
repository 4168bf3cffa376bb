"""Checks whether an error text states that a volume is in use. Pure."""

from __future__ import annotations

import re

_BUSY = re.compile(r"\bbusy\b|\bEBUSY\b|\bin use\b|\bstill mounted\b", re.I)
READ = 4096
"""Characters at the end of the text that are checked."""


def mentions_busy(words: str) -> bool:
    """Whether an error text, of libc, umount(8) or a driver, states that the volume is in use."""
    return _BUSY.search(words[-READ:]) is not None
