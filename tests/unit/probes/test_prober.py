"""One run of a probe: its request, its report and its metrics."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from grpc_health.v1.health_pb2 import HealthCheckResponse

from kubeletpy.metrics.registry import Metrics
from kubeletpy.pods.pod import ContainerKind
from kubeletpy.pods.runtime_status import ProbeOutcome
from kubeletpy.probes.prober import TRIES, Prober, Target
from kubeletpy.probes.schedule import FIELDS, KEPT_MESSAGE, ProbeKind, ProbeSpec
from kubeletpy.remote.errors import DeadlineExceeded, NotFound, Unavailable
from kubeletpy.remote.generated import api_pb2 as cri
from tests.kit.events import Recorder
from tests.kit.pods import make_pod
from tests.kit.probes import answering, redirecting, serving
from tests.kit.virtual_time import on_virtual_time
from tests.unit.probes.handlers.test_http2 import always, speaking
from tests.unit.probes.handlers.test_network_handlers import grpc_server, key_and_certificate

OK, BAD = ProbeOutcome.SUCCESS, ProbeOutcome.FAILURE


class Runtime:
    """A runtime that answers commands in turn and repeats its last answer."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.commands: list[tuple[str, list[str], float]] = []
        self.takes = 0.0
        """Seconds until an answer."""
        self.canceled = 0
        self.status: Any = cri.ContainerStatusResponse()
        """The answer to ContainerStatus; None: no answer."""

    async def container_status(self, container_id: str) -> Any:
        if self.status is None:
            await asyncio.sleep(1000)
        if isinstance(self.status, Exception):
            raise self.status
        return self.status

    async def exec_sync(self, container_id: str, cmd: Any, timeout: float) -> Any:
        self.commands.append((container_id, list(cmd), timeout))
        try:
            await asyncio.sleep(self.takes)
        except asyncio.CancelledError:
            self.canceled += 1
            raise
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


def target(probe: Any, kind: ProbeKind = ProbeKind.LIVENESS, **container: Any) -> Target:
    spec: Any = {"name": "main", "image": "i", **container, FIELDS[kind]: probe}
    pod = make_pod(containers=[spec])
    return Target(
        pod, ContainerKind.REGULAR, spec, "c1", "127.0.0.1", ProbeSpec.from_probe(kind, probe)
    )


async def run(
    what: Target, *answers: Any, quietly: bool = False
) -> tuple[ProbeOutcome | None, list[str], Runtime]:
    runtime, events = Runtime(*answers or (cri.ExecSyncResponse(),)), Recorder()
    prober = Prober(runtime, events)  # type: ignore[arg-type]
    outcome, parts = await prober.run(what, quietly=quietly)
    assert len(parts) <= KEPT_MESSAGE
    assert set(events.paths) <= {"spec.containers{main}"}
    return outcome, events.seen, runtime


COMMAND = {"exec": {"command": ["check", "$(A)-$(B)-$(C)-$$(A)"]}, "timeoutSeconds": 7}


