"""Shows root on this machine why pods are as they are: JSON over HTTP on a unix socket.

Read only. The socket belongs to root alone (mode 0600); still, no client can hold more than a few
connections for more than a few seconds, nor make the agent keep anything for it. What explains is
loaded by the first who asks.
"""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import stat
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from kubeletpy.api.times import parse_time
from kubeletpy.explain.snapshot import Snapshots
from kubeletpy.trace.spans import Traces

log = logging.getLogger(__name__)

SOCKET_NAME = "explain.sock"
MAX_CONNECTIONS = 16
MAX_LIFE_S = 10.0
MAX_PATH = 107
"""Bytes: what the kernel takes as a socket's path."""


class ExplainServer:
    """Serves /node, /pods, /pods/NAMESPACE/NAME and /pods/NAMESPACE/NAME/timeline."""

    def __init__(
        self,
        path: Path,
        snapshots: Snapshots,
        traces: Traces,
        pressure: Callable[[], dict[str, Any] | None] = lambda: None,
    ) -> None:
        """``pressure``: what is known of the node's; None: it is not watched."""
        self._path = path
        self._pressure = pressure
        self._snapshots = snapshots
        self._traces = traces
        self._close: Callable[[], Any] | None = None
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        """Listen; where that is not possible say so once and do without."""
        if len(str(self._path).encode()) > MAX_PATH:
            log.warning(
                "no socket for `kubeletpy explain`: its path is too long",
                extra={"path": str(self._path), "at_most": MAX_PATH},
            )
            return
        try:
            await self._listen()
        except OSError as error:
            log.warning(
                "no socket for `kubeletpy explain`",
                extra={"path": str(self._path), "why": str(error)},
            )

    async def _listen(self) -> None:
        from aiohttp import web

        app = web.Application(client_max_size=1)
        app.router.add_get("/node", self._node)
        app.router.add_get("/pods", self._list)
        app.router.add_get("/pods/{namespace}/{name}", self._one)
        app.router.add_get("/pods/{namespace}/{name}/timeline", self._timeline)
        runner = web.AppRunner(app, access_log=None, handle_signals=False)
        await runner.setup()
        self._close = runner.cleanup
        serve, loop = runner.server, asyncio.get_running_loop()
        assert serve is not None

        def connect() -> asyncio.Protocol:
            if len(serve.connections) >= MAX_CONNECTIONS:
                return _Refusal()
            handler = serve()
            loop.call_later(MAX_LIFE_S, handler.force_close)
            return handler

        _remove_stale(self._path)
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            # nobody but root may connect: the directory and the default umask keep others out
            # until the mode is set
            listening.bind(str(self._path))
            self._path.chmod(0o600)
            self._server = await loop.create_unix_server(connect, sock=listening)
        except OSError:
            listening.close()
            raise

    async def close(self) -> None:
        """Stop listening and remove the socket."""
        if self._server is not None:
            self._server.close()
            self._path.unlink(missing_ok=True)
        if self._close is not None:
            await self._close()

    async def _list(self, _request: Any) -> Any:
        from kubeletpy.explain.gather import line

        lines = [line(self._snapshots.facts(uid)) for uid in self._snapshots.uids()]
        return _answer([asdict(each) for each in lines])

    async def _one(self, request: Any) -> Any:
        from kubeletpy.explain.gather import explain

        namespace, name = request.match_info["namespace"], request.match_info["name"]
        uid = self._snapshots.find(namespace, name)
        if uid is None:
            return _answer({"error": f"no pod {namespace}/{name} on this node"}, 404)
        deeds = (self._pressure() or {}).get("deeds") or ()
        evicted = [deed for deed in deeds if deed["pod"] is not None and deed["pod"]["uid"] == uid]
        found = asdict(explain(self._snapshots.facts(uid)))
        return _answer({**found, "eviction": evicted[-1] if evicted else None})

    async def _node(self, _request: Any) -> Any:
        return _answer({"pressure": self._pressure()})

    async def _timeline(self, request: Any) -> Any:
        from kubeletpy.explain.containers import containers, exits
        from kubeletpy.explain.model import Role
        from kubeletpy.explain.timeline import timeline

        namespace, name = request.match_info["namespace"], request.match_info["name"]
        uid = self._snapshots.find(namespace, name)
        trace = self._traces.find(namespace, name) if uid is None else self._traces.of(uid)
        if trace is None:
            return _answer({"error": f"nothing was done for a pod {namespace}/{name} here"}, 404)
        facts = self._snapshots.facts(trace.uid)
        seen = self._snapshots.seen_at(trace.uid)
        now = asyncio.get_running_loop().time()
        kinds = {view.name: view.kind for view in containers(facts)}
        inits = [one for one in exits(facts) if kinds.get(one.container) is Role.INIT]
        found = timeline(trace, facts.wall_offset, parse_time(seen) if seen else None, now, inits)
        return _answer(asdict(found))


class _Refusal(asyncio.Protocol):
    """Ends a connection that is one too many."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.close()


def _answer(body: Any, status: int = 200) -> Any:
    from aiohttp import web

    response = web.Response(
        body=json.dumps(body).encode(), status=status, content_type="application/json"
    )
    response.force_close()
    return response


def _remove_stale(path: Path) -> None:
    """Remove the socket of an agent that is gone. Raises OSError: an agent listens there."""
    try:
        if not stat.S_ISSOCK(path.lstat().st_mode):
            raise FileExistsError(f"{path} exists and is no socket")
    except FileNotFoundError:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(0.5)
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink(missing_ok=True)
            return
    raise FileExistsError("another agent listens there")
