"""Which version of the CSI a driver is used with. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable

Version = tuple[int, ...]
_VERSION = re.compile(r"\s*v?(\d{1,9}(?:\.\d{1,9}){1,8})(?:[-+].*)?\s*", re.ASCII)


def highest_supported(versions: Iterable[str]) -> Version | None:
    """The highest 1.x; None: there is none. Unreadable versions are skipped."""
    read = (_VERSION.fullmatch(text) for text in versions)
    numbers = (tuple(map(int, match[1].split("."))) for match in read if match is not None)
    return max((version for version in numbers if version[0] == 1), default=None)
