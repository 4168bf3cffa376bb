"""Whether words say that a volume is in use. Pure."""

from __future__ import annotations

import re

_BUSY = re.compile(r"\bbusy\b|\bEBUSY\b|\bin use\b|\bstill mounted\b", re.I)
READ = 4096
"""Characters at their end that are looked at."""


def says_busy(words: str) -> bool:
    """Whether a refusal says that the volume is in use: as libc, umount(8) and drivers word it."""
    return _BUSY.search(words[-READ:]) is not None
