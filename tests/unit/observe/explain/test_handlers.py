"""Requests of probes and hooks, and the next step for hooks that do not end."""

from __future__ import annotations

from typing import Any

import pytest

from kubeletpy.base.api.types import JSON
from kubeletpy.base.structs import replace
from kubeletpy.metrics.trace.model import TraceCall
from kubeletpy.observe.explain import handlers
from kubeletpy.observe.explain.facts import PodFacts
from kubeletpy.observe.explain.gather import explain
from kubeletpy.pods.pod import Pod
from kubeletpy.pods.runtime_status import ProbeOutcome
from kubeletpy.probes.schedule import ProbeFinding, ProbeKind, ProbeReport
from tests.unit.observe.explain.facts import NOW, doing, facts, not_ready, waiting
from tests.unit.podworkers.builders import make_pod, make_static

POST, PRE = TraceCall.POST_START, TraceCall.PRE_STOP
SECRET = {"name": "TOKEN", "value": "s3cret"}
DRAIN = {"exec": {"command": ["sh", "-c", "drain $TOKEN $(TOKEN)\n"]}}
REPORTED = "command 'sh -c drain $TOKEN $(TOKEN) '"


def hooked(hook: str, handler: JSON, **more: Any) -> Pod:
    container = {"name": "main", "image": "i", "env": [SECRET], "lifecycle": {hook: handler}}
    container["ports"] = [{"name": "web", "containerPort": 8080}]
    return make_pod(containers=[container], **more)


def hanging(call: TraceCall, pod: Pod, since: float = 90.0, **more: Any) -> PodFacts:
    limit = 100.0 if call is PRE else None
    return facts(
        pod,
        status=not_ready(waiting("ContainerCreating"), podIPs=[{"ip": "fd00::7"}]),
        trace=doing(call, "main", since, limit),
        **more,
    )


@pytest.mark.parametrize(
    ("handler", "reported"),
    [
        (DRAIN, REPORTED),
        ({"httpGet": {"path": "/go", "port": "web"}}, "GET http://[fd00::7]:8080/go"),
        ({"httpGet": {"port": 80, "host": "a.b", "scheme": "HTTPS"}}, "GET https://a.b:80/"),
        ({"httpGet": {"port": "nope"}}, "GET http://[fd00::7]:nope/"),
        ({"tcpSocket": {"port": 5432}}, "TCP [fd00::7]:5432"),
        ({"sleep": {"seconds": 9}}, "a pause of 9 seconds"),
        ({}, ""),
    ],
)
def test_hooks_are_named_by_what_they_request(handler: JSON, reported: str) -> None:
    found = hanging(POST, hooked("postStart", handler))
    assert handlers.hook(found, "main", POST) == reported
    assert handlers.hook(found, "main", PRE) == ""
    assert handlers.hook(found, "other", POST) == ""
    assert "s3cret" not in explain(found).verdict + explain(found).hint


def test_a_post_start_hook_that_does_not_end() -> None:
    found = explain(hanging(POST, hooked("postStart", DRAIN)))
    assert found.verdict == (
        f"not running: container main: postStart hook ({REPORTED}; nothing limits it) for 1m30s"
    )
    assert (found.cause, found.first_seen) == ("hook", NOW - 90)
    assert found.waits[0].since == NOW - 90
    assert found.hint.split("; ") == [
        f"see why the postStart hook ({REPORTED}) does not end, and give it a time limit "
        "of its own: nothing else limits it, and no container after it starts before",
        "kubectl delete pod -n default web does not wait for it",
    ]
    static = make_static("web", containers=hooked("postStart", DRAIN).object["spec"]["containers"])
    assert "the end of the pod does not wait" in explain(hanging(POST, static)).hint


def test_a_post_start_hook_that_pauses_has_an_end() -> None:
    found = explain(hanging(POST, hooked("postStart", {"sleep": {"seconds": 95}})))
    assert found.verdict.endswith("postStart hook (a pause of 95 seconds) for 1m30s, ends in 5s")
    assert found.hint == "nothing: the hook ends by itself"


def test_a_pre_stop_hook_is_limited_by_the_grace_period() -> None:
    ending = hanging(PRE, hooked("preStop", DRAIN), worker={"terminating_at": NOW - 90})
    found = explain(ending)
    assert found.verdict.endswith(
        f": container main: preStop hook ({REPORTED}) for 1m30s, given up in 10s"
    )
    hint = f"see why the preStop hook ({REPORTED}) does not end; "
    assert found.hint == f"{hint}kubectl delete pod -n default web --now gives it up sooner"
    restarts = hanging(PRE, hooked("preStop", DRAIN))
    assert explain(restarts).hint == f"{hint}it is given up when the grace period is over"


@pytest.mark.parametrize(
    ("kind", "field", "report", "reported"),
    [
        (
            ProbeKind.STARTUP,
            {"tcpSocket": {"port": "web"}, "failureThreshold": 60, "timeoutSeconds": 5},
            {},
            "TCP 10.0.0.1:8080, which kills the container after 60 failures in a row, no run has "
            "ended yet, and each may take 5s",
        ),
        (
            ProbeKind.STARTUP,
            {"grpc": {"port": 9, "service": "s"}, "failureThreshold": 60},
            {"last": ProbeFinding(ProbeOutcome.FAILURE, "x\n"), "streak": 54},
            "gRPC 10.0.0.1:9, service s, which kills the container after 60 failures in a row, 54 "
            'so far and the others within 1m, last output "x"',
        ),
        (
            ProbeKind.LIVENESS,
            {"exec": {"command": ["a", "b"]}},
            {"last": ProbeFinding(ProbeOutcome.SUCCESS, "x")},
            "command 'a b', which kills the container after 3 failures in a row",
        ),
        (ProbeKind.READINESS, {"exec": {"command": ["a" * 300]}}, {}, f"command '{'a' * 190}…"),
        (ProbeKind.READINESS, None, {}, ""),
    ],
)
def test_probes_are_named_with_their_limit_and_count(
    kind: ProbeKind, field: Any, report: dict[str, Any], reported: str
) -> None:
    ports = [{"name": "web", "containerPort": 8080}]
    container = {"name": "main", "ports": ports, f"{kind.value.lower()}Probe": field}
    found = facts(make_pod(containers=[container]))
    found = replace(found, probe_reports=(ProbeReport("main", kind, None, **report),))
    assert handlers.probe(found, "main", kind) == reported
