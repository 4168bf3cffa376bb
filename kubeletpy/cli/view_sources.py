"""The sources of a page: the agent's answers, with data that only the API of `up` has.

The API adds pods that no node has, and the events of schedulers and controllers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from kubeletpy.cli.own_api import OwnApi, OwnApiUnavailable

_Read = TypeVar("_Read")
PATIENCE_S = 1.0
"""How long a page waits for one answer of that API; then it is shown without."""


class Sources:
    """Answers requests like the agent's socket. Blocks: call it in a thread, not in the loop."""

    def __init__(
        self, ask: Callable[..., Any], api: OwnApi | None, loop: asyncio.AbstractEventLoop
    ) -> None:
        """``ask``: requests the agent; ``loop``: the one in which ``api`` was made."""
        self._ask = ask
        self._api = api
        self._loop = loop
        self._unread = ""

    def __call__(self, *parts: str) -> Any:
        """GET of the path that ``parts`` make up."""
        found, api = self._ask(*parts), self._api
        if api is None:
            return found
        match parts:
            case ("node",) if self._unread:
                return {**found, "troubles": [*(found.get("troubles") or ()), self._unread]}
            case ("pods",):
                return [*found, *(self._read(api.unplaced) or ())]
            case ("pods", namespace, name) if "error" in found and found.get("last") is None:
                return self._read(lambda: api.unplaced_pod(namespace, name)) or found
            case ("pods", namespace, name, "events"):
                return self._with_others(found, namespace, name, api)
        return found

    def _with_others(self, own: Any, namespace: str, name: str, api: OwnApi) -> Any:
        others = self._read(lambda: api.events(namespace, name)) or ()
        together = [*(own if isinstance(own, list) else ()), *others]
        return sorted(together, key=lambda each: float(each["at"]))

    def _read(self, read: Callable[[], Awaitable[_Read]]) -> _Read | None:
        async def reading() -> _Read:
            async with asyncio.timeout(PATIENCE_S):
                return await read()

        try:
            found = asyncio.run_coroutine_threadsafe(reading(), self._loop).result()
        except (OwnApiUnavailable, TimeoutError) as error:
            why = str(error) or f"its API did not answer within {PATIENCE_S:g} s"
            self._unread = f"pods without a node and events of the scheduler are missing: {why}"
            return None
        self._unread = ""
        return found
