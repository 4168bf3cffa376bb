"""Runs postStart and preStop hooks: a command, an HTTP request, or a pause.

Must never limit a hook in time: the caller gives up a preStop hook when the grace period is over;
postStart takes as long as it takes. Source: docs/reference/behaviour.md, n1.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence

from kubeletpy.base.api import types as api
from kubeletpy.base.kubernetes_version import NEWEST, KubernetesVersion
from kubeletpy.base.structs import Component, replace
from kubeletpy.kubeapi.events.reasons import Reason
from kubeletpy.kubeapi.events.recorder import WARNING, EventRecorder, pod_reference
from kubeletpy.metrics.pods import HookMetrics
from kubeletpy.pods.pod import Pod
from kubeletpy.probes.handlers import actions
from kubeletpy.probes.handlers.actions import Resolver, run_command
from kubeletpy.probes.handlers.http_messages import BadHandlerRequest, HttpRequest, request_for
from kubeletpy.probes.handlers.outcome import LOOPBACK, HandlerError, HandlerResult, host_port
from kubeletpy.remote.errors import CRIError, NotFound
from kubeletpy.remote.generated import api_pb2 as cri
from kubeletpy.remote.protocol import RuntimeService
from kubeletpy.runtime_manager.names import read_container_annotations
from kubeletpy.runtime_manager.protocol import HookFailed

logger = logging.getLogger(__name__)

MAX_REPORTED = 1024
"""Maximum characters of a command or path in a message."""


class LifecycleHookRunner(Component):
    """Runs the hooks of containers."""

    runtime: RuntimeService
    recorder: EventRecorder
    metrics: HookMetrics
    # Those of pods on the host's network; they may change meanwhile.
    node_ips: Sequence[str] = ()
    # In the User-Agent of hooks.
    version: KubernetesVersion = NEWEST

    def __post_init__(self) -> None:
        self._agent = f"kube-lifecycle/{self.version}"
        self._resolver = Resolver()

    async def post_start(self, pod: Pod, container: api.Container, container_id: str) -> None:
        """Run the postStart hook of a container, for which the rest of the sync waits.

        Raises HookFailed: the container is stopped.
        """
        handler = (container.get("lifecycle") or {}).get("postStart")
        if handler:
            ports = container.get("ports") or ()
            await self._run(pod, container["name"], container_id, handler, ports)

    async def pre_stop(
        self, pod: Pod | None, container_name: str, container_id: str, handler: api.LifecycleHandler
    ) -> None:
        """Run a preStop hook; the caller cancels it when the grace period is over.

        ``pod`` is None when only the runtime has it. Raises HookFailed: it is reported, and the
        stop goes on.
        """
        found = pod.find_container(container_name) if pod is not None else None
        ports = None if found is None else found[1].get("ports") or ()
        await self._run(pod, container_name, container_id, handler, ports)

    async def _run(
        self,
        pod: Pod | None,
        name: str,
        container_id: str,
        handler: api.LifecycleHandler,
        ports: Sequence[api.ContainerPort] | None,
    ) -> None:
        """``ports`` None: they are read from the container's annotations."""
        what, owner = "lifecycle hook", f'Container "{name}" in Pod "{_described(pod)}"'
        try:
            if isinstance(action := handler.get("exec"), Mapping):
                command = action.get("command") or ()
                what = f"Exec lifecycle hook ([{_reported(command)}])"
                await self._command(container_id, list(map(str, command)))
            elif isinstance(get := handler.get("httpGet"), Mapping):
                what = f"HTTP lifecycle hook ({_cut(get.get('path') or '')})"
                await self._http_get(pod, container_id, get, ports)
            elif isinstance(sleep := handler.get("sleep"), Mapping):
                what = f"Sleep lifecycle hook ({sleep.get('seconds')})"
                await self._sleep(sleep.get("seconds"))
            else:
                what, owner = "Cannot run handler", ""
                kinds = ", ".join(sorted(map(str, handler))) or "none"
                raise HandlerError(f"invalid handler: {kinds} is not supported in a hook")
        except (HandlerError, actions.HandlerExchangeFailed, BadHandlerRequest, CRIError) as error:
            message = f"{what}: {error}"
            if owner:
                message = f"{what} for {owner} failed - error: {error}"
            raise HookFailed(message) from error

    async def _command(self, container_id: str, command: list[str]) -> None:
        reply = await run_command(self.runtime, container_id, command, 0)
        if reply.answer is not HandlerResult.SUCCESS:
            ended = "did not end" if reply.exit_code is None else f"exited with {reply.exit_code}"
            raise HandlerError(f"command '{_reported(command)}' {ended}, message: {reply.output!r}")

    async def _sleep(self, seconds: object) -> None:
        """Pause; 0 is allowed."""
        if not isinstance(seconds, int) or seconds < 0:
            raise HandlerError("sleep.seconds is not a number of seconds")
        try:
            await asyncio.sleep(seconds)
        except asyncio.CancelledError:
            self.metrics.sleeps_cut_short.inc()
            raise

    async def _http_get(
        self,
        pod: Pod | None,
        container_id: str,
        action: api.HTTPGetAction,
        ports: Sequence[api.ContainerPort] | None,
    ) -> None:
        """Send a GET request: any status code is fine, only the lack of an answer is a failure."""
        if ports is None:
            status = (await self.runtime.container_status(container_id)).status
            ports = read_container_annotations(status.annotations).ports
        ip = "" if action.get("host") else await self._pod_ip(container_id)
        request = request_for(action, ports, ip, self._agent)
        try:
            await actions.get(self._resolver, request)
        except actions.NotTLS:
            await self._in_the_clear(pod, request)

    async def _in_the_clear(self, pod: Pod | None, request: HttpRequest) -> None:
        """Repeat an https hook over http: servers without TLS worked before https was supported."""
        headers = tuple(
            header for header in request.headers if header[0].lower() != "authorization"
        )
        await actions.get(self._resolver, replace(request, tls=False, headers=headers))
        self.metrics.http_fallbacks.inc()
        if pod is not None:
            where = host_port(request.host, request.port)
            self.recorder.event(
                pod_reference(pod),
                WARNING,
                Reason.LIFECYCLE_HTTP_FALLBACK,
                f"request to HTTPS lifecycle hook {where} got HTTP response, "
                "retry with HTTP succeeded",
            )

    async def _pod_ip(self, container_id: str) -> str:
        """The pod's first address, from the runtime. Raises HandlerError, CRIError."""
        listed = await self.runtime.list_containers(cri.ContainerFilter(id=container_id))
        found = next((each for each in listed if each.id == container_id), None)
        if found is None:
            raise NotFound("ListContainers", "no such container", target=container_id)
        status = (await self.runtime.pod_sandbox_status(found.pod_sandbox_id)).status
        if status.network.ip:
            return status.network.ip
        if status.linux.namespaces.options.network == cri.NODE:
            return next(iter(self.node_ips), LOOPBACK)
        raise HandlerError("failed to find networking container: the sandbox has no IP address")


def _reported(command: Sequence[object]) -> str:
    """A command as shown in messages: they end up in logs, and in the pod's status."""
    return _cut(" ".join(map(str, command)))


def _cut(text: str) -> str:
    return text if len(text) <= MAX_REPORTED else text[: MAX_REPORTED - 1] + "…"


def _described(pod: Pod | None) -> str:
    return "unknown" if pod is None else pod.description
