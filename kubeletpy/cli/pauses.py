"""Shortens pauses of the event loop: garbage collections, and waits for the interpreter's lock."""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

OLDEST_GENERATION = 2
EVERYTHING_EVERY_S = 3600.0
"""Interval of collections that examine frozen objects too. With nine pods of a megabyte each such
a collection took 0.04 to 0.19 s, several of them a second."""
FREEZE_AT = 20_000
"""Objects in the oldest generation after a full collection from which on they are frozen, that is,
left out of later collections. A collection that examines this many takes 5 to 20 ms. Fewer are not
frozen: among them are connections that will soon be garbage, and a cycle that is frozen while it is
alive stays for an hour. 30,000 connections that ended in their TLS handshake left 900 MB when every
full collection froze what it found alive."""
SWITCH_S = 0.001
"""Seconds that a thread waits for the lock before it interrupts its holder. With Python's
5 ms the loop, which releases it at each system call, waited up to 0.1 s for six threads that write
volumes."""


class Collections:
    """Keeps full collections short: objects are frozen once there are FREEZE_AT of them.

    Objects without cycles are freed with their last reference, as ever. Cycles that were frozen
    while they were alive are found within an hour, others by the next full collection.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        """``now``: seconds, of any origin."""
        self._now = now
        self._everything_at = now()

    def begin(self) -> None:
        """Freeze what exists (modules, classes)."""
        gc.freeze()
        gc.callbacks.append(self.collected)

    def collected(self, phase: str, info: Mapping[str, int]) -> None:
        """See ``gc.callbacks``."""
        if phase != "stop" or info["generation"] != OLDEST_GENERATION:
            return
        now = self._now()
        if now - self._everything_at >= EVERYTHING_EVERY_S:
            self._everything_at = now
            gc.unfreeze()  # the next collection examines all of it
        elif len(gc.get_objects(OLDEST_GENERATION)) >= FREEZE_AT:
            gc.freeze()


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
