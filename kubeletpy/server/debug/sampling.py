"""Where the event loop's thread spends its CPU time, sampled by the kernel's profiling timer.

The timer runs only while CPU time is used, so an idle agent is not disturbed. Worker threads are
not sampled: they only read files. Must never leave the timer running.
"""

from __future__ import annotations

import asyncio
import signal
import time
from types import FrameType

from kubeletpy.server.debug.profile_proto import CodeLocation, Stack, Weight

PERIOD_S = 0.01
MAX_STACKS = 20_000
MAX_DEPTH = 128


class SamplingBusy(Exception):
    """Another sampling is under way."""


class Sampler:
    """One at a time; main thread only, as for signals."""

    def __init__(self) -> None:
        self._running = False
        self._stacks: dict[Stack, Weight] = {}
        self._last = 0

    async def sample(self, seconds: float) -> dict[Stack, Weight]:
        """The stacks sampled over this many seconds.

        Raises:
            SamplingBusy: another sampling is under way.
            ValueError: this is not the main thread.
        """
        if self._running:
            raise SamplingBusy
        self._stacks, self._last = {}, time.thread_time_ns()
        signal.signal(signal.SIGPROF, self._tick)
        self._running = True
        try:
            # restart system calls of other threads after the signal
            signal.siginterrupt(signal.SIGPROF, False)
            signal.setitimer(signal.ITIMER_PROF, PERIOD_S, PERIOD_S)
            await asyncio.sleep(seconds)
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
            signal.signal(signal.SIGPROF, signal.SIG_IGN)
            self._running = False
        return self._stacks

    def _tick(self, _number: int, frame: FrameType | None) -> None:
        now = time.thread_time_ns()
        spent, self._last = now - self._last, now
        places: list[CodeLocation] = []
        while frame is not None and len(places) < MAX_DEPTH:
            code = frame.f_code
            places.append(CodeLocation(code.co_qualname, code.co_filename, frame.f_lineno))
            frame = frame.f_back
        stack = tuple(places)
        weight = self._stacks.get(stack)
        if weight is None:
            if len(self._stacks) >= MAX_STACKS:
                return
            weight = self._stacks[stack] = Weight()
        weight.samples += 1
        weight.nanoseconds += spent
