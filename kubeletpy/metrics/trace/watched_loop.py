"""An event loop that measures how long its turns take, and a thread that sees what blocks it.

Turns are timed where the loop waits for events: a waiting loop costs nothing. The thread checks
four times a second, and samples the loop's stack only while a turn is in progress. It logs turns
that were long because of what they did, not those that waited for a processor.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import selectors
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from kubeletpy.metrics.trace.stalls import LONG_S, MAX_FRAMES, StallLines, TurnLog, Waits


@contextmanager
def reading_frames() -> Iterator[None]:
    """Start no garbage collection, in whichever thread, while frames of another one are read.

    CPython 3.11 makes a frame object for each caller that is read. Making one may start a garbage
    collection, whose finalizers let the other thread run: the frame that is being read ends
    meanwhile, and the interpreter crashes with a segmentation fault.
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


log = logging.getLogger(__name__)


class _TimedSelector(selectors.DefaultSelector):
    def __init__(self, turns: TurnLog) -> None:
        super().__init__()
        self._turns = turns

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self._turns.end(time.monotonic())
        ready = super().select(timeout)
        self._turns.begin(time.monotonic())
        return ready


class WatchedLoop(asyncio.SelectorEventLoop):
    """An event loop whose ``turns`` are timed."""

    def __init__(self) -> None:
        self.turns = TurnLog()
        super().__init__(_TimedSelector(self.turns))


@contextmanager
def watching(loop: WatchedLoop, reported: Callable[[], None]) -> Iterator[None]:
    """Watch this thread's running loop; another thread calls ``reported`` on each stall."""
    over = threading.Event()
    task = Path(f"/proc/self/task/{threading.get_native_id()}")
    thread = threading.Thread(
        target=_watch,
        args=(loop.turns, threading.get_ident(), task, over, reported),
        name="loop-watch",
        daemon=True,
    )
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def waited_for_processor(task: Path) -> float:
    """Seconds that a thread was ready to run and did not; 0 if the kernel does not count them."""
    try:
        return int((task / "schedstat").read_text().split()[1]) / 1e9
    except OSError:
        return 0.0


def _watch(
    turns: TurnLog, ident: int, task: Path, over: threading.Event, reported: Callable[[], None]
) -> None:
    lines = StallLines()
    waits = Waits(waited_for_processor(task))
    while not over.wait(LONG_S):
        if turns.busy:
            number = turns.turn
            turns.record_stack(number, stack_of(ident))
        stall = turns.take_stall()
        waited = waits.during_turn(waited_for_processor(task), turns.turn if turns.busy else None)
        if stall is None:
            continue
        reported()
        if stall.seconds - waited < LONG_S:
            continue  # the stack that was seen is not what took the time
        if (before := lines.add(time.monotonic())) is not None:
            found = {"seconds": round(stall.seconds, 3), "in": " < ".join(reversed(stall.stack))}
            more = {"unlogged": before} if before else {}
            log.warning("the event loop was blocked", extra=found | more)


def stack_of(ident: int) -> tuple[str, ...]:
    """A thread's innermost frames, innermost last; names and line numbers, never values."""
    with reading_frames():
        frame = sys._current_frames().get(ident)
        if frame is None:
            return ()
        found = [(f.f_code, line) for f, line in traceback.walk_stack(frame)]
    return tuple(
        f"{code.co_qualname} ({'/'.join(code.co_filename.split('/')[-2:])}:{line})"
        for code, line in reversed(found[:MAX_FRAMES])
    )
