"""Rendered text and drawings, from which control characters of pods are removed."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec import to_builtins

from kubeletpy.base.api.times import format_time
from kubeletpy.base.api.types import JSON
from kubeletpy.base.structs import replace
from kubeletpy.metrics.trace.model import PodTrace, Span, Step, TraceCall
from kubeletpy.node.eviction.decide import Signal
from kubeletpy.node.eviction.ranking import Reclaim
from kubeletpy.node.eviction.report import EvictionOrder, Next, RankingEntry
from kubeletpy.observe.explain import handlers, render
from kubeletpy.observe.explain.containers import (
    RECENTLY_S,
    killed_by,
    last_exit,
    never_ran,
    restless,
)
from kubeletpy.observe.explain.facts import PodFacts
from kubeletpy.observe.explain.gather import explain, line
from kubeletpy.observe.explain.model import Timeline, from_json, timeline
from kubeletpy.observe.explain.render import orders, version
from kubeletpy.pods.pod import Pod
from kubeletpy.pods.runtime_status import (
    Decision,
    KillReason,
    ProbeOutcome,
    ProbeResults,
    StartError,
)
from kubeletpy.podworkers.history import HistoryEntry
from kubeletpy.probes.schedule import ProbeFinding, ProbeKind, ProbeReport
from tests.kit.observe import NOW, OFFSET, doing, exited, facts, not_ready, running, waiting
from tests.kit.pods import make_pod, make_static

EVIL = "\x1b]0;owned\x07\nFAKE LINE <script>"


def as_json(found: Any) -> Any:
    return json.loads(json.dumps(to_builtins(found)))


def crash() -> dict[str, Any]:
    return {
        "status": not_ready(
            waiting("CrashLoopBackOff", restartCount=3, lastState=exited(3)["state"])
        ),
        "start_errors": {"main": StartError("CrashLoopBackOff", "back-off 20s", NOW + 14)},
        "history": (
            HistoryEntry(NOW - 30, Decision("create sandbox, attempt 0", "the pod has no sandbox")),
            HistoryEntry(NOW - 29, Decision("start container main", "it exited"), 3, NOW - 6),
            HistoryEntry(NOW - 8, Decision("sync failed", "no answer", failed=True)),
        ),
    }


def test_a_node_on_which_everything_works_has_no_such_paragraphs() -> None:
    assert (render.notices([]), render.troubles([])) == ("", "")
    setting = {"name": "a", "value": "b\n", "consequence": "none"}
    assert render.notices([setting]) == "\nSet without effect\n  a=b: none\n"
    assert render.troubles(["x\ny"]) == "\nDoes not work\n  x y\n"


def test_probes_and_their_messages() -> None:
    bad, ok = ProbeOutcome.FAILURE, ProbeOutcome.SUCCESS
    parts = f"no database{EVIL}" + 500 * "x"
    reports = (
        ProbeReport("main", ProbeKind.READINESS, bad, ProbeFinding(bad, parts),
                    98.0, 2, 3, 101.0),
        ProbeReport("main", ProbeKind.LIVENESS, ok, ProbeFinding(ok, ""), 95.0, 9, 1, 105.0),
        ProbeReport("main", ProbeKind.STARTUP, None),
    )  # fmt: skip
    pod = make_pod(containers=[{"name": "main", "image": "i", "readinessProbe": {}}])
    status = not_ready(running(ready=False), phase="Running")
    results = ProbeResults(readiness={"main": bad})
    found = facts(pod, status=status, probes=results, probe_reports=reports)
    text = render.pod(as_json(explain(found)))
    assert text.startswith(
        "default/web: running, not ready: its readiness probe fails: no database ]0;owned "
    )
    rows = text.split("\nProbes\n")[1].split("\n")
    assert rows[0].startswith("  main  readiness  counts as failure  last failure")
    assert "2s ago  next in 1s  no database ]0;owned FAKE LINE" in rows[0]
    assert rows[1].split() == [
        "main",
        "liveness",
        "counts",
        "as",
        "success",
        "last",
        "success",
        "5s",
        "ago",
        "next",
        "in",
        "5s",
    ]
    assert rows[2].split() == ["main", "startup", "not", "run", "yet"]
    assert max(map(len, rows)) < 260
    assert "\x1b" not in text


def test_a_node_without_pods() -> None:
    assert render.pods([]) == "no pods on this node\n"


def test_what_pods_say_stays_on_its_line() -> None:
    changes = crash()
    changes["start_errors"] = {"main": StartError("CrashLoopBackOff", EVIL, NOW + 1)}
    changes["history"] = (HistoryEntry(NOW, Decision(EVIL, EVIL)),)
    changes["status"]["containerStatuses"][0]["state"]["waiting"]["message"] = EVIL
    for text in (
        render.pod(as_json(explain(facts(**changes)))),
        render.pods([as_json(line(facts(**changes)))]),
    ):
        assert "\x1b" not in text
        assert "\x07" not in text
        assert not any(each.startswith("FAKE") for each in text.split("\n"))


def start() -> PodTrace:
    trace = PodTrace("uid", "default", "web", 10.0, ready_at=10.4)
    trace.start = [
        Span(Step.VOLUMES, "", 10.0, 10.01),
        Span(TraceCall.RUN_POD_SANDBOX, "attempt 0", 10.01, 10.2),
        Span(TraceCall.POD_SANDBOX_STATUS, "", 10.2, 10.21),
        Span(TraceCall.PULL_IMAGE, EVIL, 10.05, 10.15, "no such <host>"),
        Span(TraceCall.WRITE_STATUS, "Running, Ready", 10.38, 10.4),
        Span(Step.RUNTIME, "", 10.01, 10.38),
    ]
    return trace


def drawn() -> Timeline:
    found = timeline(start(), OFFSET, OFFSET + 9.9, 12.0)
    return from_json(json.loads(json.dumps(to_builtins(found))))


@pytest.mark.parametrize("width", [40, 80, 120, 200])
def test_the_text_keeps_to_the_terminal(width: int) -> None:
    text = render.text(drawn(), width)
    assert "\x1b" not in text
    bars = [each for each in text.split("\n") if each.endswith("│")]
    assert len(bars) == 6
    assert len({len(each) for each in bars}) == 1
    assert len(bars[0]) <= max(width, 66)


# Requests of probes and hooks, and the next step for hooks that do not end.

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


# How runs ended, why, and which containers are restless.

BAD, GOOD = ProbeOutcome.FAILURE, ProbeOutcome.SUCCESS
DEAD, UNSTARTED = KillReason.LIVENESS_PROBE, KillReason.STARTUP_PROBE
LIVENESS, READINESS, STARTUP = ProbeKind.LIVENESS, ProbeKind.READINESS, ProbeKind.STARTUP
TWO = make_pod(containers=[{"name": "side", "image": "i"}, {"name": "main", "image": "i"}])
WAITS = {"status": {"containerStatuses": [running("side"), waiting("CrashLoopBackOff")]}}


@pytest.mark.parametrize(
    ("reason", "message", "never"),
    [
        ("StartError", "no such file", True),
        ("ContainerCannotRun", "no such file", True),
        ("StartError", "", False),
        ("Error", "no such file", False),
    ],
)
def test_a_program_that_never_ran(reason: str, message: str, never: bool) -> None:
    state = exited(1)["state"]["terminated"] | {"reason": reason, "message": message}
    found = last_exit(
        facts(status=not_ready({"name": "main", "state": {"terminated": state}})), "main"
    )
    assert found is not None
    assert never_ran(found) is never


def kill(at: float, why: KillReason, name: str = "main", last: float = 0.0) -> HistoryEntry:
    made = Decision("what", "why", killed=name, kill_reason=why)
    return HistoryEntry(NOW - at, made, last_at=last and NOW - last)


def report(kind: ProbeKind, settled: ProbeOutcome | None, name: str = "main") -> dict[str, Any]:
    return {"probe_reports": (ProbeReport(name, kind, settled, ProbeFinding(BAD, "no")),)}


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({}, None),
        (report(LIVENESS, BAD), LIVENESS),
        (report(STARTUP, BAD), STARTUP),
        (report(READINESS, BAD), None),
        (report(LIVENESS, GOOD), None),
        (report(LIVENESS, None), None),
        (report(LIVENESS, BAD, "side"), None),
        ({"history": (kill(5, DEAD),)}, LIVENESS),
        ({"history": (kill(5, UNSTARTED),)}, STARTUP),
        ({"history": (kill(9, DEAD), kill(5, KillReason.DEFINITION_CHANGED))}, None),
        ({"history": (HistoryEntry(NOW - 1, Decision("start container main", "probe")),)}, None),
        ({"history": (kill(5, DEAD, "side"),)}, None),
        ({"history": (kill(5, UNSTARTED), kill(9, DEAD))}, STARTUP),
        ({"history": (kill(9, UNSTARTED), kill(5, DEAD))}, LIVENESS),
        ({"history": (kill(9, UNSTARTED, last=2), kill(5, DEAD))}, STARTUP),
        ({"history": (kill(5, UNSTARTED), kill(9, DEAD, last=2))}, LIVENESS),
        ({"history": (kill(RECENTLY_S, DEAD),)}, LIVENESS),
        ({"history": (kill(RECENTLY_S + 1, DEAD),)}, None),
        ({"history": (kill(RECENTLY_S + 1, DEAD, last=RECENTLY_S),)}, LIVENESS),
        ({"history": (kill(5, DEAD),), **WAITS}, None),
    ],
)
def test_the_probe_that_ended_a_run(changes: dict[str, Any], kind: ProbeKind | None) -> None:
    both = {"status": {"containerStatuses": [running("side"), running()]}}
    assert killed_by(facts(TWO, **{**both, **changes}), "main") is kind


def test_a_container_absent_from_the_pod_has_no_killer() -> None:
    assert killed_by(facts(TWO, history=(kill(5, DEAD, "x"),)), "x") is None


def entry(restarts: int, since: float | None, ended: float | None, **more: Any) -> dict[str, Any]:
    state = {"running": {} if since is None else {"startedAt": format_time(NOW - since)}}
    last = {} if ended is None else {"terminated": {"finishedAt": format_time(NOW - ended)}}
    return {"name": "main", "state": state, "lastState": last, "restartCount": restarts, **more}


@pytest.mark.parametrize(
    ("status", "found"),
    [
        (entry(2, 5, 6), True),
        (entry(1, 5, 6), False),
        (entry(2, None, 6), False),
        (entry(2, 5, None), False),
        (entry(2, 5, RECENTLY_S - 1), True),
        (entry(2, 5, RECENTLY_S), False),
        (entry(2, RECENTLY_S, 6), False),
        (entry(2, 5, 6, state={"waiting": {"reason": "CrashLoopBackOff"}}), False),
        (entry(2, 5, 6, state={"terminated": {"finishedAt": format_time(NOW - 5)}}), False),
    ],
)
def test_a_restless_container(status: dict[str, Any], found: bool) -> None:
    """A restless container restarted at least twice, and its last two runs were short."""
    calm = running("side", restartCount=5)
    view = restless(facts(TWO, status={"containerStatuses": [calm, status]}))
    assert (view is not None and view.name) == (found and "main")


# Eviction order as text.

MI = 1 << 20
PLACE = RankingEntry("ns", "a", "u", 0, False, 30 * MI, 10 * MI, True)


def reported(order: EvictionOrder) -> list[str]:
    head, *lines = orders([to_builtins(order)]).splitlines()
    assert head == "Eviction order"
    return [line.strip() for line in lines]


def test_an_order() -> None:
    unknown = replace(PLACE, name="b\n\x1b[1m", used=None, over=False)
    within = replace(PLACE, name="c", used=5 * MI, over=False, priority=7)
    pods = (Next(1, unknown), Next(2, PLACE), Next(12, within, requested=True))
    both = (Reclaim.CONTAINERS, Reclaim.IMAGES)
    assert reported(EvictionOrder((Signal.NODEFS, Signal.IMAGEFS), True, both, pods, 14, 2)) == [
        "nodefs.available, imagefs.available (short of it now)",
        "nobody, if removing unused containers and unused images is enough",
        "1. ns/b [1m: priority 0; what it uses is not known",
        "2. ns/a: priority 0, uses 30.0 MiB, more than its request of 10.0 MiB",
        "…",
        "12. ns/c: this pod, priority 7, uses 5.0 MiB, within its request of 10.0 MiB",
        "… of 14",
        "2 critical or static pods stay",
    ]


def test_a_new_pod_and_its_position_above_its_request() -> None:
    new = Next(1, replace(PLACE, used=10 * MI, over=False), requested=True, assumed=True)
    assert reported(EvictionOrder((Signal.MEMORY,), False, (), (new,), 1, 1, beyond=1)) == [
        "memory.available (enough now)",
        "1. ns/a: this pod, priority 0, if it uses the 10.0 MiB that it requests",
        "once it uses more than it requests, this pod is number 1",
        "1 critical or static pod stays",
    ]


def test_a_new_pod_without_requests() -> None:
    new = Next(1, replace(PLACE, used=1, request=0), requested=True, assumed=True)
    _, line = reported(EvictionOrder((Signal.MEMORY,), False, (), (new,), 1, 0))
    assert line == "1. ns/a: this pod, priority 0; it requests none, so all usage counts as excess"


def test_tasks_are_not_requested() -> None:
    new = Next(2, replace(PLACE, used=1), requested=True, assumed=True)
    order = EvictionOrder((Signal.PIDS,), False, (), (Next(1, replace(PLACE, used=40)), new), 2, 0)
    assert reported(order)[1:] == [
        "1. ns/a: priority 0, 40 tasks",
        "2. ns/a: this pod, priority 0, with one task",
    ]


def test_a_critical_pod_and_an_empty_order() -> None:
    assert reported(EvictionOrder((Signal.MEMORY,), False, (), (), 0, 0, requested_stays=True))[
        1:
    ] == ["this pod is critical or static: it stays"]
    assert reported(EvictionOrder((Signal.MEMORY,), False, (), (), 0, 0))[1:] == [
        "no pod can be evicted"
    ]
    assert orders([]) == ""


# The Kubernetes version in a node's explanation.

FOUND: dict[str, Any] = {
    "running": "1.36",
    "source": "server",
    "why": "the API server is v1.36.3",
    "server": "v1.37.2",
    "restart": "restart the agent",
}


def test_both_versions_are_shown() -> None:
    assert version(FOUND) == (
        "\nKubernetes version\n  runs as 1.36: the API server is v1.36.3\n"
        "  API server: v1.37.2\n  restart the agent\n"
    )


def test_without_an_api_server() -> None:
    alone = {**FOUND, "source": "standalone", "server": "", "restart": ""}
    assert version(alone) == "\nKubernetes version\n  runs as 1.36: the API server is v1.36.3\n"
    assert "API server: unknown\n" in version({**FOUND, "server": "", "source": "oldest"})


def test_an_agent_of_an_earlier_release_reports_none() -> None:
    assert version(None) == ""


def test_the_cause_of_an_ended_run_beside_its_exit_code() -> None:
    cause = {"kind": "signal", "actor": "outside", "evidence": ["exit code 137", "signal 9"]}
    plain = {"kind": "exited", "actor": "process", "evidence": ["exit code 3"]}
    assert render.death(cause) == (
        "killed by a signal from outside the container (exit code 137; signal 9)"
    )
    assert render.death(plain) == render.death(None) == ""
    assert render.death({**cause, "kind": "of-a-later-version"}) == "of-a-later-version"
