"""Each rule of a soak finds its violation; permitted histories pass."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bench.soak.history import History, exits_shown
from bench.soak.pods import CODES, STEADY

LOST = {"exitCode": 137, "reason": "ContainerStatusUnknown"}


def entry(state: Any = None, count: int = 0, last: Any = None) -> Any:
    return {
        "name": "main",
        "restartCount": count,
        "state": state or {"running": {}},
        "lastState": {"terminated": last} if last else {},
    }


def ended(code: int, container: str = "containerd://c1", **more: Any) -> Any:
    return {"terminated": {"exitCode": code, "containerID": container, **more}}


def seen(*statuses: Any, deleting: float | None = None, steady: bool = False) -> History:
    """A history that received the statuses, ten healthy seconds apart."""
    history = History()
    notes = {CODES: json.dumps({"main": [3]}), STEADY: str(steady).lower()}
    meta: Any = {"name": "web", "uid": "u", "annotations": notes}
    if deleting is not None:
        meta |= {"deletionTimestamp": "2030-01-01T00:00:00Z"}
        meta |= {"deletionGracePeriodSeconds": deleting}
    for number, (phase, reported) in enumerate(statuses):
        status = {"phase": phase, "containerStatuses": [reported]}
        history.take("MODIFIED", {"metadata": meta, "status": status}, number * 10.0)
    return history


@pytest.mark.parametrize(
    ("history", "parts"),
    [
        (seen(("Running", entry(count=2)), ("Running", entry(count=1))), "restartCount"),
        (seen(("Running", entry()), ("Running", entry(count=1)), steady=True), "restarted"),
        (seen(("Succeeded", entry(ended(3))), ("Running", entry(ended(3)))), "was Succeeded"),
        (seen(("Failed", entry())), "but ['main'] run"),
        (seen(("Running", entry(ended(4)))), "cannot end so"),
        (seen(("Running", entry(ended(137)))), "cannot end so"),
        (seen(("Running", entry(ended(255, reason="Error")))), "cannot end so"),
        (seen(("Running", entry()), ("Running", entry({"terminated": LOST}))), "was lost"),
        (seen(("Running", entry(count=1, last=LOST))), "was lost"),
        (seen(*[("Running", entry())] * 4, deleting=4), "Terminating for"),
    ],
)
def test_impossible_histories_are_reported(history: History, parts: str) -> None:
    assert [text for text in history.violations if parts in text] == history.violations != []


@pytest.mark.parametrize(
    "history",
    [
        seen(("Running", entry()), ("Running", entry(count=1, last=ended(3)["terminated"]))),
        seen(("Running", entry(count=1)), ("Running", entry(count=1)), steady=True),
        seen(("Failed", entry(ended(3))), ("Failed", entry(ended(3)))),
        seen(("Pending", entry({"terminated": LOST})), deleting=1),
        seen(
            ("Running", entry({"waiting": {}}, 1, ended(3)["terminated"])),
            ("Failed", entry({"terminated": LOST}, 1, ended(3)["terminated"])),
            deleting=1,
        ),
        seen(("Failed", entry(ended(137))), deleting=1),
        seen(*[("Running", entry())] * 2, deleting=4),
        seen(("Running", entry(ended(255, reason="Unknown")))),
        seen(("Running", entry(ended(128, reason="StartError")))),
    ],
)
def test_permitted_histories_pass(history: History) -> None:
    assert history.violations == []


def test_a_pod_that_stays_terminating_is_found_without_an_event() -> None:
    history = seen(("Running", entry()), deleting=4)
    history.overdue(18.0)
    assert history.violations == []
    history.overdue(20.0)
    assert len(history.violations) == 1


@pytest.mark.parametrize(("gone_at", "violations"), [(18.0, 0), (20.0, 1)])
def test_the_final_deletion_does_not_shorten_the_grace_period(
    gone_at: float, violations: int
) -> None:
    """The agent deletes ended pods with a grace period of 0."""
    history = seen(("Running", entry()), deleting=4)
    meta: Any = {"name": "web", "uid": "u", "deletionTimestamp": "2029-12-31T23:59:56Z"}
    meta["deletionGracePeriodSeconds"] = 0
    history.take("DELETED", {"metadata": meta}, gone_at)
    assert len(history.violations) == violations


def test_exits_shown() -> None:
    reported = entry(ended(3), last=ended(4, "containerd://c0")["terminated"])
    obj = {"status": {"containerStatuses": [reported]}}
    assert list(exits_shown(obj)) == [("c1", 3), ("c0", 4)]
