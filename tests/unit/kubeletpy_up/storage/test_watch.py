"""Watches: the events sent to a watcher, the starting point, and the end."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kubeletpy_up.registry.reading import ListOptions
from kubeletpy_up.requests import ADMIN, DeleteOptions
from kubeletpy_up.storage import watch
from kubeletpy_up.storage.watch import Subscription
from tests.kit.embedded import bound_pod, make_registry, pod, refusal

pytestmark = pytest.mark.virtual_time


def _seen(subscription: Subscription) -> list[tuple[str, str]]:
    return [(e.type, e.object["metadata"].get("name", "")) for e in subscription.take()]


def test_the_end_of_an_unselected_object_is_no_event() -> None:
    registry = make_registry()
    registry.create(ADMIN, "pods", pod("a"), "default")
    subscription = registry.watch(
        ADMIN, "pods", "default", options=ListOptions(label_selector="x=1")
    )
    elsewhere = registry.watch(ADMIN, "pods", "kube-system")
    registry.delete(ADMIN, "pods", "a", "default")
    assert _seen(subscription) == _seen(elsewhere) == []


def test_an_expired_version_is_an_error_event_with_410() -> None:
    registry = make_registry()
    to_come = ListOptions(resource_version="999999")
    assert refusal(registry.list, ADMIN, "pods", options=to_come).code == 410
    subscription = registry.watch(ADMIN, "pods", options=to_come)
    (event,) = subscription.take()
    assert (event.type, event.object["code"], event.object["reason"]) == ("ERROR", 410, "Expired")
    assert len(registry.watchers) == 0


async def test_bookmarks_while_idle_and_the_timeout() -> None:
    registry = make_registry()
    start = str(registry.store.revision)
    subscription = registry.watch(
        ADMIN,
        "pods",
        options=ListOptions(resource_version=start, bookmarks=True, timeout_seconds=150),
    )
    registry.create(ADMIN, "configmaps", {"metadata": {"name": "c"}}, "default")
    events = []
    while (event := await subscription.next()) is not None:
        events.append((event.type, event.object["metadata"]["resourceVersion"]))
    assert set(events) == {("BOOKMARK", str(registry.store.revision))}
    assert len(events) >= 2
    assert asyncio.get_running_loop().time() == pytest.approx(150)


async def test_a_change_wakes_the_watcher_at_once_and_close_ends_it() -> None:
    registry = make_registry()
    subscription = registry.watch(
        ADMIN, "pods", options=ListOptions(resource_version=str(registry.store.revision))
    )
    waiting = asyncio.create_task(subscription.next())
    await asyncio.sleep(5)
    registry.create(ADMIN, "pods", pod("a"), "default")
    event = await waiting
    assert event is not None and event.type == "ADDED"
    waiting = asyncio.create_task(subscription.next())
    await asyncio.sleep(0)
    registry.close()
    assert await waiting is None
    assert len(registry.watchers) == 0


async def test_a_slow_watcher_is_ended_and_can_resume(monkeypatch: Any) -> None:
    monkeypatch.setattr(watch, "QUEUE_LIMIT", 3)
    registry = make_registry()
    subscription = registry.watch(
        ADMIN, "pods", options=ListOptions(resource_version=str(registry.store.revision))
    )
    for index in range(6):
        registry.create(ADMIN, "pods", pod(f"p{index}"), "default")
    got = []
    while (event := await subscription.next()) is not None:
        got.append(event.object["metadata"])
    subscription.close()
    assert [meta["name"] for meta in got] == ["p0", "p1", "p2"]
    again = registry.watch(
        ADMIN, "pods", options=ListOptions(resource_version=got[-1]["resourceVersion"])
    )
    assert [name for _, name in _seen(again)] == ["p3", "p4", "p5"]


def test_events_of_both_apis_are_the_same_objects() -> None:
    registry = make_registry()
    new = registry.watch(ADMIN, "events.events.k8s.io", "default")
    old = registry.watch(ADMIN, "events", "default")
    web = bound_pod(registry)
    about = {"kind": "Pod", "name": "web", "namespace": "default", "uid": web["metadata"]["uid"]}
    event = {"metadata": {"name": "e"}, "involvedObject": about, "message": "hi", "reason": "R"}
    registry.create(ADMIN, "events", event, "default")
    (seen,) = new.take()
    assert (seen.object["note"], seen.object["regarding"]["name"]) == ("hi", "web")
    assert seen.object["apiVersion"] == "events.k8s.io/v1"
    (seen,) = old.take()
    assert (seen.object["message"], seen.object["apiVersion"]) == ("hi", "v1")
    registry.delete(ADMIN, "events", "e", "default", DeleteOptions())
    assert [e.type for e in new.take()] == ["DELETED"]
