"""Data sent to the page: rows, one pod and differences, with all outside texts cleaned."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec import to_builtins

from kubeletpy.images.policy import PullPosition, PullProgress
from kubeletpy.metrics.trace.model import TraceCall
from kubeletpy.observe.explain import unplaced
from kubeletpy.observe.explain.deaths import Actor, DeathCause, DeathKind
from kubeletpy.observe.explain.facts import PodFacts
from kubeletpy.observe.explain.gather import explain, line
from kubeletpy.observe.view import feed
from kubeletpy.observe.view.feed import History
from kubeletpy.pods.runtime_status import StartError
from tests.kit.observe import NOW, doing, exited, facts, not_ready, waiting
from tests.kit.view import Agent, used
from tests.unit.observe.explain.test_from_api import UNSCHEDULED
from tests.unit.observe.explain.test_from_api import pod as from_api_pod
from tests.unit.observe.explain.test_unplaced import event as scheduler_event
from tests.unit.observe.view.test_drawing import HOSTILE


def test_a_row() -> None:
    assert feed.pods([to_builtins(line(facts()))]) == [
        {
            "uid": "uid-web",
            "path": "default/web",
            "tone": "well",
            "state": "syncing",
            "verdict": "running and ready, for 20s",
            "cause": "running",
            "since": None,
        }
    ]


@pytest.mark.parametrize(
    ("healthy", "cause", "tone"),
    [
        (True, "running", "well"),
        (True, "succeeded", "well"),
        (False, "starting", "busy"),
        (False, "ending", "busy"),
        (False, "image-pull", "busy"),
        (False, "init-container", "busy"),
        (False, "grace-period", "busy"),
        (False, "crash", "sick"),
        (False, "readiness-probe", "sick"),
        (False, "image-not-found", "sick"),
        (False, "volume", "sick"),
        (False, "what nobody has heard of", "sick"),
    ],
)
def test_tones(healthy: bool, cause: str, tone: str) -> None:
    assert feed.tone(healthy=healthy, cause=cause) == tone


def test_unhealthy_pods_come_first() -> None:
    base = to_builtins(line(facts()))

    def one(name: str, cause: str, *, healthy: bool = False) -> dict[str, Any]:
        return {**base, "name": name, "uid": name, "cause": cause, "healthy": healthy}

    lines = [
        *(one("b", "running", healthy=True), one("a", "running", healthy=True)),
        *(one("z", "crash"), one("m", "starting")),
    ]
    assert [row["path"] for row in feed.pods(lines)] == [
        *("default/z", "default/m", "default/a", "default/b")
    ]
    assert len(feed.pods([base] * (feed.MAX_PODS + 1))) == feed.MAX_PODS


def test_a_pod() -> None:
    agent = Agent()
    reported = feed.pod(agent.pod, agent.timeline, agent.events)
    assert {
        name: reported[name] for name in ("gone", "uid", "path", "tone", "verdict", "final")
    } == {
        "gone": "",
        "uid": "uid-web",
        "path": "default/web",
        "tone": "well",
        "verdict": "running and ready, for 20s",
        "final": False,
    }
    assert reported["facts"] == [
        ["Status", "Running, Ready"],
        ["Worker", "syncing"],
        ["Address", "10.0.0.1"],
        ["UID", "uid-web"],
    ]
    (container,) = reported["containers"]
    assert (container["name"], container["state"], container["ready"]) == ("main", "running", True)
    assert reported["events"] == [
        {"at": 6.0, "type": "Warning", "reason": "Failed", "message": "failed", "count": 1,
         "container": "", "source": ""},
        {"at": 5.0, "type": "Normal", "reason": "Pulled", "message": "pulled", "count": 2,
         "container": "main", "source": ""},
    ]  # fmt: skip
    (start,) = reported["waterfalls"]
    assert [row["label"] for row in start["rows"]] == [
        *("RunPodSandbox attempt 0", "volumes", "pull image shop:1")
    ]
    assert start["rows"][1]["beside"] == ("pull image shop:1",)
    json.dumps(reported)


def test_the_last_lines_of_logs() -> None:
    agent = Agent()

    def reported(logs: Any) -> Any:
        return feed.pod(agent.pod, agent.timeline, agent.events, logs)["logs"]

    assert reported(agent.logs) == [{"name": "main", "lines": ["listening on :80"]}]
    assert reported(None) == reported({"error": "no such path", "last": None}) == []
    many = {"containers": {f"c{n}": [str(k) for k in range(30)] for n in range(99)}}
    assert len(reported(many)) == feed.MAX_ROWS
    assert reported(many)[0] == {"name": "c0", "lines": [str(k) for k in range(20, 30)]}
    (log,) = reported({"containers": {"main": ["x" * 999]}})
    assert len(log["lines"][0]) == feed.MAX_LOG_LINE


def test_a_pod_that_no_node_has() -> None:
    """It has the scheduler's event, and the page gets the same parts as for other pods."""
    made = from_api_pod({"conditions": [UNSCHEDULED]}, node="", uid="u")
    (line,) = feed.pods(unplaced.lines([made], []))
    assert (line["path"], line["tone"]) == ("ns/web", "sick")
    assert line["verdict"] == "node: none; not scheduled: Unschedulable: 0/1 nodes"
    notified = unplaced.explain_unscheduled(made, [])
    assert notified is not None
    reported = feed.pod(
        notified, {"error": "nothing"}, unplaced.events_of_others([scheduler_event()])
    )
    agent = Agent()
    assert reported.keys() == feed.pod(agent.pod, agent.timeline, agent.events).keys()
    assert (reported["verdict"], reported["gone"]) == (line["verdict"], "")
    (event,) = reported["events"]
    assert (event["reason"], event["source"]) == ("FailedScheduling", "default-scheduler")
    assert event["message"] == "0/1 nodes are free"


