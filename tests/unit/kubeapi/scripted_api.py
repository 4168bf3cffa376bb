"""A KubeApi in memory with scripted answers, on virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

from kubeletpy.base.api.types import JSON
from kubeletpy.kubeapi.errors import ApiError, Invalid
from kubeletpy.kubeapi.protocol import Call, KubeApi, WatchEvent

Step = WatchEvent | ApiError | float
"""Step of a watch: an event, an error that ends it, or seconds to wait."""


class ScriptedApi(KubeApi):
    """Lists and watches are answered in order; writes by ``write_errors``, then by success."""

    def __init__(
        self,
        lists: Sequence[Any] = (),
        watches: Sequence[Sequence[Step]] = (),
        write_errors: Sequence[ApiError] = (),
        *,
        streams_lists: bool = False,
    ) -> None:
        self._streams_lists = streams_lists
        self.lists = list(lists)
        self.watches = list(watches)
        self.write_errors = list(write_errors)
        self.calls: list[tuple[float, str, Any]] = []
        self._awaited = 0
        self._reached = asyncio.Event()

    def note(self, verb: str, what: Any) -> None:
        self.calls.append((round(asyncio.get_running_loop().time(), 3), verb, what))
        if len(self.calls) >= self._awaited:
            self._reached.set()

    async def called(self, times: int) -> None:
        """Waits until the given number of calls was made."""
        self._awaited = times
        if len(self.calls) < times:
            self._reached.clear()
            await self._reached.wait()

    async def answer(self, call: Call) -> JSON:
        if call.verb == "list":
            return await self._list(call)
        what: Any = call.name if call.verb == "delete" else call.body
        self.note(call.verb, what)
        if self.write_errors:
            raise self.write_errors.pop(0)
        return what if isinstance(what, dict) else {}

    async def _list(self, call: Call) -> JSON:
        self.note("list", (call.limit, call.continue_))
        if not self.lists:
            await asyncio.Event().wait()
        found = self.lists.pop(0)
        if isinstance(found, ApiError):
            raise found
        return found  # type: ignore[no-any-return]

    async def follow(self, call: Call) -> AsyncIterator[WatchEvent]:
        if call.send_initial_events:
            if not self._streams_lists:  # as a server that has the feature off
                raise Invalid("sendInitialEvents is forbidden for watch", code=422)
            self.note("stream", call.resource_version)
        else:
            self.note("watch", call.resource_version)
        if not self.watches:
            await asyncio.Event().wait()
        for step in self.watches.pop(0):
            if isinstance(step, ApiError):
                raise step
            if isinstance(step, WatchEvent):
                yield step
            else:
                await asyncio.sleep(step)
