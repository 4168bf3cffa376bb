"""How long the agent keeps its event loop: CPU time of each callback, the world's work apart.

The simulated loop does in place what threads would do, and the simulated API answers in the
caller's task: neither is the agent's.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.sim import api
from tests.sim.loop import LIFE, WORLD, SimLoop


class SlowCallbacks:
    """What took longer than ``least_s`` seconds, as (seconds, who)."""

    def __init__(self, least_s: float) -> None:
        self.found: list[tuple[float, str]] = []
        self._least = least_s
        self._others = 0.0
        self._depth = 0

    def timed(self, run: Callable[[Any], None]) -> Callable[[Any], None]:
        """Handle._run, with a clock."""

        def _run(handle: Any) -> None:
            if handle._context.get(LIFE, WORLD) == WORLD:
                run(handle)
                return
            self._others, begun = 0.0, time.thread_time()
            run(handle)
            took = time.thread_time() - begun - self._others
            if took > self._least:
                self.found.append((took, _who(handle)))

        return _run

    def apart(self, work: Callable[..., Any]) -> Callable[..., Any]:
        """A function whose time is not the agent's."""

        def run(*args: Any) -> Any:
            begun = time.thread_time()
            self._depth += 1
            try:
                return work(*args)
            finally:
                self._depth -= 1
                if not self._depth:
                    self._others += time.thread_time() - begun

        return run


def _who(handle: Any) -> str:
    callback = handle._callback
    task = getattr(callback, "__self__", None)
    return task.get_name() if isinstance(task, asyncio.Task) else repr(callback)[:200]


_YARDSTICK_S = 0.035
"""CPU time of :func:`_yardstick` on the quiet machine that limits are meant for."""


def slowness() -> float:
    """How many times slower than meant this machine is just now, 1 at least.

    Who shares a core's caches and clock makes the same work take more CPU time.
    """
    begun = time.thread_time()
    _yardstick()
    return max(1.0, (time.thread_time() - begun) / _YARDSTICK_S)


def _yardstick() -> None:
    """Work like the agent's: dictionaries, lists and strings."""
    for _ in range(20):
        made = [{"name": f"v{number}", "of": {"key": number}} for number in range(2000)]
        {entry["name"]: {**entry, "at": str(entry["of"])} for entry in made}


@contextmanager
def slow_callbacks(least_s: float) -> Iterator[SlowCallbacks]:
    """Measure while in the block. What earlier tests have left is not looked at by its collector:
    a full collection of that takes longer than any callback of an agent.
    """
    slow = SlowCallbacks(least_s)
    gc.collect()
    gc.freeze()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(asyncio.Handle, "_run", slow.timed(asyncio.Handle._run))
        patch.setattr(SimLoop, "run_in_executor", slow.apart(SimLoop.run_in_executor))
        patch.setattr(api.SimKubeApi, "_answer", slow.apart(api.SimKubeApi._answer))
        patch.setattr(api, "_on_the_wire", slow.apart(api._on_the_wire))
        try:
            yield slow
        finally:
            gc.unfreeze()