async def test_exec_gets_its_command_and_timeout() -> None:
    env = [
        {"name": "A", "value": "1"},
        {"name": "B", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        {"name": "C"},
    ]
    outcome, notified, runtime = await run(target(COMMAND, env=env))
    assert (outcome, notified) == (OK, [])
    assert runtime.commands == [("c1", ["check", "1-$(B)--$(A)"], 7)]


@pytest.mark.parametrize("kind", list(ProbeKind))
async def test_a_failure_is_reported_once_with_its_output(kind: ProbeKind) -> None:
    answer = cri.ExecSyncResponse(exit_code=1, stdout=b"no ", stderr=b"luck\xff" + b"x" * 20000)
    outcome, notified, runtime = await run(target(COMMAND, kind), answer)
    assert outcome is BAD
    assert len(runtime.commands) == 1
    (event,) = notified
    assert event.startswith(f"Warning Unhealthy: {kind} probe failed: no luck\ufffdxx")
    assert len(event) < 1100


async def test_a_timeout_is_a_failure() -> None:
    outcome, notified, _ = await run(target(COMMAND), DeadlineExceeded("ExecSync", "too long"))
    assert outcome is BAD
    assert notified == [
        'Warning Unhealthy: Liveness probe failed: command timed out: "check '
        '$(A)-$(B)-$(C)-$(A)" timed out after 7s'
    ]


HANGS = {**COMMAND, "timeoutSeconds": 1}


@on_virtual_time
async def test_a_call_that_hangs_is_a_failure_when_its_time_is_over() -> None:
    """The command ends, but a process holds its output open: ``sh -c "sleep 100; true"``."""
    runtime, events = Runtime(cri.ExecSyncResponse()), Recorder()
    runtime.takes = 100
    prober = Prober(runtime, events)  # type: ignore[arg-type]
    loop = asyncio.get_running_loop()
    for expected_at in (3.0, 3.0, 3.0):
        outcome, parts = await prober.run(target(HANGS), quietly=False)
        assert (outcome, loop.time()) == (BAD, expected_at)
    assert len(runtime.commands) == 1
    assert "the runtime has not ended an earlier run of it" in parts
    # another probe of the container is another command
    outcome, _ = await prober.run(target(HANGS, ProbeKind.READINESS), quietly=False)
    assert (outcome, len(runtime.commands)) == (BAD, 2)
    await asyncio.sleep(100)
    runtime.takes = 0.5
    outcome, _ = await prober.run(target(HANGS), quietly=False)
    assert (outcome, len(runtime.commands)) == (OK, 3)
    assert all("timed out after 1s" in each for each in events.seen)


@on_virtual_time
async def test_a_slow_answer_within_the_slack_counts() -> None:
    runtime = Runtime(cri.ExecSyncResponse())
    runtime.takes = 2.9
    prober = Prober(runtime, Recorder())  # type: ignore[arg-type]
    outcome, _ = await prober.run(target(HANGS), quietly=False)
    assert outcome is OK


@on_virtual_time
@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        (Unavailable("ContainerStatus", "gone"), None),
        (DeadlineExceeded("ContainerStatus", "slow"), None),
        (None, None),
        (NotFound("ContainerStatus", "not found"), BAD),
        (cri.ContainerStatusResponse(), BAD),
    ],
    ids=["unavailable", "deadline", "silent", "not-found", "answers"],
)
async def test_a_probe_without_an_answer_of_the_runtime_has_no_outcome(
    answer: Any, outcome: ProbeOutcome | None
) -> None:
    runtime, events = Runtime(cri.ExecSyncResponse()), Recorder()
    runtime.takes, runtime.status = 100, answer
    prober = Prober(runtime, events)  # type: ignore[arg-type]
    found = await prober.run(target(HANGS), quietly=False)
    assert found.outcome is outcome
    assert len(runtime.commands) == 1
    if outcome is None:
        assert "the container runtime did not answer ContainerStatus within 2s" in events.seen[0]
    assert asyncio.get_running_loop().time() <= 3.0 + TRIES * 2.0


class Paused(Runtime):
    """A runtime that is paused until ``resumes_at`` and then works off its requests."""

    def __init__(self, resumes_at: float, takes: float) -> None:
        super().__init__(cri.ExecSyncResponse())
        self.resumes_at, self.takes = resumes_at, takes

    async def container_status(self, container_id: str) -> Any:
        await asyncio.sleep(max(self.resumes_at - asyncio.get_running_loop().time(), 0))
        return cri.ContainerStatusResponse()

    async def exec_sync(self, container_id: str, cmd: Any, timeout: float) -> Any:
        await asyncio.sleep(max(self.resumes_at - asyncio.get_running_loop().time(), 0))
        return await super().exec_sync(container_id, cmd, timeout)


@on_virtual_time
@pytest.mark.parametrize("resumes_at", [2.0, 3.4, 4.9, 5.1, 8.9, 20.0, 60.0])
@pytest.mark.parametrize("takes", [0.1, 0.9])
async def test_a_pause_of_the_runtime_is_no_failure(resumes_at: float, takes: float) -> None:
    """A command that works, of a probe with a period of one second."""
    prober = Prober(Paused(resumes_at, takes), Recorder())  # type: ignore[arg-type]
    loop, found = asyncio.get_running_loop(), []
    while loop.time() < resumes_at + 20:
        found.append((await prober.run(target(HANGS), quietly=False)).outcome)
        await asyncio.sleep(1)
    assert BAD not in found
    assert found[-1] is OK


@on_virtual_time
async def test_a_command_that_hangs_after_a_pause_of_the_runtime_is_a_failure() -> None:
    prober = Prober(Paused(10.0, takes=1000), Recorder())  # type: ignore[arg-type]
    loop = asyncio.get_running_loop()
    while (await prober.run(target(HANGS), quietly=False)).outcome is None:
        assert loop.time() < 15
        await asyncio.sleep(1)
    assert 10 < loop.time() < 15
    assert len(prober._commands) == 1
    await prober.close(1.0)


@on_virtual_time
async def test_commands_that_hang_end_with_their_probe() -> None:
    runtime = Runtime(cri.ExecSyncResponse())
    runtime.takes = 100
    prober = Prober(runtime, Recorder())  # type: ignore[arg-type]
    for kind in (ProbeKind.LIVENESS, ProbeKind.READINESS):
        await prober.run(target(HANGS, kind), quietly=False)
    assert len(prober._commands) == 2
    prober.abandon("c1", ProbeKind.LIVENESS)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert len(prober._commands) == 1
    await prober.close(1.0)
    assert (len(prober._commands), runtime.canceled) == (0, 2)
    cut_off = asyncio.ensure_future(prober.run(target(HANGS), quietly=False))
    await asyncio.sleep(0.5)
    cut_off.cancel()
    await asyncio.wait([cut_off])
    await asyncio.sleep(0)
    assert (len(prober._commands), runtime.canceled) == (0, 3)


