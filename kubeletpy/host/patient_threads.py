"""Threads for calls that may never return: on paths that pods name, as a network disk that is gone.

They are apart from those of all other file work, which must go on, and nobody waits for them when
the process ends.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, Future
from functools import partial
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

AT_ONCE = 32
LINGER_S = 0.5
"""How long a thread waits for another call before it ends: a log that is read block by block by a
thread for each left memory behind in the allocator's arena of each."""


class PatientThreads(Executor):
    """For ``run_in_executor``; at most ``limit`` calls at once, what is more waits."""

    def __init__(self, limit: int = AT_ONCE) -> None:
        self._limit = limit
        self._changed = threading.Condition()
        self._running = self._idle = 0
        self._waiting: deque[tuple[Future[Any], Callable[[], Any]]] = deque()

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Call it on a thread, as soon as there is one."""
        future: Future[T] = Future()
        with self._changed:
            self._waiting.append((future, lambda: fn(*args, **kwargs)))
            if self._idle >= len(self._waiting):
                self._changed.notify()
                return future
            if self._running >= self._limit:
                return future
            self._running += 1
        threading.Thread(target=self._work, name="patient", daemon=True).start()
        return future

    async def run(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Call it on a thread and wait for it; a cancellation does not wait."""
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
