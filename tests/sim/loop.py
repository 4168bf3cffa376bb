"""The event loop of a simulation: virtual time, threads inline, and processes that can be killed.

A *life* is one run of a simulated process (the agent between its start and its death). Every task
and timer belongs to the life that made it, so ``kill`` ends one life at any instant and nothing of
it runs on. Life 0 is the world: the runtime, the API, users and the test itself.
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import os
from collections.abc import Callable, Coroutine
from contextvars import Context, ContextVar, copy_context
from typing import Any

from tests.kit.virtual_time import VirtualTimeLoop

LIFE: ContextVar[int] = ContextVar("life", default=0)
WORLD = 0
MAX_DEATH_ROUNDS = 50
PRUNE_EVERY = 200


def seeds(runs: int) -> list[int]:
    """The seeds of a test of histories: the one in KUBELETPY_SIM_SEED, or ``runs`` of them."""
    one = os.environ.get("KUBELETPY_SIM_SEED")
    return [int(one)] if one else list(range(runs))


class StillAlive(AssertionError):
    """A killed task goes on although it was cancelled again and again."""


class _NumberedTask(asyncio.Task[Any]):
    """Sets of tasks, as a TaskGroup cancels them, have the same order in each process: by default
    it hangs on where tasks lie in memory."""

    def __init__(self, number: int, coro: Coroutine[Any, Any, Any], **more: Any) -> None:
        self._number = number
        super().__init__(coro, **more)

    def __hash__(self) -> int:
        return self._number


class SimLoop(VirtualTimeLoop):
    """Deterministic: work for threads is done at once, in the caller's place."""

    def __init__(self) -> None:
        super().__init__()
        self._lives: dict[int, dict[asyncio.Task[Any], None]] = {}
        self._numbers = itertools.count()
        self.set_task_factory(self._make_task)  # type: ignore[arg-type]

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Any, *args: Any
    ) -> asyncio.Future[Any]:
        future = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:  # noqa: BLE001 - handed to whoever waits, as an executor does
            future.set_exception(error)
        return future

    def tasks_of(self, life: int) -> list[asyncio.Task[Any]]:
        """The tasks of a life that are not done."""
        return [task for task in self._lives.get(life, ()) if not task.done()]

    def timers_of(self, life: int) -> list[asyncio.TimerHandle]:
        """The timers that a life has set."""
        return [
            handle
            for handle in self._scheduled  # type: ignore[attr-defined]
            if not handle.cancelled() and handle._context.get(LIFE, WORLD) == life
        ]

    async def kill(self, life: int) -> None:
        """End a life as ``kill -9`` does, without any time passing.

        Its tasks are cancelled; who gives them calls to make must refuse those of a dead life.
        """
        for _ in range(MAX_DEATH_ROUNDS):
            tasks = self.tasks_of(life)
            for task in tasks:
                task.cancel()
            for timer in self.timers_of(life):
                timer.cancel()
            if not tasks:
                self._lives.pop(life, None)
                return
            await asyncio.sleep(0)
        raise StillAlive(f"after its death: {tasks}")

    def _make_task(
        self, loop: Any, coro: Coroutine[Any, Any, Any], context: Context | None = None
    ) -> asyncio.Task[Any]:
        life = (context or copy_context()).get(LIFE, WORLD)
        task = _NumberedTask(next(self._numbers), coro, loop=loop, context=context)
        tasks = self._lives.setdefault(life, {})
        tasks[task] = None
        if len(tasks) % PRUNE_EVERY == 0:
            for done in [task for task in tasks if task.done()]:
                del tasks[done]
        return task


def in_life(life: int) -> Context:
    """A context whose tasks and timers belong to a life."""
    context = copy_context()
    context.run(LIFE.set, life)
    return context


def spawn(
    work: Coroutine[Any, Any, Any], life: int = WORLD, name: str | None = None
) -> asyncio.Task[Any]:
    """Start a task that belongs to a life, whoever starts it."""
    return asyncio.get_running_loop().create_task(work, name=name, context=in_life(life))


def call_later(seconds: float, callback: Callable[..., Any], *args: Any) -> asyncio.TimerHandle:
    """Set a timer of the world."""
    loop = asyncio.get_running_loop()
    return loop.call_later(seconds, callback, *args, context=in_life(WORLD))


def run(main: Coroutine[Any, Any, Any]) -> Any:
    """Run a simulation to its end.

    Without collections of garbage: a generator that only they find is closed by a task, at a moment
    that hangs on how much the process has allocated.
    """
    was = gc.isenabled()
    gc.disable()
    try:
        with asyncio.Runner(loop_factory=SimLoop) as runner:
            return runner.run(main)
    finally:
        if was:
            gc.enable()