async def test_a_probe_that_cannot_run_is_retried_and_then_reported() -> None:
    removed = NotFound("ExecSync", "no such task")
    outcome, notified, runtime = await run(target(COMMAND), removed)
    assert outcome is None
    assert len(runtime.commands) == TRIES
    assert notified == [
        "Warning Unhealthy: Liveness probe errored and resulted in unknown state: "
        "rpc error: code = NotFound desc = no such task"
    ]
    outcome, notified, runtime = await run(
        target(COMMAND), removed, removed, cri.ExecSyncResponse()
    )
    assert (outcome, notified, len(runtime.commands)) == (OK, [], 3)


async def test_quietly() -> None:
    failed = cri.ExecSyncResponse(exit_code=1)
    for answer in (failed, NotFound("ExecSync", "gone")):
        outcome, notified, _ = await run(target(COMMAND), answer, quietly=True)
        assert outcome is not OK
        assert notified == []


@pytest.mark.parametrize(
    "probe",
    [
        {"httpGet": {"port": "web"}},
        {"tcpSocket": {"port": "web"}},
        {"grpc": {"port": 0}},
        {"exec": {"command": "not a list"}},
        {},
    ],
)
async def test_an_invalid_probe_is_an_error_not_a_failure(probe: Any) -> None:
    outcome, notified, _ = await run(target(probe, ProbeKind.READINESS))
    assert outcome is None
    assert notified[0].startswith(
        "Warning Unhealthy: Readiness probe errored and resulted in unknown state: "
    )


async def test_http_and_tcp_with_named_ports() -> None:
    async with serving(answering(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")) as port:
        ports = [{"name": "web", "containerPort": port}]
        for probe in ({"httpGet": {"port": "web"}}, {"tcpSocket": {"port": "web"}}):
            assert (await run(target(probe, ports=ports)))[:2] == (OK, [])


async def test_a_redirect_elsewhere_is_reported_and_fine() -> None:
    async with serving(redirecting(lambda n: "http://elsewhere.example/")) as port:
        outcome, notified, _ = await run(target({"httpGet": {"port": port}}))
    assert outcome is OK
    assert notified == [
        "Warning ProbeWarning: Liveness probe warning: "
        "Probe terminated redirects, Response body: over"
    ]


def test_metrics_are_the_kubelets_and_go_with_the_probe() -> None:
    metrics = Metrics()
    old = ("Liveness", "main", "web", "default", "uid-1")
    new = (*old[:4], "uid-2")
    for who in (old, new):
        metrics.probes.probed(who, "successful", 0.02)
        metrics.probes.probed(who, "failed", 5.0)
    text = metrics.render_probes().decode()
    labels = 'container="main",namespace="default",pod="web",pod_uid="uid-1",probe_type="Liveness"'
    assert f'prober_probe_total{{{labels},result="successful"}} 1\n' in text
    assert f'prober_probe_total{{{labels},result="failed"}} 1\n' in text
    assert 'prober_probe_duration_seconds_count{container="main",namespace="default",' in text
    assert 'pod="web",probe_type="Liveness"} 2\n' in text
    metrics.probes.removed(old)
    metrics.probes.removed(old)
    text = metrics.render_probes().decode()
    assert "uid-1" not in text
    assert "prober_probe_duration_seconds_count" in text
    metrics.probes.removed(new)
    assert b"prober_" not in metrics.render_probes()


@pytest.mark.parametrize(("gate", "outcome"), [(True, OK), (False, BAD)])
async def test_the_gates_decide_whether_protocols_of_probes_are_obeyed(
    gate: bool, outcome: ProbeOutcome, tmp_path: Path
) -> None:
    async def find(probe: Any) -> ProbeOutcome | None:
        prober = Prober(Runtime(), Recorder(), http2=gate, grpc_tls=gate)  # type: ignore[arg-type]
        return (await prober.run(target(probe), quietly=False)).outcome

    async with speaking(always(200)) as port:
        get = {"port": port, "protocol": "HTTP2"}
        assert await find({"httpGet": get, "timeoutSeconds": 5}) is outcome
    async with serving(answering(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")) as port:
        for protocol in ({}, {"protocol": "HTTP1"}):
            assert await find({"httpGet": {"port": port, **protocol}, "timeoutSeconds": 5}) is OK
    async with grpc_server(tls=key_and_certificate(tmp_path)) as (port, servicer):
        await servicer.set("", HealthCheckResponse.SERVING)
        call = {"port": port, "mode": "TLS"}
        assert await find({"grpc": call, "timeoutSeconds": 5 if gate else 1}) is outcome
    async with grpc_server() as (port, servicer):
        await servicer.set("", HealthCheckResponse.SERVING)
        for mode in ({}, {"mode": "Plaintext"}):
            assert await find({"grpc": {"port": port, **mode}, "timeoutSeconds": 5}) is OK
