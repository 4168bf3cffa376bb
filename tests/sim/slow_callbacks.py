"""How long the agent keeps its event loop: CPU time of each callback, the world's work apart.

The simulated loop does in place what threads would do, and the simulated API answers in the
caller's task: neither is the agent's.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.kit.costs import set_aside, slowness
from tests.sim import api
from tests.sim.loop import LIFE, WORLD, SimLoop


class SlowCallbacks:
    """Callbacks that take longer than ``least_s`` seconds on the machine that limits are meant for.

    Each is (seconds, how many times slower this machine was just then, task or callback).
    """

    def __init__(self, least_s: float) -> None:
        self.found: list[tuple[float, float, str]] = []
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
            # other load comes and goes: how slow the machine was earlier does not count
            if took > self._least and took > self._least * (slower := slowness()):
                self.found.append((took, slower, _who(handle)))

        return _run

    def apart(self, work: Callable[..., Any]) -> Callable[..., Any]:
        """A function whose time is not the agent's."""

        def run(*args: Any, **more: Any) -> Any:
            begun = time.thread_time()
            self._depth += 1
            try:
                return work(*args, **more)
            finally:
                self._depth -= 1
                if not self._depth:
                    self._others += time.thread_time() - begun

        return run


def _who(handle: Any) -> str:
    callback = handle._callback
    task = getattr(callback, "__self__", None)
    return task.get_name() if isinstance(task, asyncio.Task) else repr(callback)[:200]


@contextmanager
def slow_callbacks(least_s: float) -> Iterator[SlowCallbacks]:
    """Measure while in the block.

    The garbage collector skips all that earlier tests have left: a full collection of that takes
    longer than any callback of an agent.
    """
    slow = SlowCallbacks(least_s)
    set_aside()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(asyncio.Handle, "_run", slow.timed(asyncio.Handle._run))
        patch.setattr(SimLoop, "run_in_executor", slow.apart(SimLoop.run_in_executor))
        patch.setattr(api.SimKubeApi, "_answer", slow.apart(api.SimKubeApi._answer))
        patch.setattr(api, "_on_the_wire", slow.apart(api._on_the_wire))
        yield slow
