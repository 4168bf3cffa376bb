"""Objects that are read when pods need them: how old they may be, and the effect of failures."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kubeletpy.kubeapi.errors import Forbidden, Unavailable
from kubeletpy.kubeapi.objects import FIRST_ANSWER_S
from kubeletpy.kubeapi.objects_on_request import DEFAULT_TTL_S, ObjectsOnRequest, object_ttl
from kubeletpy.kubeapi.protocol import CONFIGMAPS
from kubeletpy.kubeapi.tracked_object import ObjectKey
from tests.kit.virtual_time import timed
from tests.kit.volumes import FakeApi

pytestmark = pytest.mark.virtual_time

CFG = ObjectKey(CONFIGMAPS, "default", "cfg")
AWAY = Unavailable("the API is away")


def cache(api: FakeApi, ttl: float = 60.0) -> tuple[ObjectsOnRequest, list[str]]:
    return _woken(ObjectsOnRequest(api, ttl=lambda: ttl))  # type: ignore[arg-type]


def get(api: FakeApi) -> tuple[ObjectsOnRequest, list[str]]:
    return _woken(ObjectsOnRequest(api, ttl=None))  # type: ignore[arg-type]


def _woken(objects: ObjectsOnRequest) -> tuple[ObjectsOnRequest, list[str]]:
    woken: list[str] = []
    objects.on_change(woken.append)
    return objects, woken


async def value(objects: ObjectsOnRequest) -> Any:
    found = await objects.get(CFG)
    return None if found is None else found["data"]["a"]


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0", 0.0),
        ("300", 300.0),
        ("+15", 15.0),
        ("-1", -1.0),
        ("", DEFAULT_TTL_S),
        ("15s", DEFAULT_TTL_S),
        ("1_5", DEFAULT_TTL_S),
        (" 15", DEFAULT_TTL_S),
        ("٣", DEFAULT_TTL_S),
        ("9" * 400, DEFAULT_TTL_S),
    ],
)
def test_the_maximum_age_of_an_object_comes_from_the_node(text: str, seconds: float) -> None:
    annotations = {"node.alpha.kubernetes.io/ttl": text}
    assert object_ttl({"metadata": {"annotations": annotations}}) == seconds


@pytest.mark.parametrize("node", [{}, {"metadata": {}}, {"metadata": {"annotations": None}}])
def test_a_node_without_an_annotation(node: dict[str, Any]) -> None:
    assert object_ttl(node) == DEFAULT_TTL_S


async def test_a_cached_object_is_read_again_when_it_is_too_old() -> None:
    api = FakeApi()
    api.put("cfg", data={"a": "1"})
    objects, woken = cache(api)
    objects.register("p", [CFG])
    objects.register("q", [], [CFG])
    assert [await value(objects) for _ in range(3)] == ["1"] * 3
    api.put("cfg", data={"a": "2"})
    await asyncio.sleep(59.9)
    assert await value(objects) == "1"
    assert (api.calls, woken) == ({"get": 1}, [])
    await asyncio.sleep(0.1)
    assert await value(objects) == "2"
    assert (api.calls, sorted(woken)) == ({"get": 2}, ["p", "q"])
    api.remove("cfg")
    await asyncio.sleep(60)
    assert await value(objects) is None
    assert api.versions_asked == ["", "0", "0"]


async def test_the_age_counts_from_when_the_read_began() -> None:
    api = FakeApi()
    api.put("cfg", data={"a": "1"})
    api.answers_after = 20
    objects, _ = cache(api)
    objects.register("p", [CFG])
    await value(objects)
    await asyncio.sleep(39.9)
    assert objects._is_current(objects._items[CFG])
    await asyncio.sleep(0.2)
    assert not objects._is_current(objects._items[CFG])


async def test_a_new_pod_never_gets_an_earlier_read() -> None:
    api = FakeApi()
    api.put("cfg", data={"a": "1"})
    objects, _ = cache(api)
    objects.register("p", [CFG])
    assert await value(objects) == "1"
    api.put("cfg", data={"a": "2"})
    objects.register("p", [CFG])
    assert await value(objects) == "1"
    objects.register("q", [CFG])
    assert await value(objects) == "2"
    assert api.versions_asked == ["", ""]


async def test_a_new_pod_never_gets_a_read_that_began_before_it() -> None:
    api = FakeApi()
    api.put("cfg", data={"a": "1"})
    api.answers_after = 5
    objects, _ = cache(api)
    objects.register("p", [CFG])
    first = asyncio.create_task(value(objects))
    await asyncio.sleep(1)
    objects.register("q", [CFG])
    second, seconds = await timed(value(objects))
    assert (await first, second, seconds, api.calls["get"]) == ("1", "1", 9, 2)


async def test_a_cached_object_outlives_an_outage() -> None:
    api = FakeApi()
    api.put("cfg", data={"a": "1"})
    objects, _ = cache(api)
    objects.register("p", [CFG])
    await value(objects)
    await asyncio.sleep(61)
    api.down = AWAY
    assert await value(objects) == "1"
    objects.register("q", [CFG])
    with pytest.raises(Unavailable, match="away"):
        await value(objects)
    api.down = None
    assert await value(objects) == "1"


async def test_a_slow_api_does_not_delay_pods_with_an_object() -> None:
    api = FakeApi()
    api.put("cfg", data={"a": "1"})
    objects, woken = cache(api)
    objects.register("p", [CFG])
    await value(objects)
    await asyncio.sleep(61)
    api.put("cfg", data={"a": "2"})
    api.answers_after = 10
    assert await timed(value(objects)) == ("1", FIRST_ANSWER_S)
    await asyncio.sleep(10)
    assert woken == ["p"]
    assert (await value(objects), api.calls["get"]) == ("2", 2)


async def test_an_older_version_from_a_servers_cache_is_no_change() -> None:
    api = FakeApi()
    api.put("cfg", data={"a": "1"})
    old = dict(api.objects[(CONFIGMAPS.plural, "default", "cfg")])
    api.put("cfg", data={"a": "2"})
    objects, woken = cache(api, ttl=0)
    objects.register("p", [CFG])
    assert await value(objects) == "2"
    api.objects[(CONFIGMAPS.plural, "default", "cfg")] = old
    assert (await value(objects), woken) == ("2", [])


async def test_get_reads_for_each_caller_and_keeps_nothing() -> None:
    api = FakeApi()
    api.put("cfg", data={"a": "1"})
    objects, woken = get(api)
    objects.register("p", [CFG])
    assert await value(objects) == "1"
    api.put("cfg", data={"a": "2"})
    assert await value(objects) == "2"
    api.down = AWAY
    with pytest.raises(Unavailable, match="away"):
        await value(objects)
    assert (api.versions_asked, woken) == (["", ""], [])
    assert api.calls["get"] == 3


async def test_get_answers_with_a_read_that_began_after_the_question() -> None:
    api = FakeApi()
    api.put("cfg", data={"a": "1"})
    api.answers_after = 5
    objects, _ = get(api)
    objects.register("p", [CFG])
    first = asyncio.create_task(value(objects))
    await asyncio.sleep(1)
    later = [asyncio.create_task(timed(value(objects))) for _ in range(3)]
    assert await first == "1"
    assert [await each for each in later] == [("1", 9)] * 3
    assert api.calls["get"] == 2


@pytest.mark.parametrize("make", [cache, get])
async def test_an_immutable_object_is_read_once_for_each_new_pod(make: Any) -> None:
    api = FakeApi()
    api.put("cfg", data={"a": "1"}, immutable=True)
    objects, _ = make(api)
    objects.register("p", [CFG])
    for _ in range(3):
        assert await value(objects) == "1"
        await asyncio.sleep(100)
    assert api.calls == {"get": 1}
    api.remove("cfg")
    api.put("cfg", data={"a": "2"}, immutable=True)
    objects.register("new", [CFG])
    for _ in range(3):
        assert await value(objects) == "2"
    assert api.calls == {"get": 2}


@pytest.mark.parametrize("make", [cache, get])
async def test_a_first_refusal_may_not_last(make: Any) -> None:
    api = FakeApi()
    api.put("cfg", data={"a": "1"})
    api.refusals = [Forbidden("no relation yet", code=403)] * 3
    objects, _ = make(api)
    objects.register("p", [CFG])
    assert await value(objects) == "1"
    api.refusals = [Forbidden("you may not", code=403)] * 4
    objects.register("q", [CFG])
    with pytest.raises(Forbidden, match="you may not"):
        await value(objects)


@pytest.mark.parametrize("make", [cache, get])
async def test_an_object_that_no_pod_uses_is_not_read(make: Any) -> None:
    api = FakeApi()
    api.put("cfg", data={"a": "1"})
    api.answers_after = 50
    objects, _ = make(api)
    with pytest.raises(Unavailable, match="not registered"):
        await objects.get(CFG)
    objects.register("p", [CFG])
    waiting = asyncio.create_task(objects.get(CFG))
    await asyncio.sleep(1)
    objects.release("p")
    with pytest.raises(Unavailable, match="could not be read"):
        await waiting
    with pytest.raises(Unavailable, match="not registered"):
        await objects.get(CFG)
    objects.register("p", [CFG])
    waiting = asyncio.create_task(objects.get(CFG))
    await asyncio.sleep(1)
    await objects.close()
    with pytest.raises(Unavailable, match="could not be read"):
        await waiting
