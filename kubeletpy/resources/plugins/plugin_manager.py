"""Registers the plugins whose sockets exist and deregisters those whose sockets were removed.

One step at a time for each socket, sockets in parallel. Failures are retried after a wait that
doubles, or at once when the socket is recreated or another plugin gives up its name. Source:
docs/reference/behaviour-storage.md, sm1; docs/reference/behaviour-resources.md, rm.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any

from kubeletpy.base.structs import replace
from kubeletpy.base.tasks import cancel_tasks
from kubeletpy.resources.plugins.model import PluginInfo, Stamp
from kubeletpy.resources.plugins.plan import (
    Deregister,
    Known,
    PluginPlan,
    Register,
    name_is_free,
    plan,
)
from kubeletpy.resources.plugins.protocol import (
    Conversation,
    Handlers,
    PluginCounts,
    PluginHandler,
    PluginRefused,
    Registrations,
)
from kubeletpy.resources.plugins.sockets import PluginSockets

log = logging.getLogger(__name__)

STARTS = 8
"""Steps that begin in one turn of the event loop: a directory may have hundreds of sockets."""


class PluginManager:
    """The plugins of a node. Make it inside a running event loop."""

    def __init__(
        self,
        directory: Path,
        handlers: Handlers,
        registrations: Registrations,
        counts: PluginCounts,
    ) -> None:
        """``directory`` is ``{root}/plugins_registry``."""
        self._sockets = PluginSockets(directory, self.update_sockets)
        self._handlers = handlers
        self._registrations = registrations
        self._counts = counts
        self._found: dict[str, Stamp] = {}
        self._known: dict[str, Known] = {}
        self._steps: set[asyncio.Task[None]] = set()
        self._again: asyncio.TimerHandle | None = None
        self._soon: asyncio.Handle | None = None

    @property
    def plugins(self) -> dict[str, Known]:
        """The state of each socket, for diagnostics."""
        return dict(self._known)

    async def run(self) -> None:
        """Keep plugins registered until cancelled; registered plugins stay with their handlers."""
        try:
            await self._sockets.run()
        finally:
            for handle in (self._again, self._soon):
                if handle is not None:
                    handle.cancel()
            await cancel_tasks(self._steps)

    def update_sockets(self, sockets: dict[str, Stamp]) -> None:
        """Replace the set of sockets, and act on the difference."""
        self._found = sockets
        self._go_on()

    def _go_on_soon(self) -> None:
        """Start whatever is due, once for all that happens in this turn of the loop."""
        if self._soon is None:
            self._soon = asyncio.get_running_loop().call_soon(self._go_on)

    def _go_on(self) -> None:
        """Start what is due now, and what is left of it in the next turn."""
        if self._soon is not None:
            self._soon.cancel()
            self._soon = None
        loop = asyncio.get_running_loop()
        todo: PluginPlan = plan(self._found, self._known, loop.time())
        for path in todo.forget:
            del self._known[path]
        for end in todo.deregister[:STARTS]:  # start before those that may need their names
            self._begin(end.info.socket, self._deregister(end))
        left = STARTS - len(todo.deregister)
        for begin in todo.register[: max(left, 0)]:
            self._begin(begin.socket, self._register(begin))
        if len(todo.register) > left:
            self._go_on_soon()
        if self._again is not None:
            self._again.cancel()
        self._again = None if todo.again_at is None else loop.call_at(todo.again_at, self._go_on)
        registered = sorted(path for path, state in self._known.items() if state.registered)
        self._counts.show(sorted(self._found), registered)

    def _begin(self, socket: str, step: Coroutine[Any, Any, None]) -> None:
        self._known[socket] = replace(self._known.get(socket, Known()), busy=True)
        task = asyncio.create_task(step, name=f"plugin {socket}")
        self._steps.add(task)
        task.add_done_callback(self._steps.discard)

    async def _deregister(self, step: Deregister) -> None:
        info = step.info
        log.info("plugin deregistered", extra={"plugin": info.name, "reason": step.reason})
        try:
            await self._handlers[info.type].deregister(info)
        except PluginRefused as error:
            log.warning(
                "plugin could not be deregistered", extra={"plugin": info.name, "why": str(error)}
            )
        except Exception:  # as above; who registers under its name finds out
            log.exception("plugin handler broke", extra={"plugin": info.name})
        now = asyncio.get_running_loop().time()
        self._known = name_is_free(self._known, info.name, now)
        self._known[info.socket] = Known()
        self._go_on()

    async def _register(self, step: Register) -> None:
        socket, name = step.socket, ""
        try:
            async with self._registrations.open(socket, step.stamp) as conversation:
                info = await conversation.info()
                name = info.name
                await self._introduce(info, conversation)
        except PluginRefused as error:
            self._not_registered(step, name, str(error))
        except Exception as error:  # a handler that breaks must not keep its plugin out forever
            log.exception("plugin handler broke", extra={"socket": socket, "plugin": name})
            self._not_registered(step, name, f"internal error: {type(error).__name__}")
        else:
            log.info("plugin registered", extra={"plugin": name, "socket": socket})
            self._known[socket] = Known(registered=info, tried=step.stamp, name=name)
        self._go_on_soon()

    async def _introduce(self, info: PluginInfo, conversation: Conversation) -> None:
        """Hand a plugin to its handler and notify the plugin. Raises PluginRefused."""
        try:
            handler = self._handler(info)
            handler.validate(info)
            await handler.register(info)
        except PluginRefused as error:
            with suppress(PluginRefused):  # the reason for the refusal matters more
                await conversation.notify(registered=False, error=str(error))
            raise
        try:
            await conversation.notify(registered=True)
        except PluginRefused:
            await handler.deregister(info)
            raise

    def _handler(self, info: PluginInfo) -> PluginHandler:
        handler = self._handlers.get(info.type)
        if handler is None:
            known = ", ".join(sorted(self._handlers)) or "none"
            raise PluginRefused(
                f"no handler registered for plugin type: {info.type} at socket {info.socket} "
                f"(this node has: {known})"
            )
        return handler

    def _not_registered(self, step: Register, name: str, problem: str) -> None:
        before = self._known[step.socket]
        now = asyncio.get_running_loop().time()
        after = before.failed(step.stamp, name, problem, now)
        self._known[step.socket] = after
        again = problem == before.problem
        extra = {
            "socket": step.socket,
            "plugin": name,
            "why": problem,
            "again_in": after.retry_at - now,
        }
        log.log(logging.DEBUG if again else logging.WARNING, "plugin not registered", extra=extra)
