"""One run of a probe: what is asked, what is told, what is counted as what."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kubeletpy.metrics.registry import Metrics
from kubeletpy.pods.pod import ContainerKind
from kubeletpy.pods.probe_results import ProbeOutcome
from kubeletpy.probes.prober import TRIES, Prober, Target
from kubeletpy.probes.report import KEPT_WORDS
from kubeletpy.probes.schedule import FIELDS, ProbeKind, ProbeSpec
from kubeletpy.remote.errors import DeadlineExceeded, NotFound
from kubeletpy.remote.generated import api_pb2 as cri
from tests.unit.handlers.servers import answering, redirecting, serving
from tests.unit.images.fake_images import Events
from tests.unit.podworkers.builders import make_pod
from tests.virtual_time import on_virtual_time

OK, BAD = ProbeOutcome.SUCCESS, ProbeOutcome.FAILURE


class Runtime:
    """Answers commands in turn; the last answer stays."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.commands: list[tuple[str, list[str], float]] = []
        self.takes = 0.0
        """Seconds until an answer."""

    async def exec_sync(self, container_id: str, cmd: Any, timeout: float) -> Any:
        self.commands.append((container_id, list(cmd), timeout))
        await asyncio.sleep(self.takes)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


def target(probe: Any, kind: ProbeKind = ProbeKind.LIVENESS, **container: Any) -> Target:
    spec: Any = {"name": "main", "image": "i", **container, FIELDS[kind]: probe}
    pod = make_pod(containers=[spec])
    return Target(pod, ContainerKind.REGULAR, spec, "c1", "127.0.0.1", ProbeSpec.of(kind, probe))


async def run(
    what: Target, *answers: Any, quietly: bool = False
) -> tuple[ProbeOutcome | None, list[str], Runtime]:
    runtime, events = Runtime(*answers or (cri.ExecSyncResponse(),)), Events()
    prober = Prober(runtime, events)  # type: ignore[arg-type]
    outcome, words = await prober.run(what, quietly=quietly)
    assert len(words) <= KEPT_WORDS
    assert set(events.paths) <= {"spec.containers{main}"}
    return outcome, events.seen, runtime


COMMAND = {"exec": {"command": ["check", "$(A)-$(B)-$(C)-$$(A)"]}, "timeoutSeconds": 7}


async def test_exec_gets_its_words_and_its_time() -> None:
    env = [
        {"name": "A", "value": "1"},
        {"name": "B", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        {"name": "C"},
    ]
    outcome, told, runtime = await run(target(COMMAND, env=env))
    assert (outcome, told) == (OK, [])
    assert runtime.commands == [("c1", ["check", "1-$(B)--$(A)"], 7)]


@pytest.mark.parametrize("kind", list(ProbeKind))
async def test_a_failure_is_reported_once_with_its_output(kind: ProbeKind) -> None:
    answer = cri.ExecSyncResponse(exit_code=1, stdout=b"no ", stderr=b"luck\xff" + b"x" * 20000)
    outcome, told, runtime = await run(target(COMMAND, kind), answer)
    assert outcome is BAD
    assert len(runtime.commands) == 1
    (event,) = told
    assert event.startswith(f"Warning Unhealthy: {kind} probe failed: no luck\ufffdxx")
    assert len(event) < 1100


async def test_a_timeout_is_a_failure() -> None:
    outcome, told, _ = await run(target(COMMAND), DeadlineExceeded("ExecSync", "too long"))
    assert outcome is BAD
    assert told == [
        'Warning Unhealthy: Liveness probe failed: command timed out: "check '
        '$(A)-$(B)-$(C)-$(A)" timed out after 7s'
    ]


@on_virtual_time
async def test_an_answer_that_comes_after_the_limit_counts() -> None:
    """As of ``sleep 10 & exit 1``: the command has ended, something holds its output open."""
    runtime = Runtime(cri.ExecSyncResponse(exit_code=1))
    runtime.takes = 100
    prober = Prober(runtime, Events())  # type: ignore[arg-type]
    outcome, _ = await prober.run(target({**COMMAND, "timeoutSeconds": 1}), quietly=False)
    assert (outcome, len(runtime.commands)) == (BAD, 1)


async def test_what_cannot_be_run_is_tried_again_and_then_reported() -> None:
    gone = NotFound("ExecSync", "no such task")
    outcome, told, runtime = await run(target(COMMAND), gone)
    assert outcome is None
    assert len(runtime.commands) == TRIES
    assert told == [
        "Warning Unhealthy: Liveness probe errored and resulted in unknown state: "
        "rpc error: code = NotFound desc = no such task"
    ]
    outcome, told, runtime = await run(target(COMMAND), gone, gone, cri.ExecSyncResponse())
    assert (outcome, told, len(runtime.commands)) == (OK, [], 3)


async def test_quietly() -> None:
    failed = cri.ExecSyncResponse(exit_code=1)
    for answer in (failed, NotFound("ExecSync", "gone")):
        outcome, told, _ = await run(target(COMMAND), answer, quietly=True)
        assert outcome is not OK
        assert told == []


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
async def test_what_can_never_be_run_is_an_error_not_a_failure(probe: Any) -> None:
    outcome, told, _ = await run(target(probe, ProbeKind.READINESS))
    assert outcome is None
    assert told[0].startswith(
        "Warning Unhealthy: Readiness probe errored and resulted in unknown state: "
    )


async def test_by_http_and_tcp_with_named_ports() -> None:
    async with serving(answering(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")) as port:
        ports = [{"name": "web", "containerPort": port}]
        for probe in ({"httpGet": {"port": "web"}}, {"tcpSocket": {"port": "web"}}):
            assert (await run(target(probe, ports=ports)))[:2] == (OK, [])


async def test_a_redirect_elsewhere_is_reported_and_fine() -> None:
    async with serving(redirecting(lambda n: "http://elsewhere.example/")) as port:
        outcome, told, _ = await run(target({"httpGet": {"port": port}}))
    assert outcome is OK
    assert told == [
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
    metrics.probes.gone(old)
    metrics.probes.gone(old)
    text = metrics.render_probes().decode()
    assert "uid-1" not in text
    assert "prober_probe_duration_seconds_count" in text
    metrics.probes.gone(new)
    assert b"prober_" not in metrics.render_probes()
