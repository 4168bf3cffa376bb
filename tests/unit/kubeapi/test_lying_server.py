"""An API server that answers with objects other than the requested ones."""

from __future__ import annotations

from typing import Any, cast

import pytest

from kubeletpy.kubeapi.errors import ApiError
from kubeletpy.kubeapi.protocol import SECRETS, WatchEvent
from kubeletpy.kubeapi.tracked_object import ObjectKey, ObjectReader, is_that_object
from kubeletpy.syncloop.sources.file import ApiSource

KEY = ObjectKey(SECRETS, "mine", "login")


def _secret(**metadata: Any) -> dict[str, Any]:
    return {"metadata": {"name": "login", "namespace": "mine", **metadata}, "data": {"a": "c2Vj"}}


@pytest.mark.parametrize(
    ("found", "right"),
    [
        (_secret(), True),
        ({"metadata": {"name": "login"}}, True),
        (_secret(namespace="theirs"), False),
        (_secret(namespace=["mine"]), False),
        (_secret(name="other"), False),
        (_secret(name=None), False),
        ({"metadata": None}, False),
        ({"metadata": []}, False),
        ({}, False),
        ([], False),
        (None, False),
    ],
)
async def test_only_the_object_that_was_asked_for_is_taken(found: Any, right: bool) -> None:
    class Api:
        async def get(self, *_: Any) -> Any:
            return found

    assert is_that_object(KEY, found) is right
    reading = ObjectReader(cast(Any, Api())).read_object(KEY, first=True)
    if right:
        assert await reading == found
        return
    with pytest.raises(ApiError, match='another object than secret "mine/login"') as caught:
        await reading
    assert "c2Vj" not in str(caught.value)


class Deliveries:
    def __init__(self) -> None:
        self.seen: list[Any] = []

    def deliver(self, source: str, objects: list[Any]) -> None:
        self.seen.append([each["metadata"]["name"] for each in objects])

    def deliver_event(self, source: str, event_type: str, obj: Any) -> None:
        self.seen.append((event_type, obj["metadata"]["name"]))

    def unreadable(self, source: str, uid: str, problem: str) -> None:
        raise AssertionError(uid)


def _pod(name: str, spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": "n", "uid": name}, "spec": spec}


def test_pods_of_other_nodes_are_not_run(caplog: pytest.LogCaptureFixture) -> None:
    deliveries = Deliveries()
    source = ApiSource(cast(Any, None), "here", deliveries)
    ours, theirs = _pod("ours", {"nodeName": "here"}), _pod("theirs", {"nodeName": "there"})
    unbound, odd = _pod("unbound", {}), _pod("odd", {"nodeName": ["here"]})
    malformed = _pod("malformed", "text")  # the receiver keeps its last good version
    source._replace([ours, theirs, unbound, odd, malformed])
    for pod in (ours, theirs, unbound):
        source._event(WatchEvent("ADDED", pod))
    source._event(WatchEvent("DELETED", theirs))
    assert deliveries.seen == [["ours", "malformed"], ("ADDED", "ours"), ("DELETED", "theirs")]
    assert "not bound to this node" in caplog.text
