"""What the interpreter stops the event loop for, made short: collections of garbage, and waits for
the interpreter's lock.
"""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

OLDEST_GENERATION = 2
EVERYTHING_EVERY_S = 3600.0
"""What one collection has found alive, the next leave out for so long. With nine pods of a megabyte
each took 0.04 to 0.19 s, several of them a second."""
SWITCH_S = 0.001
"""What a thread waits for the lock before it asks the one that has it. With Python's 5 ms the loop,
which lets go of it at each system call, waited up to 0.1 s for six threads that write volumes."""


class Collections:
    """Each collection looks only at what has come since the one before; now and then, at all.

    Objects without cycles go with their last reference, as ever. Cycles that outlived a collection
    and were garbage later are found within an hour.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        """``now``: seconds, of any origin."""
        self._now = now
        self._everything_at = now()

    def begin(self) -> None:
        """What exists (modules, classes) counts as found alive."""
        gc.freeze()
        gc.callbacks.append(self.collected)

    def collected(self, phase: str, info: Mapping[str, int]) -> None:
        """See ``gc.callbacks``."""
        if phase != "stop" or info["generation"] != OLDEST_GENERATION:
            return
        now = self._now()
        if now - self._everything_at < EVERYTHING_EVERY_S:
            gc.freeze()
        else:
            self._everything_at = now
            gc.unfreeze()  # the next collection looks at all of it


@contextmanager
def importing() -> Iterator[None]:
    """The agent's modules are imported in it, once; what they make is no garbage."""
    gc.disable()  # scanning it took a tenth of the import time
    try:
        yield
    finally:
        sys.setswitchinterval(SWITCH_S)
        Collections().begin()
        gc.enable()
