"""Objects that pods share: one watch each, which ends in time; pods are notified of changes."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest

from kubeletpy.base.api.types import JSON
from kubeletpy.kubeapi.errors import ApiError, Forbidden, Unavailable
from kubeletpy.kubeapi.objects import IDLE_S, POLL_S, PRESSED_WAITS, WATCH_AGAIN_S, WatchedObjects
from kubeletpy.kubeapi.protocol import CONFIGMAPS, Resource, WatchEvent
from kubeletpy.kubeapi.tracked_object import READS_AT_ONCE, ObjectKey
from kubeletpy.kubeapi.watch_state import MAX_POD_WATCHES, WatchSlots
from tests.kit.virtual_time import settle, timed
from tests.kit.volumes import FakeApi

pytestmark = pytest.mark.virtual_time


def key(name: str) -> ObjectKey:
    return ObjectKey(CONFIGMAPS, "default", name)


def watched(api: Any, slots: WatchSlots | None = None) -> tuple[WatchedObjects, list[str]]:
    objects = WatchedObjects(api, rng=random.Random(1), slots=slots or WatchSlots())
    woken: list[str] = []
    objects.on_change(woken.append)
    return objects, woken


async def test_a_hundred_pods_cost_one_watch_and_hear_of_a_change() -> None:
    api = FakeApi()
    api.put("cfg", data={"a": "1"})
    objects, woken = watched(api)
    uids = [f"pod-{n}" for n in range(100)]
    for uid in uids:
        objects.register(uid, [key("cfg")])
        found = await objects.get(key("cfg"))
        assert found is not None
        assert found["data"] == {"a": "1"}
    assert api.calls == {"watch": 1}
    assert woken == []
    api.put("cfg", data={"a": "2"})
    await settle()
    assert woken == uids
    assert ((await objects.get(key("cfg"))) or {})["data"] == {"a": "2"}
    for uid in uids:
        assert api.open_watches == 1
        objects.release(uid)
    await settle()
    assert (api.open_watches, objects.watches) == (0, 0)
    with pytest.raises(Unavailable, match="not registered"):
        await objects.get(key("cfg"))


async def test_a_new_object_wakes_the_pods_that_wait_for_it() -> None:
    api = FakeApi()
    objects, woken = watched(api)
    objects.register("p", [key("late")])
    assert await objects.get(key("late")) is None
    api.put("late")
    await settle()
    assert woken == ["p"]
    api.remove("late")
    await settle()
    assert woken == ["p", "p"]
    assert await objects.get(key("late")) is None
    await objects.close()


async def test_a_first_refusal_is_retried_quickly() -> None:
    api = FakeApi()
    api.put("cfg")
    api.refusals = [Forbidden("no relation yet", code=403)] * 2
    objects, _ = watched(api)
    objects.register("p", [key("cfg")])
    found, seconds = await timed(objects.get(key("cfg")))
    assert found is not None
    assert seconds < 0.2
    await objects.close()


async def test_a_lasting_refusal_is_reported_and_its_end_wakes_the_pod() -> None:
    api = FakeApi()
    api.put("cfg")
    api.down = Forbidden("you may not", code=403)
    objects, woken = watched(api)
    objects.register("p", [key("cfg")])
    with pytest.raises(Forbidden, match="you may not"):
        await objects.get(key("cfg"))
    api.down = None
    await asyncio.sleep(60)
    assert woken == ["p"]
    assert await objects.get(key("cfg")) is not None
    await objects.close()


async def test_a_silent_api_does_not_block_for_long() -> None:
    class Silent(FakeApi):
        async def watch(self, *_: Any, **__: Any) -> AsyncIterator[WatchEvent]:
            await asyncio.sleep(3600)
            yield WatchEvent("BOOKMARK", {})

    objects, _ = watched(Silent())
    objects.register("p", [key("cfg")])
    begun = asyncio.get_running_loop().time()
    with pytest.raises(ApiError, match="no answer"):
        await objects.get(key("cfg"))
    assert asyncio.get_running_loop().time() - begun == pytest.approx(1)
    await objects.close()


async def test_an_immutable_object_is_not_watched() -> None:
    api = FakeApi()
    api.put("cfg", immutable=True)
    objects, woken = watched(api)
    objects.register("p", [key("cfg")])
    assert await objects.get(key("cfg")) is not None
    await settle()
    assert (api.open_watches, objects.watches) == (0, 0)
    objects.register("q", [key("cfg")])
    assert await objects.get(key("cfg")) is not None
    assert api.calls == {"watch": 1, "get": 1}
    objects.register("q", [key("cfg")], [key("other")])
    await settle()
    assert api.calls["get"] == 1, "the pod has read it"
    assert woken == []


@pytest.mark.parametrize("live", [True, False])
async def test_a_new_pod_gets_the_object_that_has_the_name_of_an_immutable_one(live: bool) -> None:
    api = FakeApi()
    api.put("cfg", data={"a": "1"}, immutable=True)
    objects, woken = watched(api)
    used = ([key("cfg")], []) if live else ([], [key("cfg")])
    objects.register("old", *used)
    assert ((await objects.get(key("cfg"))) or {})["data"] == {"a": "1"}
    api.remove("cfg")
    api.put("cfg", data={"a": "2"}, immutable=True)
    api.answers_after = 0.2
    objects.register("new", *used)
    for _ in range(2):
        assert ((await objects.get(key("cfg"))) or {})["data"] == {"a": "2"}
    assert api.calls == {"watch": 1, "get": 1}
    assert set(woken) == {"old", "new"}
    await settle()
    assert (api.open_watches, objects.watches) == (0, 0)


async def test_a_new_pod_waits_for_an_immutable_object_that_was_deleted() -> None:
    api = FakeApi()
    api.put("cfg", data={"a": "1"}, immutable=True)
    objects, woken = watched(api)
    objects.register("old", [key("cfg")])
    await objects.get(key("cfg"))
    api.remove("cfg")
    objects.register("new", [key("cfg")])
    assert await objects.get(key("cfg")) is None
    woken.clear()
    api.put("cfg", data={"a": "2"})
    await settle()
    assert "new" in woken
    assert ((await objects.get(key("cfg"))) or {})["data"] == {"a": "2"}
    assert objects.watches == 1, "this one may change"
    await objects.close()


async def test_a_new_pod_gets_no_old_object_while_the_api_is_down() -> None:
    api = FakeApi()
    api.put("cfg", data={"a": "1"}, immutable=True)
    objects, woken = watched(api)
    objects.register("old", [key("cfg")])
    await objects.get(key("cfg"))
    api.down = Unavailable("no route to host")
    objects.register("new", [key("cfg")])
    with pytest.raises(Unavailable, match="no route to host"):
        await objects.get(key("cfg"))
    api.down = None
    await asyncio.sleep(60)
    assert "new" in woken
    assert await objects.get(key("cfg")) is not None
    await objects.close()


async def test_a_read_that_began_before_a_pod_registered_is_not_for_it() -> None:
    api = FakeApi()
    api.put("cfg", data={"a": "1"}, immutable=True)
    objects, _ = watched(api)
    objects.register("old", [key("cfg")])
    await objects.get(key("cfg"))
    api.answers_after = 0.2
    objects.register("second", [key("cfg")])
    await asyncio.sleep(0.1)
    api.remove("cfg")
    api.put("cfg", data={"a": "2"}, immutable=True)
    objects.register("third", [key("cfg")])
    assert ((await objects.get(key("cfg"))) or {})["data"] == {"a": "2"}
    await objects.close()


async def test_a_new_pod_does_not_get_what_was_polled_before() -> None:
    """There is no watch for it, so that its changes are seen after a minute or more."""
    api = FakeApi()
    api.watch_capacity = 0
    api.put("cfg", data={"a": "1"})
    objects, woken = watched(api)
    objects.register("old", [key("cfg")])
    await objects.get(key("cfg"))
    await asyncio.sleep(1)
    api.put("cfg", data={"a": "2"})
    objects.register("new", [key("cfg")])
    found, seconds = await timed(objects.get(key("cfg")))
    assert (found or {})["data"] == {"a": "2"}
    assert seconds < 0.1
    assert set(woken) == {"old", "new"}
    assert api.calls == {"get": 2}
    await asyncio.sleep(POLL_S * 1.5)
    assert api.calls == {"get": 3}
    await objects.close()


async def test_watches_for_environments_end_when_idle() -> None:
    api = FakeApi()
    api.put("cfg", data={"a": "1"})
    objects, _ = watched(api)
    objects.register("p", (), [key("cfg")])
    assert await objects.get(key("cfg")) is not None
    assert objects.watches == 1
    await asyncio.sleep(IDLE_S + 1)
    assert (api.open_watches, objects.watches) == (0, 0)
    api.put("cfg", data={"a": "2"})
    assert ((await objects.get(key("cfg"))) or {})["data"] == {"a": "2"}
    objects.register("p", [key("cfg")])
    await asyncio.sleep(IDLE_S + 1)
    assert objects.watches == 1
    await objects.close()


async def test_without_an_api_there_is_nothing() -> None:
    objects, _ = watched(None)
    objects.register("p", [key("cfg")])
    with pytest.raises(Unavailable, match="no API"):
        await objects.get(key("cfg"))


async def test_a_pod_of_thousands_of_objects_has_few_watches_and_reads_a_few_at_a_time() -> None:
    api = FakeApi()
    api.answers_after = 0.01
    names = [f"cfg-{n}" for n in range(2000)]
    api.put(names[-1], data={"a": "1"})
    objects, woken = watched(api)
    objects.register("greedy", [key(name) for name in names])
    await asyncio.sleep(20)
    assert api.open_watches == MAX_POD_WATCHES
    assert (api.calls["get"], api.most_under_way) == (2000 - MAX_POD_WATCHES, READS_AT_ONCE)
    assert ((await objects.get(key(names[-1]))) or {})["data"] == {"a": "1"}
    assert await objects.get(key(names[-2])) is None
    # a change of an object without a watch is noticed later
    api.put(names[-1], data={"a": "2"})
    await asyncio.sleep(POLL_S * 1.5 + 20)
    assert woken == ["greedy"]
    assert ((await objects.get(key(names[-1]))) or {})["data"] == {"a": "2"}
    # others have watches of their own
    objects.register("other", [key("mine")])
    await settle()
    assert api.open_watches == MAX_POD_WATCHES + 1
    objects.release("greedy")
    await settle()
    assert (api.open_watches, objects.watches) == (1, 1)
    await objects.close()


async def test_an_object_has_a_watch_when_there_is_capacity() -> None:
    api = FakeApi()
    api.put("b", data={"a": "1"}, immutable=True)
    api.watch_capacity = 1
    objects, woken = watched(api)
    objects.register("first", [key("a")])
    await settle()
    api.refusals = [Forbidden("no relation yet", code=403)] * 2
    objects.register("second", [key("b"), key("c")])
    found, seconds = await timed(objects.get(key("b")))
    assert found is not None
    assert seconds < 0.2
    assert await objects.get(key("c")) is None
    assert (api.open_watches, objects.watches) == (1, 2)
    objects.release("first")
    await asyncio.sleep(POLL_S * 1.5)
    assert (api.open_watches, objects.watches) == (1, 1)
    api.put("c")
    await settle()
    assert woken == ["second"]
    await objects.close()


async def test_watches_end_when_the_api_carries_fewer(caplog: pytest.LogCaptureFixture) -> None:
    api, names = FakeApi(), [f"n{n}" for n in range(6)]
    for name in names:
        api.put(name, data={"a": "1"})
    objects, woken = watched(api)
    objects.register("pod", [key(name) for name in names])
    await settle()
    assert api.open_watches == 6
    with caplog.at_level("WARNING"):
        # HTTP/2 is lost, and the server speaks only HTTP/1.1 from now on
        api.watch_capacity = 4
        api.lose_watches()
        await asyncio.sleep(3.0)
        assert (api.open_watches, objects.watches) == (4, 6)
        for name in names:
            api.put(name, data={"a": "2"})
        await asyncio.sleep(POLL_S * 1.5 + 20)
    assert woken == ["pod"] * 6
    assert api.open_watches == 4
    stated = [(r.message.partition(":")[0], r.__dict__["watches"]) for r in caplog.records]
    assert stated == [("pods use more objects than can be watched", 4)], "six watches were lost"
    await objects.close()


class OnlyGets(FakeApi):
    """An API in which objects can be read but not watched, as claims by a node of a cluster."""

    async def watch(
        self, resource: Resource, namespace: str, **supplied: Any
    ) -> AsyncIterator[WatchEvent]:
        raise Forbidden("can only get individual resources of this type", code=403)
        yield


async def test_a_forbidden_watch_is_logged_once_as_information(
    caplog: pytest.LogCaptureFixture,
) -> None:
    api = OnlyGets()
    for name in ("a", "b", "c"):
        api.put(name)
    objects = WatchedObjects(cast(Any, api), rng=random.Random(1), read_when_forbidden=True)
    objects.register("pod", [key("a"), key("b"), key("c")])
    with caplog.at_level("INFO"):
        assert await objects.get(key("a"))
        await asyncio.sleep(3 * WATCH_AGAIN_S)
    assert [(r.levelname, r.message) for r in caplog.records] == [
        ("INFO", "this node may not watch these objects: changes are seen when they are read again")
    ]
    await objects.close()


class OfThisNode(FakeApi):
    """The embedded API forbids a node all access to attachments that do not exist yet."""

    async def get(self, resource: Resource, name: str, namespace: str, **_: Any) -> JSON:
        self._related(name)
        return await super().get(resource, name, namespace)

    async def watch(
        self, resource: Resource, namespace: str, **supplied: Any
    ) -> AsyncIterator[WatchEvent]:
        self._related(supplied["field_selector"].removeprefix("metadata.name="))
        async for event in super().watch(resource, namespace, **supplied):
            yield event

    def _related(self, name: str) -> None:
        if (CONFIGMAPS.plural, "default", name) not in self.objects:
            raise Forbidden("no relationship found", code=403)


async def test_a_missing_object_does_not_keep_others_from_being_watched() -> None:
    api = OfThisNode()
    api.put("there")
    objects = WatchedObjects(cast(Any, api), rng=random.Random(1), read_when_forbidden=True)
    woken: list[str] = []
    objects.on_change(woken.append)
    objects.register("first", [key("late")])
    with pytest.raises(Forbidden):
        await objects.get(key("late"))
    objects.press("first", [key("late")])
    objects.register("second", [key("there")])
    assert await objects.get(key("there"))
    assert api.open_watches == 1
    api.put("late")
    await asyncio.sleep(PRESSED_WAITS[1])
    assert woken == ["first"]
    assert api.open_watches == 2
    api.put("late", data={"a": "2"})
    await settle()
    assert woken == ["first", "first"]
    await objects.close()


class ListsOnly(FakeApi):
    """An API in which a node may list claims but not watch them."""

    async def watch(self, resource: Resource, namespace: str, **supplied: Any) -> Any:
        self.calls["watch"] = self.calls.get("watch", 0) + 1
        raise Forbidden("cannot watch", code=403)
        yield


async def test_objects_that_can_be_listed_but_not_watched_are_read_at_intervals() -> None:
    api = ListsOnly()
    api.put("a")
    objects = WatchedObjects(cast(Any, api), rng=random.Random(1), read_when_forbidden=True)
    objects.register("pod", [key("a")])
    assert await objects.get(key("a"))
    await asyncio.sleep(WATCH_AGAIN_S / 2)
    assert api.calls["watch"] <= 2
    await objects.close()
