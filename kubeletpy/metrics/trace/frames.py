"""Reading the stack of another thread without crashing the interpreter.

CPython 3.11 makes a frame object for each caller that is read. Making one may start a garbage
collection, whose finalizers let the other thread run: the frame that is being read ends meanwhile,
and the interpreter crashes with a segmentation fault.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def reading_frames() -> Iterator[None]:
    """Start no garbage collection while frames of another thread are read, in whichever thread."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
