"""An asyncio event loop whose clock jumps to the next timer as soon as nothing is left to do.

An hour of back-offs takes milliseconds. It must never wait for real time, except for the end of
work in threads (``asyncio.to_thread``), which takes no virtual time at all.
"""

from __future__ import annotations

import asyncio
import functools
import selectors
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Executor
from typing import Any, ParamSpec, TypeVar, TypeVarTuple, Unpack

P = ParamSpec("P")
T = TypeVar("T")
Ts = TypeVarTuple("Ts")

EPOCH = 1_700_000_000.0
"""Unix seconds at which virtual time starts."""


class Deadlock(AssertionError):
    """All tasks wait, and no timer or thread is left that could wake one."""


class _JumpingSelector(selectors.DefaultSelector):
    """Polls real descriptors, and moves the clock where the loop would sleep."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.threads = 0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if ready or timeout == 0:
            return ready
        if self.threads:
            return super().select(None)
        if timeout is None:
            raise Deadlock("every task waits, and no timer is set")
        self.now += max(timeout, 0.0)
        return []


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """The loop; ``time()`` starts at 0."""

    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        self.wall_step = 0.0
        """Seconds by which the wall clock of this machine is ahead; negative: behind."""
        self.closers: list[Callable[[], Awaitable[None]]] = []
        """Called in :func:`run` when the main coroutine has ended."""
        super().__init__(self._jumping)
        self._clock_resolution = 1e-9

    def time(self) -> float:
        return self._jumping.now

    def run_in_executor(
        self, executor: Executor | None, func: Callable[[Unpack[Ts]], T], *args: *Ts
    ) -> asyncio.Future[T]:
        self._jumping.threads += 1
        future = super().run_in_executor(executor, func, *args)
        future.add_done_callback(self._thread_done)
        return future

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:
        self._jumping.threads += 1
        try:
            await super().shutdown_default_executor()
        finally:
            self._jumping.threads -= 1

    def _thread_done(self, _future: asyncio.Future[Any]) -> None:
        self._jumping.threads -= 1


class LoopClock:
    """The wall clock of virtual time (:class:`kubeletpy.base.clock.Clock`)."""

    def __init__(self, epoch: float = EPOCH, *, elsewhere: bool = False) -> None:
        """``elsewhere``: the clock of another machine, which is never set."""
        self._epoch = epoch
        self._elsewhere = elsewhere

    def now(self) -> float:
        loop = asyncio.get_running_loop()
        step = 0.0 if self._elsewhere else getattr(loop, "wall_step", 0.0)
        return self._epoch + loop.time() + step


def step_wall_clock(seconds: float) -> None:
    """Set the wall clock of this machine by these seconds; the loop's clock is unchanged."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualTimeLoop)
    loop.wall_step += seconds


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end on virtual time. AssertionError: it left a task behind."""
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        loop = runner.get_loop()
        result = runner.run(_closed_at_its_end(main))
    left = asyncio.all_tasks(loop)
    assert not left, f"started while all tasks were canceled: {left}"
    return result


async def _closed_at_its_end(main: Coroutine[Any, Any, T]) -> T:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualTimeLoop)
    try:
        return await main
    finally:
        for close in loop.closers:
            await close()


def close_at_the_end(close: Callable[[], Awaitable[None]]) -> None:
    """Close something before the running loop cancels what is left.

    A component that starts a task when another is canceled would leave one behind. asyncio logs
    an error when such a task is collected, which is during another test.
    """
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualTimeLoop)
    loop.closers.append(close)


def on_virtual_time(test: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, T]:
    """Make a coroutine function a plain test that runs on virtual time.

    ``pytestmark = pytest.mark.virtual_time`` does so for all coroutines of a module.
    """

    @functools.wraps(test)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> T:
        return run(test(*args, **kwargs))

    return wrapper


async def settle() -> None:
    """Run all tasks that can run without time passing."""
    for _ in range(50):
        await asyncio.sleep(0)


async def eventually(condition: Callable[[], bool], within: float = 600.0) -> None:
    """Let virtual time pass until a condition holds; AssertionError when it never does."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + within
    while not condition():
        assert loop.time() < deadline, f"still not so after {within} s"
        await asyncio.sleep(0.001)


async def timed(awaitable: Awaitable[T]) -> tuple[T, float]:
    """The result and the virtual seconds it took."""
    loop = asyncio.get_running_loop()
    start = loop.time()
    return await awaitable, loop.time() - start
