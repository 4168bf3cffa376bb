"""One run of one probe: probes the container and reports the result as an event and a metric.

Must never decide what a result means for the container: that is :mod:`.schedule`.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from kubeletpy.base.api import types as api
from kubeletpy.base.kubernetes_version import NEWEST, KubernetesVersion
from kubeletpy.base.structs import Struct
from kubeletpy.kubeapi.events.reasons import Reason
from kubeletpy.kubeapi.events.recorder import WARNING, EventRecorder, pod_reference
from kubeletpy.pods.environment import ExpansionTooLong, expand_all
from kubeletpy.pods.pod import ContainerKind, Pod, field_path
from kubeletpy.pods.runtime_status import ProbeOutcome
from kubeletpy.probes.commands import ProbeCommands
from kubeletpy.probes.handlers import http, tcp
from kubeletpy.probes.handlers.http_request import request_for
from kubeletpy.probes.handlers.network import Resolver
from kubeletpy.probes.handlers.outcome import HandlerError, HandlerResult, Reply
from kubeletpy.probes.handlers.ports import resolve_port
from kubeletpy.probes.report import KEPT_WORDS, ProbeFinding
from kubeletpy.probes.schedule import FIELDS, ProbeKind, ProbeSpec
from kubeletpy.remote.protocol import RuntimeService

if TYPE_CHECKING:
    from kubeletpy.remote.http2_client import Turns

logger = logging.getLogger(__name__)

TRIES = 3
"""When a probe cannot be run; never when it fails."""
EVENT_TEXT = 1024
"""Maximum characters of a container's output in an event."""


class Target(Struct, frozen=True):
    """Whom to probe, and how."""

    pod: Pod
    kind: ContainerKind
    container: api.Container
    container_id: str
    pod_ip: str
    spec: ProbeSpec


class Prober:
    """Runs probes."""

    def __init__(
        self,
        runtime: RuntimeService,
        recorder: EventRecorder,
        *,
        http2: bool = False,
        grpc_tls: bool = False,
        version: KubernetesVersion = NEWEST,
    ) -> None:
        """Args:
        runtime: runs commands in containers.
        recorder: of failures.
        http2: whether ``httpGet.protocol`` is obeyed (gate H2CContainerProbe).
        grpc_tls: whether ``grpc.mode`` is obeyed (gate GRPCContainerProbeTLS).
        version: in the User-Agent of probes.
        """
        self._agent = f"kube-probe/{version}"
        self._http2, self._grpc_tls = http2, grpc_tls
        self._commands = ProbeCommands(runtime)
        self._recorder = recorder
        self._resolver = Resolver()
        self._turns: Turns | None = None
        """Turns of probes over HTTP/2; None before the first."""

    def abandon(self, container_id: str, kind: ProbeKind) -> None:
        """The probe of a container has ended: cancel a command of it that hangs."""
        self._commands.abandon((container_id, kind))

    async def close(self, seconds: float) -> None:
        """Cancel the commands that hang, and wait at most ``seconds`` for their ends."""
        await self._commands.close(seconds)

    async def run(self, target: Target, *, quietly: bool) -> ProbeFinding:
        """Run a probe once. ``quietly``: a failure is not reported."""
        for attempt in range(TRIES):
            try:
                reply = await self._run_probe(target)
            except HandlerError as error:
                if attempt < TRIES - 1:
                    await asyncio.sleep(0)  # let others run, should all fail at once
                    continue
                if not quietly:
                    text = f"probe errored and resulted in unknown state: {error}"
                    self._record_event(target, Reason.UNHEALTHY, text)
                return ProbeFinding(None, str(error)[:KEPT_WORDS])
            break
        words = reply.output[:KEPT_WORDS]
        if reply.answer is HandlerResult.FAILURE:
            if not quietly:
                self._record_event(target, Reason.UNHEALTHY, f"probe failed: {reply.output}")
            return ProbeFinding(ProbeOutcome.FAILURE, words)
        if reply.answer is HandlerResult.WARNING:
            self._record_event(target, Reason.PROBE_WARNING, f"probe warning: {reply.output}")
        return ProbeFinding(ProbeOutcome.SUCCESS, words)

    async def _run_probe(self, target: Target) -> Reply:
        """Probe the container. Raises HandlerError."""
        probe: api.Probe = target.container.get(FIELDS[target.spec.kind], {})  # type: ignore[assignment]
        ports = target.container.get("ports") or ()
        timeout = target.spec.timeout
        if command := probe.get("exec"):
            words = _expanded(target.container, command.get("command") or ())
            key = target.container_id, target.spec.kind
            return await self._commands.run(key, words, timeout)
        if (get := probe.get("httpGet")) is not None:
            request = request_for(get, ports, target.pod_ip, self._agent)
            _must_have_address(request.host)
            exchange = None
            if self._http2 and get.get("protocol") == "HTTP2":
                from kubeletpy.probes.handlers import (
                    http2,  # only nodes with such probes pay for it
                )

                self._turns = self._turns or http2.Turns()
                exchange = http2.exchange(self._turns)
            return await http.probe(self._resolver, request, timeout, exchange)
        if (socket := probe.get("tcpSocket")) is not None:
            host = str(socket.get("host") or "") or target.pod_ip
            _must_have_address(host)
            port = resolve_port(socket.get("port"), ports)
            return await tcp.connect(self._resolver, host, port, timeout)
        if (call := probe.get("grpc")) is not None:
            from kubeletpy.probes.handlers import (
                grpc_health,  # only nodes with such probes pay for it
            )

            _must_have_address(target.pod_ip)
            port = resolve_port(call.get("port"), ())
            service = str(call.get("service") or "")
            self._turns = self._turns or grpc_health.Turns()
            tls = self._grpc_tls and call.get("mode") == "TLS"
            return await grpc_health.check(
                target.pod_ip, port, service, timeout, self._turns, tls=tls, agent=self._agent
            )
        raise HandlerError(
            f"missing probe handler for {target.pod.description}:{target.container['name']}"
        )

    def _record_event(self, target: Target, reason: Reason, text: str) -> None:
        reference = pod_reference(target.pod, field_path(target.kind, target.container["name"]))
        message = f"{target.spec.kind} {text}"[:EVENT_TEXT]
        self._recorder.event(reference, WARNING, reason, message)
        logger.debug(message, extra={"pod": target.pod.key, "container": target.container["name"]})


def _must_have_address(host: str) -> None:
    if not host:
        raise HandlerError("the pod has no IP address yet")


def _expanded(container: api.Container, command: object) -> list[str]:
    """A command with references to the container's literal variables expanded; others stay.

    These are the variables with values in the spec: nothing is fetched for a probe.
    """
    if not isinstance(command, list) or not all(isinstance(word, str) for word in command):
        raise HandlerError("exec.command is not a list of strings")
    variables = {
        str(entry.get("name")): str(entry.get("value") or "")
        for entry in container.get("env") or ()
        if "value" in entry or "valueFrom" not in entry
    }
    try:
        return expand_all(command, variables)
    except ExpansionTooLong as error:
        raise HandlerError(f"exec.command: {error}") from error
