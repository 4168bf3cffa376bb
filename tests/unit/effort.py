"""The amount of work that code does, as a number that no load of the machine changes."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any


def calls(run: Callable[[], object]) -> int:
    """Calls of functions, in Python and in C, while ``run`` runs. A call takes 0.05 to 0.2 µs and
    what it does."""
    count = 0

    def seen(_frame: FrameType, event: str, _argument: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(seen)
    try:
        run()
    finally:
        sys.setprofile(before)
    return count
