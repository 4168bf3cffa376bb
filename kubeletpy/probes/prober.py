"""One run of one probe: probes the container, and reports a failure as an event.

Must never decide what a result means for the container: that is :mod:`.schedule`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from kubeletpy.base.api import types as api
from kubeletpy.base.api.times import format_duration
from kubeletpy.base.kubernetes_version import NEWEST, KubernetesVersion
from kubeletpy.base.structs import Component, Struct
from kubeletpy.base.tasks import Turns
from kubeletpy.kubeapi.events.reasons import Reason
from kubeletpy.kubeapi.events.recorder import WARNING, EventRecorder, pod_reference
from kubeletpy.pods.environment import ExpansionTooLong, expand_all
from kubeletpy.pods.pod import ContainerKind, Pod, field_path
from kubeletpy.pods.runtime_status import ProbeOutcome
from kubeletpy.probes.handlers import actions
from kubeletpy.probes.handlers.actions import Resolver, run_command
from kubeletpy.probes.handlers.http_messages import request_for
from kubeletpy.probes.handlers.outcome import HandlerError, HandlerResult, Reply, resolve_port
from kubeletpy.probes.schedule import KEPT_MESSAGE, ProbeFinding, ProbeKind, ProbeSpec, field_of
from kubeletpy.remote.errors import CRIError, DeadlineExceeded, Unavailable
from kubeletpy.remote.protocol import RuntimeService

logger = logging.getLogger(__name__)

SLACK_S = 2.0
"""Seconds after a command's timeout in which the runtime may still report it. The runtime counts
from the start of the process, which takes time of its own on a busy machine."""
RUNTIME_S = 2.0
"""Seconds in which a runtime that works answers ContainerStatus."""

SLOW_S = 0.1
"""A runtime that takes longer for it was silent for a while, and the command may not have run."""
_EARLIER = (
    "; the runtime has not ended an earlier run of it, so it is not run again until then: a "
    "process that it started may hold its output open"
)

Key = tuple[str, ProbeKind]
"""Container id and kind of the probe."""


class _Call(Struct):
    task: asyncio.Task[Reply]
    runtime_was_silent: bool = False
    """While it waited: how long the command has run is not known."""


class ProbeCommands(Component):
    """Runs the commands of exec probes, one at a time for each probe, and keeps their deadlines.

    A runtime answers ExecSync only when every process that holds the command's output has ended,
    also after it has killed the command at its timeout. Such a call goes on here after its
    deadline, and no other command of the same probe runs beside it: at most one process and one
    call per probe hang.
    """

    runtime: RuntimeService

    def __post_init__(self) -> None:
        self._calls: dict[Key, _Call] = {}

    def __len__(self) -> int:
        """Calls that the runtime has not answered."""
        return len(self._calls)

    async def run(self, key: Key, command: Sequence[str], timeout: float) -> Reply:
        """Failure unless the command exits with 0 within ``timeout`` seconds.

        While the runtime has not ended an earlier command of the probe, none is run, and that is a
        Failure too. A time in which the runtime answers nothing does not count: afterwards the
        command has its timeout once more.

        Raises:
            HandlerError: the runtime could not run the command, or does not answer at all.
        """
        limit = f'"{" ".join(command)[:200]}" timed out after {format_duration(int(timeout))}'
        call, more = self._calls.get(key), _EARLIER
        if call is None:
            call, more = self._start(key, command, timeout), ""
            if await _ended_within(call.task, timeout + SLACK_S):
                return await call.task
        if await self._was_silent(key, call) and await _ended_within(call.task, timeout + SLACK_S):
            reply = await call.task
            if reply.exit_code is None and reply.answer is HandlerResult.FAILURE:
                raise HandlerError("the container runtime was silent while the command waited")
            return reply
        # the same text each time, so that the events of many runs are one
        return Reply(HandlerResult.FAILURE, f"command timed out: {limit}{more}")

    def _start(self, key: Key, command: Sequence[str], timeout: float) -> _Call:
        work = run_command(self.runtime, key[0], command, timeout)
        task = asyncio.get_running_loop().create_task(work, name=f"probe command in {key[0]}")
        call = self._calls[key] = _Call(task)
        task.add_done_callback(lambda done: self._ended(key, call))
        return call

    def abandon(self, key: Key) -> None:
        """The probe has ended, or its container: cancel a call that hangs."""
        if (call := self._calls.get(key)) is not None:
            call.task.cancel()

    async def close(self, seconds: float) -> None:
        """Cancel all calls, and wait at most ``seconds`` for their ends."""
        tasks = [call.task for call in self._calls.values()]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=seconds)

    async def _was_silent(self, key: Key, call: _Call) -> bool:
        """Whether the runtime, which answers now, was silent since the call or the last check.

        An empty answer of the runtime has no meaning for the container. Raises HandlerError.
        """
        loop = asyncio.get_running_loop()
        requested_at = loop.time()
        try:
            async with asyncio.timeout(RUNTIME_S):
                await self.runtime.container_status(key[0])
        except (TimeoutError, DeadlineExceeded, Unavailable) as error:
            call.runtime_was_silent = True
            raise HandlerError(
                f"the container runtime did not answer ContainerStatus within "
                f"{format_duration(RUNTIME_S)}, so that the command could not be run: check that "
                "the runtime is running and not stopped"
            ) from error
        except CRIError as error:
            logger.debug("the runtime answers", extra={"error": str(error)})
        was, call.runtime_was_silent = call.runtime_was_silent, False
        return was or loop.time() - requested_at > SLOW_S

    def _ended(self, key: Key, call: _Call) -> None:
        if self._calls.get(key) is call:
            del self._calls[key]
        if not call.task.cancelled():
            call.task.exception()  # whoever waits for it gets it; a late one has no reader


async def _ended_within(task: asyncio.Task[Reply], seconds: float) -> bool:
    """Wait for a call; if this is cancelled, so is the call."""
    try:
        await asyncio.wait([task], timeout=seconds)
    except asyncio.CancelledError:
        task.cancel()
        raise
    return task.done()


TRIES = 3
"""When a probe cannot be run; never when it fails."""
EVENT_TEXT = 1024
"""Maximum characters of a container's output in an event."""