def crashing() -> PodFacts:
    last = exited(3)["state"]
    return facts(
        status=not_ready(waiting("CrashLoopBackOff", restartCount=3, lastState=last)),
        start_errors={"main": StartError("CrashLoopBackOff", "back-off 20s", NOW + 14)},
    )


def test_an_unhealthy_pod_has_waits_and_ended_runs() -> None:
    reported = feed.pod(to_builtins(explain(crashing())), None, ())
    assert (reported["tone"], reported["waterfalls"], reported["events"]) == ("sick", [], [])
    assert [wait["kind"] for wait in reported["waits"]] == ["crash backoff"]
    assert reported["exits"][0]["exit_code"] == 3


def test_a_pull_has_a_bar_and_an_ended_run_its_cause() -> None:
    pulls = {"shop:1": PullPosition(0.0, None, 1, None, PullProgress(30, 120, 2, 0))}
    cause = DeathCause(DeathKind.SIGNAL, Actor.OUTSIDE, ("signal 9",))
    ended = exited(137)
    ended["state"]["terminated"]["containerID"] = "c://1"
    found = facts(
        status=not_ready(ended),
        trace=doing(TraceCall.PULL_IMAGE, "shop:1"),
        pulls=pulls,
        deaths={"1": cause},
    )
    reported = feed.pod(to_builtins(explain(found)), None, ())
    assert [wait["share"] for wait in reported["waits"]] == [0.25]
    assert reported["exits"][0]["cause"] == (
        "killed by a signal from outside the container (signal 9)"
    )


def test_the_newest_decision_comes_first_whenever_it_was_first_made() -> None:
    made = [
        {"at": 1.0, "last_at": 9.0, "what": "start", "why": "it exited", "count": 4},
        {"at": 5.0, "last_at": None, "what": "hold back", "why": "back-off", "count": 1},
    ]
    reported = feed.pod({**Agent().pod, "decisions": made}, None, ())
    assert [(one["what"], one["at"], one["count"]) for one in reported["decisions"]] == [
        *(("start", 9.0, 4), ("hold back", 5.0, 1))
    ]


def test_a_removed_pod() -> None:
    agent = Agent()
    removed = {"error": "no pod default/web on this node any more", "last": agent.pod}
    reported = feed.pod(removed, {"error": "nothing was done"}, ())
    assert reported["gone"] == "no pod default/web on this node any more"
    assert (reported["uid"], reported["verdict"]) == ("uid-web", "running and ready, for 20s")
    assert feed.pod({"error": "no pod", "last": None}, None, ()) == {
        "gone": "no pod",
        "uid": "",
        "waterfalls": [],
        "events": [],
        "logs": [],
    }


def strings(value: Any) -> list[str]:
    """All texts inside a document."""
    if isinstance(value, dict):
        return [*value, *(each for inner in value.values() for each in strings(inner))]
    if isinstance(value, (list, tuple)):
        return [each for inner in value for each in strings(inner)]
    return [value] if isinstance(value, str) else []


def poisoned(value: Any, text: str, keep: frozenset[str]) -> Any:
    """The same document with every text replaced."""
    if isinstance(value, dict):
        return {k: v if k in keep else poisoned(v, text, keep) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [poisoned(each, text, keep) for each in value]
    return text if isinstance(value, str) else value


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_every_text_is_cut_and_on_one_line(text: str) -> None:
    agent = Agent()
    sick = to_builtins(explain(crashing()))
    ours = frozenset({"title"})  # a fixed word
    spans = poisoned(agent.timeline, text, ours | {"name"})
    usage = poisoned(used(1.0, 1.0), text, ours)
    history = History()
    history.add(usage)
    reported = {
        "node": feed.node({"name": text, "troubles": [text]}),
        "silent": feed.unanswered(text, None),
        "pods": feed.pods(poisoned(agent.pods, text, ours)),
        "pod": feed.pod(
            poisoned(sick, text, ours),
            spans,
            poisoned(agent.events, text, ours),
            {"containers": {text: [text]}},
        ),
        "gone": feed.pod({"error": text, "last": None}, None, ()),
        "usage": feed.usage(history, text),
    }
    assert all(each.isprintable() for each in strings(reported))
    assert max(map(len, strings(reported))) <= feed.MAX_TEXT
    assert len(json.dumps(reported)) < 60_000


@pytest.mark.parametrize(
    ("path", "names"),
    [
        ("default/web-0.a", ("default", "web-0.a")),
        ("default/" + "a" * 253, ("default", "a" * 253)),
        ("default/" + "a" * 254, None),
        ("default", None),
        ("default/", None),
        ("/web", None),
        ("default/web/timeline", None),
        ("../node", None),
        ("default/..", None),
        ("default/web\n", None),
        ("default/<b>", None),
        ("default/a\u202e", None),
        ("", None),
    ],
)
def test_names_of_pods(path: str, names: tuple[str, str] | None) -> None:
    if names is not None:
        assert feed.names(path) == names
        return
    with pytest.raises(ValueError, match="no pod is called that"):
        feed.names(path)


def test_only_what_differs_is_sent() -> None:
    first = {"node": {"name": "n"}, "pods": [1], "pod": None}
    assert feed.changes({}, first) == {"node": {"name": "n"}, "pods": [1]}
    assert feed.changes(first, first) == {}
    assert feed.changes(first, {**first, "pods": [1, 2]}) == {"pods": [1, 2]}
    assert feed.changes({**first, "pod": {}}, first) == {"pod": None}
