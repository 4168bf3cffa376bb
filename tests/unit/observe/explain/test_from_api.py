"""Explanations of a pod from its status and events alone."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from kubeletpy.observe.explain.unplaced import MAX_EVENTS, explain, unscheduled, verdict

AT = 1_767_225_600.0


@pytest.fixture(autouse=True)
def utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def pod(status: Any = None, node: str = "n1", **metadata: Any) -> dict[str, Any]:
    return {
        "metadata": {"namespace": "ns", "name": "web", **metadata},
        "spec": {"nodeName": node} if node else {},
        "status": status or {},
    }


def waits(reason: str = "", message: str = "", **more: Any) -> dict[str, Any]:
    waiting = {key: text for key, text in (("reason", reason), ("message", message)) if text}
    return {"name": "a", "state": {"waiting": waiting or {"x": 1}}, **more}


def condition(kind: str, is_so: str, reason: str = "", message: str = "") -> dict[str, Any]:
    return {"type": kind, "status": is_so, "reason": reason, "message": message}


READY = condition("Ready", "True")
UNSCHEDULED = condition("PodScheduled", "False", "Unschedulable", "0/1 nodes")


@pytest.mark.parametrize(
    ("made", "stated"),
    [
        (pod(), "Pending, not Ready"),
        (pod(deletionTimestamp="t"), "being deleted"),
        (
            pod(deletionTimestamp="t", finalizers=["a/b", "c"]),
            "being deleted; it waits for its finalizers: a/b, c",
        ),
        (pod({"phase": "Failed", "reason": "Evicted", "message": "low"}), "Failed: Evicted: low"),
        (pod({"phase": "Succeeded"}), "Succeeded"),
        (pod(node=""), "not scheduled: no scheduler has processed it yet"),
        (pod({"conditions": [UNSCHEDULED]}, node=""), "not scheduled: Unschedulable: 0/1 nodes"),
        (
            pod({"containerStatuses": [waits("ErrImagePull", "no\nway")]}),
            "container a waits: ErrImagePull: no way",
        ),
        (
            pod({"initContainerStatuses": [waits()], "containerStatuses": [waits("later")]}),
            "container a waits: no reason is given",
        ),
        (
            pod({"ephemeralContainerStatuses": [waits("x")], "conditions": [READY]}),
            "container a waits: x",
        ),
        (pod({"phase": "Running", "conditions": [READY]}), "running and ready"),
        (pod({"phase": "Running", "conditions": [UNSCHEDULED, READY]}), "running and ready"),
        (
            pod({"phase": "Running", "conditions": [condition("Ready", "False", "R", "m")]}),
            "Running, not Ready: R: m",
        ),
    ],
)
def test_the_answer(made: dict[str, Any], stated: str) -> None:
    assert verdict(made) == stated


def event(reason: str, kind: str = "Warning", **more: Any) -> dict[str, Any]:
    return {"type": kind, "reason": reason, "message": f"{reason} it\x1b[2J", **more}


def test_every_field_of_the_api() -> None:
    ended = {"terminated": {"exitCode": 3, "reason": "Error", "message": "oh\x1b"}}
    status = {
        "phase": "Running",
        "containerStatuses": [
            {"name": "a", "restartCount": 2, "lastState": ended, "state": {"running": {}}},
            {"name": "b", "restartCount": 0, "state": {"terminated": {"exitCode": 0}}},
            {"name": "c", "restartCount": 1, "state": {"terminated": {"exitCode": 0}}},
            {"name": "d", "restartCount": 1, "state": {"running": {}}},
            {"name": "e", "restartCount": 0, "state": ended},
        ],
        "conditions": [
            condition("Ready", "False", "ContainersNotReady", "not ready: [a]"),
            condition("Other", "False", "NoMessage"),
            condition("Fine", "True", "", "x"),
        ],
    }
    events = [
        event("Old", lastTimestamp="2025-12-31T00:00:01Z"),
        event("Series", series={"lastObservedTime": "2026-01-01T00:00:04Z"}),
        event("New", eventTime="2026-01-01T00:00:03Z", lastTimestamp=None),
        event("Made", metadata={"creationTimestamp": "2026-01-01T00:00:02Z"}),
        event("Fine", "Normal", lastTimestamp="2026-01-01T00:00:09Z"),
    ]
    assert explain(pod(status), events, "node n1 runs the kubelet", now=AT + 60) == (
        "ns/web: Running, not Ready: ContainersNotReady: not ready: [a]\n"
        "\n"
        "  node n1 runs the kubelet; this is what the API has:\n"
        "\n"
        "  on node n1\n"
        "  container a ended with exit code 3, 2 restarts so far: Error: oh\n"
        "  container c ended with exit code 0, 1 restart so far:\n"
        "  container e ended with exit code 3, 0 restarts so far: Error: oh\n"
        "  Ready is False: not ready: [a]\n"
        "\n"
        "Warnings\n"
        "  00:00:04  Series  Series it [2J\n"
        "  00:00:03  New  New it [2J\n"
        "  00:00:02  Made  Made it [2J\n"
        "  2025-12-31 00:00:01  Old  Old it [2J\n"
    )


def test_the_newest_reason_of_ours_has_its_anchor() -> None:
    events = [event("FailedMount"), event("FailedScheduling"), event("BackOff", "Normal")]
    last = explain(pod({}), events, "", now=AT).splitlines()[-1]
    assert last == "  FailedMount in the documentation: reference/errors.md#failedmount"


def test_a_pod_without_status_and_events() -> None:
    assert explain(pod(node=""), [], now=AT) == (
        "ns/web: not scheduled: no scheduler has processed it yet\n"
        "\n"
        "  To do      see whether that scheduler runs, and its log\n"
        "  Waits for  scheduler default-scheduler\n"
    )
    many = [
        event(f"E{n}", lastTimestamp=f"2026-01-01T00:00:{n:02}Z") for n in range(MAX_EVENTS + 2)
    ]
    lines = explain(pod(node=""), many, now=AT).splitlines()
    assert [line.split()[1] for line in lines[6:]] == ["E7", "E6", "E5", "E4", "E3", "E2"]


CHANGE = (
    "change what the message names: the pod's requests, nodeSelector, affinity or tolerations, or "
    "a node"
)
AGAIN = ": it tries again when nodes or pods change"


def gated(*gates: str) -> dict[str, Any]:
    made = pod({"conditions": [condition("PodScheduled", "False", "SchedulingGated")]}, node="")
    return {**made, "spec": {"schedulingGates": [{"name": gate} for gate in gates]}}


@pytest.mark.parametrize(
    ("made", "first_seen", "waits_for", "hint"),
    [
        (
            pod(
                {"conditions": [{**UNSCHEDULED, "lastTransitionTime": "2026-01-01T00:00:00Z"}]},
                node="",
                creationTimestamp="2025-01-01T00:00:00Z",
            ),
            AT,
            f"scheduler default-scheduler{AGAIN}",
            CHANGE,
        ),
        (
            pod(node="", creationTimestamp="2026-01-01T00:00:00Z"),
            AT,
            "scheduler default-scheduler",
            "see whether that scheduler runs, and its log",
        ),
        (
            {**pod({"conditions": [UNSCHEDULED]}), "spec": {"schedulerName": "mine\x1b"}},
            None,
            f"scheduler mine{AGAIN}",
            CHANGE,
        ),
        (
            gated("a/b", "c"),
            None,
            "its scheduling gates: a/b, c",
            "check the controller that has to remove them",
        ),
        (pod(node="", creationTimestamp="soon"), None, "scheduler default-scheduler", ...),
    ],
)
def test_a_pod_on_no_node(
    made: dict[str, Any], first_seen: float | None, waits_for: str, hint: Any
) -> None:
    found = unscheduled(made)
    assert found is not None
    assert (found.cause, found.first_seen, found.waits) == ("unschedulable", first_seen, waits_for)
    assert found.verdict == verdict(made)
    assert hint in (..., found.hint)
    text = explain(made, [], now=AT + 192)
    assert f"\n  To do      {found.hint}\n  Waits for  {found.waits}\n" in text
    assert ("  Since      00:00:00 (3m12s ago)\n" in text) is (first_seen is not None)


@pytest.mark.parametrize(
    "made", [pod(), pod(node="", deletionTimestamp="t"), pod({"phase": "Failed"}, node="")]
)
def test_a_pod_that_waits_for_no_scheduler(made: dict[str, Any]) -> None:
    assert unscheduled(made) is None
