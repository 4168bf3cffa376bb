"""The handlers of /exec, /attach, /portForward and /run: they resolve a request for the runtime."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeVar

from aiohttp import web

from kubeletpy.base.structs import Component
from kubeletpy.base.wire.http_server import is_upgrade
from kubeletpy.pods.pod import Pod
from kubeletpy.remote.errors import Code, CRIError
from kubeletpy.remote.generated import api_pb2 as cri
from kubeletpy.remote.streams import ForwardSession, ProcessSession
from kubeletpy.server.app import Handler
from kubeletpy.server.node_view import NodeView, declared_container
from kubeletpy.server.streaming import options, sessions
from kubeletpy.server.streaming.link import RuntimeLink

MAX_ARGUMENTS = 4096
RETRY_S = "10"
_Call = TypeVar("_Call")


def refused(error: CRIError) -> web.Response:
    """Return the HTTP answer for a CRI error."""
    text = f"{error.details or error.code}\n"
    if error.code is Code.NOT_FOUND:
        return web.Response(status=404, text=text)
    if error.code is Code.RESOURCE_EXHAUSTED:
        return web.Response(status=429, text=text, headers={"Retry-After": RETRY_S})
    return web.Response(status=500, text=text)


class StreamHandlers(Component):
    """Has the handlers by route name in ``by_route``."""

    view: NodeView
    link: RuntimeLink

    def __post_init__(self) -> None:
        self.by_route: Mapping[str, Handler] = {
            "exec": self._exec,
            "attach": self._attach,
            "port_forward": self._port_forward,
            "run": self._run,
        }

    def _find(self, request: web.Request) -> Pod:
        path = request.match_info
        pod = self.view.pod(path["namespace"], path["pod"], path.get("uid", ""))
        if pod is None:
            raise web.HTTPNotFound(text="pod does not exist\n")
        return pod

    def _container_id(self, request: web.Request, pod: Pod) -> str:
        name = request.match_info["container"]
        record = self.view.container(pod, name)
        if record is None:
            raise web.HTTPInternalServerError(text=f'container not found ("{name}")\n')
        return record.id

    async def _exec(self, request: web.Request) -> web.StreamResponse:
        streams, pod = _streams(request), self._find(request)
        call = cri.ExecRequest(
            container_id=self._container_id(request, pod),
            cmd=_command(request.query.getall("command", [])),
            tty=streams.tty,
            stdin=streams.stdin,
            stdout=streams.stdout,
            stderr=streams.stderr,
        )
        return await self._join(request, self.view.runtime.exec, call, "exec", streams)

    async def _attach(self, request: web.Request) -> web.StreamResponse:
        streams, pod = _streams(request), self._find(request)
        declared = declared_container(pod, request.match_info["container"])
        tty = bool(declared and declared.get("tty"))
        call = cri.AttachRequest(
            container_id=self._container_id(request, pod),
            stdin=streams.stdin,
            tty=tty,
            stdout=streams.stdout,
            stderr=streams.stderr and not tty,
        )
        return await self._join(request, self.view.runtime.attach, call, "attach", streams)

    async def _port_forward(self, request: web.Request) -> web.StreamResponse:
        pod = self._find(request)
        upgrade = request.headers.get("Upgrade", "")
        protocols = options.offered_protocols(request.headers.get("Sec-WebSocket-Protocol", ""))
        tunnelled = options.stream_route(upgrade, protocols) is options.StreamRoute.TUNNELLED
        websocket = upgrade.lower() == "websocket" and not tunnelled
        try:
            ports = options.read_ports(list(request.query.items()), websocket=websocket)
        except options.BadStreamRequest as error:
            raise web.HTTPBadRequest(text=f"{error}\n") from None
        status = self.view.in_runtime(pod)
        sandbox = next((s for s in status.sandboxes if s.ready), None) if status else None
        if sandbox is None:
            raise web.HTTPInternalServerError(text=f"pod {pod.key} has no running sandbox\n")
        call = cri.PortForwardRequest(pod_sandbox_id=sandbox.id, port=ports)
        return await self._join(request, self.view.runtime.port_forward, call, "portforward")

    async def _join(
        self,
        request: web.Request,
        url_for: Callable[[_Call], Awaitable[str | ProcessSession | ForwardSession]],
        call: _Call,
        subresource: str,
        streams: options.Streams | None = None,
    ) -> web.StreamResponse:
        if not is_upgrade(request):  # the runtime keeps no URL for it
            raise web.HTTPBadRequest(text="Upgrade request required\n")
        try:
            found = await url_for(call)
        except CRIError as error:
            return refused(error)
        if isinstance(found, str):
            return await self.link.join(request, found, subresource, streams)
        return await sessions.join(request, found, streams, subresource, self.link)

    async def _run(self, request: web.Request) -> web.StreamResponse:
        pod = self._find(request)
        command = _command(request.query.get("cmd", "").split(" "))
        try:
            answer = await self.view.runtime.exec_sync(self._container_id(request, pod), command, 0)
        except CRIError as error:
            return refused(error)
        output = bytes(answer.stdout) + bytes(answer.stderr)
        if answer.exit_code:
            text = f"\ncommand terminated with exit code {answer.exit_code}\n".encode()
            return web.Response(status=500, body=output + text, content_type="text/plain")
        return web.Response(body=output, content_type="text/plain")


def _command(arguments: Sequence[str]) -> list[str]:
    if len(arguments) > MAX_ARGUMENTS:
        raise web.HTTPBadRequest(text="too many arguments\n")
    return list(arguments)


def _streams(request: web.Request) -> options.Streams:
    try:
        return options.read_streams(list(request.query.items()))
    except options.BadStreamRequest as error:
        raise web.HTTPBadRequest(text=f"{error}\n") from None
