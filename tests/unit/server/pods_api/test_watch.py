"""The next event for a watching client."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from kubeletpy.pods.pod import Pod
from kubeletpy.server.pods_api.watch import Event, View, last_message, next_event, unconfirmed


def view(phase: str = "Running", spec: Any = (), **metadata: Any) -> View:
    """A pod in that phase."""
    obj: Any = {
        "metadata": {"name": "p", "namespace": "n", "uid": "u", **metadata},
        "spec": {"containers": [{"name": "c", "image": "i"}], **dict(spec)},
    }
    return View(Pod(obj), {"phase": phase})


ONE = view()


@pytest.mark.parametrize(
    ("before", "now", "event"),
    [
        (None, None, None),
        (None, view(), Event.ADDED),
        (view(), None, Event.DELETED),
        (ONE, ONE, None),
        (view(), view(), None),
        (view(), view(resourceVersion="2", managedFields=[{}]), None),
        (view(), view("Failed"), Event.MODIFIED),
        (view(), view(labels={"a": "b"}), Event.MODIFIED),
        (view(), view(spec={"hostname": "h"}), Event.MODIFIED),
    ],
)
def test_news(before: View | None, now: View | None, event: Event | None) -> None:
    assert next_event(before, now) is event


def test_a_deleted_event_has_only_names_and_uid() -> None:
    assert last_message(ONE.pod) == {"metadata": {"name": "p", "namespace": "n", "uid": "u"}}


def test_the_object_has_the_newest_status() -> None:
    assert view("Failed").object["status"] == {"phase": "Failed"}


READY: Any = {"type": "Ready", "status": "True", "lastTransitionTime": "t"}
OTHER: Any = {"type": "Initialized", "status": "True"}
ENDED: Any = {"type": "Ready", "status": "False", "reason": "PodFailed"}
NOT_READY = {
    "type": "Ready",
    "status": "False",
    "reason": "ContainersNotReady",
    "message": "Kubelet is initializing pod containers",
    "lastTransitionTime": "t",
}


@pytest.mark.parametrize(
    ("status", "reported"),
    [
        ({}, {"phase": "Pending"}),
        ({"phase": ""}, {"phase": "Pending"}),
        ({"phase": "Running", "podIP": "1.2.3.4"}, {"phase": "Running", "podIP": "1.2.3.4"}),
        (
            {"phase": "Running", "conditions": [OTHER, READY]},
            {"phase": "Running", "conditions": [OTHER, NOT_READY]},
        ),
        (
            {
                "phase": "Running",
                "conditions": [{"type": "Ready", "status": "False", "reason": "R"}],
            },
            {
                "phase": "Running",
                "conditions": [{"type": "Ready", "status": "False", "reason": "R"}],
            },
        ),
    ],
)
def test_a_status_that_this_agent_has_not_composed(status: Any, reported: Any) -> None:
    before = copy.deepcopy(status)
    assert unconfirmed(status) == reported
    assert status == before, "it is the API's object"
