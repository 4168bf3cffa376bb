"""Tasks that no caller leaves behind, the backlog of pods that work waits for, and turns.

``asyncio.gather`` raises its first error while the other calls still run, and a canceled
``asyncio.wait`` leaves its tasks running. Whoever starts tasks for one purpose uses these functions
instead, so that nothing continues after an error, a cancellation or the agent's stop.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, TypeVar, overload

T = TypeVar("T")
U = TypeVar("U")
V = TypeVar("V")


@overload
async def run_together(first: Awaitable[T], second: Awaitable[U], /) -> tuple[T, U]: ...
@overload
async def run_together(
    first: Awaitable[T], second: Awaitable[U], third: Awaitable[V], /
) -> tuple[T, U, V]: ...
@overload
async def run_together(*work: Awaitable[T]) -> tuple[T, ...]: ...
async def run_together(*work: Awaitable[Any]) -> tuple[Any, ...]:
    """Await all of them side by side; returns their results in order.

    The first error cancels the others and is raised once all have ended. A cancellation does the
    same.
    """
    tasks = [asyncio.ensure_future(each) for each in work]
    try:
        return tuple(await asyncio.gather(*tasks))  # noqa: TID251 - those left end below
    except BaseException:
        await cancel_tasks(tasks)
        raise
    finally:
        tasks.clear()  # the error refers to this frame, and its task to the error


async def run_all(*work: Awaitable[T]) -> list[T]:
    """Await all of them side by side to their ends; returns their results in order.

    An error cancels no other; the first one in order is raised once all have ended.
    """
    found = await asyncio.gather(*work, return_exceptions=True)  # noqa: TID251 - it waits for all
    results: list[T] = []
    for each in found:
        if isinstance(each, BaseException):
            raise each
        results.append(each)
    return results


async def cancel_tasks(tasks: Iterable[asyncio.Future[Any] | None]) -> None:
    """Cancel tasks and wait until all have ended; None is skipped.

    A caller that is canceled meanwhile cancels them once more, and still waits.
    """
    left = {task for task in tasks if task is not None and not task.done()}
    canceled: asyncio.CancelledError | None = None
    for task in left:
        task.cancel()
    while left := {task for task in left if not task.done()}:
        try:
            await asyncio.wait(left)
        except asyncio.CancelledError as error:
            canceled = error
            for task in left:
                task.cancel()
    if canceled is not None:
        raise canceled


@asynccontextmanager
async def background(
    work: Coroutine[Any, Any, T], name: str | None = None
) -> AsyncIterator[asyncio.Task[T]]:
    """Run ``work`` in a task while the block runs; afterwards it has ended, canceled if need be."""
    task = asyncio.create_task(work, name=name)
    try:
        yield task
    finally:
        await cancel_tasks((task,))


async def until_one_ends(*tasks: asyncio.Task[Any]) -> None:
    """Wait until one of them has ended; it raises nothing of theirs."""
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)


async def wait_within(event: asyncio.Event, seconds: float | None) -> bool:
    """Wait for an event for so long, or for any time; return whether it was set in time."""
    return await _set_in(event, asyncio.timeout(seconds))


async def wait_until(event: asyncio.Event, at: float | None) -> bool:
    """Like :func:`wait_within`, until a time of the event loop's clock."""
    return await _set_in(event, asyncio.timeout_at(at))


async def _set_in(event: asyncio.Event, limit: asyncio.Timeout) -> bool:
    try:
        async with limit:
            return await event.wait()
    except TimeoutError:
        return False


class Lasting:
    """Work that continues when its caller is canceled, such as a write that must not be cut off."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    async def finish(self, work: Coroutine[Any, Any, T]) -> T:
        """Await ``work``, which is completed even if the caller is canceled meanwhile."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        try:
            return await asyncio.shield(task)
        finally:
            del task  # its error refers to this frame

    async def close(self) -> None:
        """Wait for all that continues."""
        if self._tasks:
            await asyncio.wait(self._tasks)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # raised in the caller, if it still waits


class Backlog:
    """Counts pods that wait for their turn to start or stop.

    In a burst every core is busy, and a pod's start waits for whatever else is done. Work that
    nobody waits for is done afterwards, or after a bounded time.
    """

    def __init__(self) -> None:
        self._waiting = 0
        self._empty = asyncio.Event()
        self._empty.set()

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """A pod waits for its turn while the block runs."""
        self._waiting += 1
        self._empty.clear()
        try:
            yield
        finally:
            self._waiting -= 1
            if not self._waiting:
                self._empty.set()

    def __bool__(self) -> bool:
        """Whether a pod waits for its turn."""
        return self._waiting > 0

    async def cleared(self, at_most: float) -> None:
        """Wait until no pod waits for its turn, but at most ``at_most`` seconds."""
        if self and at_most > 0:
            await wait_within(self._empty, at_most)


class Turns:
    """Runs one piece of work in a turn of the event loop, in order of arrival.

    Servers that answer at the same moment hold the loop no longer than one of them.
    """

    def __init__(self) -> None:
        self._waiting: deque[Callable[[], None]] = deque()

    def add(self, work: Callable[[], None]) -> None:
        """Call ``work`` in a later turn; it must not raise."""
        self._waiting.append(work)
        if len(self._waiting) == 1:
            asyncio.get_running_loop().call_soon(self._next)

    def _next(self) -> None:
        work = self._waiting.popleft()
        if self._waiting:
            asyncio.get_running_loop().call_soon(self._next)
        work()
