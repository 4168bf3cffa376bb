"""Handling of large requests on a thread, so that they block the event loop only briefly.

One thread, one request at a time. A request's writes happen on the loop, if nothing that the
request has read has changed; else it starts over. Must never take small requests: the hop costs
more.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import Callable
from typing import Any, TypeVar

from kubeletpy_up import errors
from kubeletpy_up.registry.registry import Registry
from kubeletpy_up.storage.optimistic import OptimisticStore, Stale

T = TypeVar("T")

_ATTEMPTS = 5
_WAIT_S = 30.0


class Workshop:
    """Does the work of large requests. ``registry`` is the API on the loop."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._threads = concurrent.futures.ThreadPoolExecutor(1, "embedded-api")
        self._running: set[asyncio.Future[Any]] = set()
        self._closed = False

    async def call(self, work: Callable[..., T], *arguments: Any) -> T:
        """Run a pure function on the thread."""
        if self._closed:
            raise errors.unavailable("the API is stopping")
        running = asyncio.get_running_loop().run_in_executor(self._threads, work, *arguments)
        self._running.add(running)
        running.add_done_callback(self._running.discard)
        return await running

    async def write(self, work: Callable[[Registry], T]) -> T:
        """Run a function that reads and writes objects on the thread, with a registry for that.

        Raises:
            ApiError: raised by the function; 409 if the objects that it read keep changing.
        """
        loop = asyncio.get_running_loop()

        def on_loop(step: Callable[[], Any]) -> Any:
            return self._on_loop(loop, step)

        for _ in range(_ATTEMPTS):
            there = self._registry.on(OptimisticStore(self._registry.store, on_loop))
            try:
                return await self.call(work, there)
            except Stale:
                continue
        raise errors.changed_meanwhile()

    def _on_loop(self, loop: asyncio.AbstractEventLoop, step: Callable[[], Any]) -> Any:
        done: concurrent.futures.Future[Any] = concurrent.futures.Future()

        def run() -> None:
            if self._closed:
                done.set_exception(errors.unavailable("the API is stopping"))
                return
            try:
                done.set_result(step())
            except Exception as error:  # noqa: BLE001 - it belongs to the thread that waits
                done.set_exception(error)

        loop.call_soon_threadsafe(run)
        return done.result(_WAIT_S)

    async def close(self) -> None:
        """Refuse further work and wait for what is under way; its next write is refused."""
        self._closed = True
        self._threads.shutdown(wait=False, cancel_futures=True)
        if self._running:
            await asyncio.wait(self._running)
