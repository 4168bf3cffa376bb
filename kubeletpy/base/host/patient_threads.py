"""Threads for calls that may never return: on paths that pods name, such as a lost network disk.

They are separate from the threads for all other file work, which must go on, and nothing waits for
them when the process ends. Also holds the threads for that other file work.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from functools import partial
from typing import Any, ParamSpec, TypeVar

from kubeletpy.base.host.errors import NoThread

P = ParamSpec("P")
T = TypeVar("T")

AT_ONCE = 32
LINGER_S = 0.5
"""How long a thread waits for another call before it ends. A log read block by block, with a new
thread per block, left memory behind in each thread's allocator arena."""


class PatientThreads(Executor):
    """For ``run_in_executor``; runs at most ``limit`` calls at once, others wait."""

    def __init__(self, limit: int = AT_ONCE) -> None:
        self._limit = limit
        self._changed = threading.Condition()
        self._running = self._idle = 0
        self._waiting: deque[tuple[Future[Any], Callable[[], Any]]] = deque()

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Call it on a thread as soon as one is free.

        Raises NoThread: there is none, and none can be made.
        """
        future: Future[T] = Future()
        with self._changed:
            self._waiting.append((future, lambda: fn(*args, **kwargs)))
            if self._idle >= len(self._waiting):
                self._changed.notify()
                return future
            if self._running >= self._limit:
                return future
            self._running += 1
        try:
            threading.Thread(target=self._work, name="patient", daemon=True).start()
        except RuntimeError:
            with self._changed:
                self._running -= 1
                mine = next((each for each in self._waiting if each[0] is future), None)
                if not self._running and mine is not None:
                    self._waiting.remove(mine)
                    raise NoThread from None
        return future

    async def run(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Call it on a thread and wait for it; cancellation does not wait."""
        # through the loop, as all calls on threads go: virtual time stands still for them
        return await asyncio.get_running_loop().run_in_executor(self, partial(fn, *args, **kwargs))

    def _work(self) -> None:
        while True:
            with self._changed:
                self._idle += 1
                called = self._changed.wait_for(lambda: bool(self._waiting), LINGER_S)
                self._idle -= 1
                if not called:
                    self._running -= 1
                    return
                future, call = self._waiting.popleft()
            if not future.set_running_or_notify_cancel():
                continue
            try:
                result = call()
            except BaseException as error:  # noqa: BLE001 - handed to whoever waits for it
                future.set_exception(error)
            else:
                future.set_result(result)


class SteadyThreads(ThreadPoolExecutor):
    """Threads that keep working when the machine can start no more: the event loop's own, and those
    that watch what pods use up.

    An executor of the standard library queues a call, fails to start a thread, raises as if the
    call had been refused, and runs it later anyway. Here a queued call waits for an existing
    thread. Raises RuntimeError: not even the first thread can be started.
    """

    def __init__(self, most: int | None = None, name: str = "asyncio") -> None:
        """``most`` at a time; None: as many as the standard library finds fit."""
        super().__init__(most, thread_name_prefix=name)
        self.submit(int).result()

    def _adjust_thread_count(self) -> None:
        # called with the new call in the queue, while there are fewer threads than there may be
        with contextlib.suppress(RuntimeError) if self._threads else contextlib.nullcontext():
            super()._adjust_thread_count()
