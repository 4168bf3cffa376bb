"""Queries the agent for all open pages together, once a second.

Must never query without an open page, nor change anything.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from kubeletpy.base.tasks import run_together
from kubeletpy.node.stats.collector import Shared
from kubeletpy.observe.view import feed
from kubeletpy.observe.view.history import History

Ask = Callable[..., Any]
"""GET /part/part/… of the agent; blocks. An unknown pod is ``{"error", "last"}``.

Raises Silent: nobody answers, and why."""
PATIENCE_S = 0.5
"""How long a page waits for numbers of usage: the runtime may be slow, the rest is not."""


class Silent(Exception):
    """The agent does not answer."""


class Watcher:
    """Collects the current contents of a page; create it inside a running event loop."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._history = History()
        self._node = Shared(lambda: self._query_agent("node"))
        self._pods = Shared(lambda: self._query_agent("pods"))
        self._usage = Shared(self._used)
        self._last: dict[str, Any] = {}

    async def page(self, path: str | None) -> dict[str, Any]:
        """All parts of the page; ``path``: NAMESPACE/NAME of the pod that is open.

        While the agent is silent there is only the part ``node``, which reports it.
        Raises ValueError: no pod is called that.
        """
        try:
            about, lines = await self._node.get(), await self._pods.get()
            opened = None if path is None else await self._pod(*feed.names(path))
        except Silent as error:
            return {"node": feed.unanswered(str(error), self._last)}
        await self._refresh_usage()
        self._last = feed.node(about)
        return {
            "node": self._last,
            "pods": feed.pods(lines),
            "pod": opened,
            "usage": feed.usage(self._history, "" if opened is None else opened["uid"]),
        }

    async def _pod(self, namespace: str, name: str) -> dict[str, Any]:
        where = "pods", namespace, name
        parts = ((), ("timeline",), ("events",), ("logs",))
        answer, timeline, events, logs = await run_together(
            *(self._query_agent(*where, *part) for part in parts)
        )
        return feed.pod(answer, timeline, events if isinstance(events, list) else (), logs)

    async def _refresh_usage(self) -> None:
        try:
            async with asyncio.timeout(PATIENCE_S):
                await self._usage.get()
        except (Silent, TimeoutError):
            return  # what was measured last is shown

    async def _used(self) -> None:
        self._history.add(await self._query_agent("usage"))

    async def _query_agent(self, *parts: str) -> Any:
        return await asyncio.to_thread(self._ask, *parts)
