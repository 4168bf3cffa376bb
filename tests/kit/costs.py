"""Costs of code: memory, instructions, descriptors, turns of the loop, and objects in cycles.

The agent collects all of its garbage once an hour only (kubeletpy/cli/process.py): what is in
cycles grows until then.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import json
import os
import sys
import time
import weakref
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

MI = 1 << 20


def resident() -> int:
    """Resident bytes, after the C library has returned its free pages to the system."""
    ctypes.CDLL(None).malloc_trim(0)
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


async def left_by(
    peers: Callable[[int], Awaitable[object]], many: int, *, before: int = 200
) -> int:
    """Bytes that ``many`` peers leave behind without the help of the garbage collector.

    ``peers`` has so many peers come and go; ``before`` of them fill caches and free lists first.
    """
    with no_collections():
        await peers(before)
        began = resident()
        await peers(many)
        return resident() - began


class Turns:
    """Attributes: ``longest``: CPU seconds of the longest turn; ``count``: turns so far."""

    def __init__(self) -> None:
        self.longest = 0.0
        self.count = 0
        self._at = time.thread_time()
        self._next: asyncio.Handle | None = None

    def _turn(self) -> None:
        now = time.thread_time()
        self.longest = max(self.longest, now - self._at)
        self._at = now
        self.count += 1
        self._next = asyncio.get_running_loop().call_soon(self._turn)

    def _end(self) -> None:
        if self._next is not None:
            self._next.cancel()


@contextmanager
def turns_measured() -> Iterator[Turns]:
    """Measure the turns of the running loop, without those of the garbage collector.

    The loop never waits meanwhile: a turn begins as soon as the last one has ended.
    """
    gc.collect()
    gc.disable()
    turns = Turns()
    turns._turn()
    try:
        yield turns
    finally:
        turns._end()
        gc.enable()


_YARDSTICK = json.dumps([{"name": f"v{number}", "of": {"key": number}} for number in range(20_000)])
_YARDSTICK_S = 0.012
"""CPU time of decoding it on the quiet machine that limits are meant for."""


def slowness() -> float:
    """How many times slower than that machine this one is just now, 1 at least.

    Other users of a core's caches and clock make the same work take more CPU time.
    """
    begun = time.thread_time()
    json.loads(_YARDSTICK)
    return max(1.0, (time.thread_time() - begun) / _YARDSTICK_S)


def open_descriptors() -> int:
    """How many descriptors are open; what earlier tests have left to the collector is closed."""
    gc.collect()
    return len(list(Path("/proc/self/fd").iterdir()))


def set_aside() -> None:
    """Leave all objects that exist out of later collections, as the agent does with its modules.

    A full collection examined the half a million objects of all test modules, which took 0.3 s each
    time: a fifth of the CPU time of all unit tests.
    """
    gc.collect()
    gc.freeze()


@contextmanager
def no_collections() -> Iterator[None]:
    """Turn off the collector: objects in a block die only with their last reference."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


async def leaves_when_cancelled(work: Coroutine[Any, Any, Any], waits: Awaitable[object]) -> bool:
    """Whether a task that is cancelled, once ``waits`` is over, goes with its last reference."""
    with no_collections():
        task = asyncio.ensure_future(work)
        await waits
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()
        removed = weakref.ref(task)
        del task
        await asyncio.sleep(0)
        return removed() is None


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


SIZE = 12_000


FEWEST, MOST = 3, 20
"""How often both sizes are measured: on a busy machine one measurement is longer, never shorter."""


def is_linear(work: Callable[[int], object], size: int = SIZE) -> bool:
    """Whether ``work(size)`` takes less than eight times as long for four times the size.

    Quadratic work takes sixteen times as long. The shortest of several measurements in processor
    time counts. Other processes share caches and the core's speed with this one, so measurements
    continue until both minima settle the question. The garbage collector, which visits all objects
    of the process, is off meanwhile.
    """
    collecting = gc.isenabled()
    gc.disable()
    try:
        small = large = float("inf")
        for round_ in range(MOST):
            small = min(small, _seconds(work, size))
            large = min(large, _seconds(work, 4 * size))
            if round_ + 1 >= FEWEST and large < 8 * small:
                return True
        return False
    finally:
        if collecting:
            gc.enable()


def _seconds(work: Callable[[int], object], size: int) -> float:
    begun = time.thread_time()
    work(size)
    return time.thread_time() - begun


class PerTurn:
    """Counts events in each turn of the loop."""

    def __init__(self) -> None:
        self.turns: list[int] = []
        """Number of events in each turn with events."""
        self._now = 0
        self._ends: asyncio.Handle | None = None

    @property
    def most(self) -> int:
        """Most events in one turn."""
        return max([self._now, *self.turns])

    @property
    def total(self) -> int:
        """Events so far."""
        return self._now + sum(self.turns)

    def count(self) -> None:
        """Count an event."""
        self._now += 1

    def _turn(self) -> None:
        if self._now:
            self.turns.append(self._now)
            self._now = 0
        self._ends = asyncio.get_running_loop().call_soon(self._turn)


@contextmanager
def events_per_turn() -> Iterator[PerTurn]:
    """Counts while in the block."""
    counted = PerTurn()
    counted._turn()
    try:
        yield counted
    finally:
        if counted._ends is not None:
            counted._ends.cancel()