class Target(Struct, frozen=True):
    """The container to probe, and its probe."""

    pod: Pod
    kind: ContainerKind
    container: api.Container
    container_id: str
    pod_ip: str
    spec: ProbeSpec


class Prober(Component):
    """Runs the probes of containers, by the handler that each one names."""

    runtime: RuntimeService
    recorder: EventRecorder
    http2: bool = False
    """Whether ``httpGet.protocol`` is obeyed (gate H2CContainerProbe)."""
    grpc_tls: bool = False
    """Whether ``grpc.mode`` is obeyed (gate GRPCContainerProbeTLS)."""
    version: KubernetesVersion = NEWEST
    """In the User-Agent of probes."""

    def __post_init__(self) -> None:
        self._agent = f"kube-probe/{self.version}"
        self._commands = ProbeCommands(self.runtime)
        self._resolver = Resolver()
        self._turns = Turns()
        """Turns of probes over HTTP/2."""

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
                return ProbeFinding(None, str(error)[:KEPT_MESSAGE])
            break
        message = reply.output[:KEPT_MESSAGE]
        if reply.answer is HandlerResult.FAILURE:
            if not quietly:
                self._record_event(target, Reason.UNHEALTHY, f"probe failed: {reply.output}")
            return ProbeFinding(ProbeOutcome.FAILURE, message)
        if reply.answer is HandlerResult.WARNING:
            self._record_event(target, Reason.PROBE_WARNING, f"probe warning: {reply.output}")
        return ProbeFinding(ProbeOutcome.SUCCESS, message)

    async def _run_probe(self, target: Target) -> Reply:
        """Probe the container. Raises HandlerError."""
        probe = field_of(target.container, target.spec.kind)
        ports = target.container.get("ports") or ()
        timeout = target.spec.timeout
        if command := probe.get("exec"):
            parts = _expanded(target.container, command.get("command") or ())
            key = target.container_id, target.spec.kind
            return await self._commands.run(key, parts, timeout)
        if (get := probe.get("httpGet")) is not None:
            request = request_for(get, ports, target.pod_ip, self._agent)
            _must_have_address(request.host)
            exchange = None
            if self.http2 and get.get("protocol") == "HTTP2":
                from kubeletpy.probes.handlers import (
                    http2,  # only nodes with such probes pay for it
                )

                exchange = http2.exchange(self._turns)
            return await actions.probe(self._resolver, request, timeout, exchange)
        if (socket := probe.get("tcpSocket")) is not None:
            host = str(socket.get("host") or "") or target.pod_ip
            _must_have_address(host)
            port = resolve_port(socket.get("port"), ports)
            return await actions.connect(self._resolver, host, port, timeout)
        if (call := probe.get("grpc")) is not None:
            from kubeletpy.probes.handlers import (
                grpc_health,  # only nodes with such probes pay for it
            )

            _must_have_address(target.pod_ip)
            port = resolve_port(call.get("port"), ())
            service = str(call.get("service") or "")
            tls = self.grpc_tls and call.get("mode") == "TLS"
            return await grpc_health.check(
                target.pod_ip, port, service, timeout, self._turns, tls=tls, agent=self._agent
            )
        raise HandlerError(
            f"missing probe handler for {target.pod.description}:{target.container['name']}"
        )

    def _record_event(self, target: Target, reason: Reason, text: str) -> None:
        reference = pod_reference(target.pod, field_path(target.kind, target.container["name"]))
        message = f"{target.spec.kind} {text}"[:EVENT_TEXT]
        self.recorder.event(reference, WARNING, reason, message)
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
