"""List and watch on virtual time: resuming, relisting, pages, failures, bad objects."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest

from kubeletpy.base.api.types import JSON
from kubeletpy.kubeapi.errors import (
    ApiError,
    Forbidden,
    NotFound,
    Removed,
    TooManyRequests,
    Unavailable,
)
from kubeletpy.kubeapi.protocol import PODS, KubeApi, Resource, WatchEvent
from kubeletpy.kubeapi.reflector import Reflector, first_served
from tests.kit.api import ScriptedApi, Step
from tests.kit.costs import leaves_when_cancelled
from tests.kit.virtual_time import eventually, settle

pytestmark = pytest.mark.virtual_time


def page(*names: Any, version: str = "10", continue_: str = "") -> JSON:
    items = [pod(name) if isinstance(name, str) else name for name in names]
    return {"metadata": {"resourceVersion": version, "continue": continue_}, "items": items}


def pod(name: str, version: str = "1") -> JSON:
    return {"metadata": {"name": name, "resourceVersion": version}}


def event(kind: str, name: str, version: str) -> WatchEvent:
    return WatchEvent(kind, pod(name, version))


class Seen:
    """Notifications of a reflector, with names only."""

    def __init__(
        self,
        lists: Sequence[Any] = (),
        watches: Sequence[Sequence[Step]] = (),
        *,
        streams_lists: bool = False,
    ) -> None:
        self.api = ScriptedApi(lists, watches, streams_lists=streams_lists)
        self.notified: list[Any] = []
        api: KubeApi = self.api
        self.reflector = Reflector(
            api, PODS, on_replace=self.replace, on_event=self.event, rng=random.Random(1)
        )

    def replace(self, items: list[JSON]) -> None:
        assert all(item["kind"] == "Pod" and item["apiVersion"] == "v1" for item in items)
        self.notified.append([item["metadata"]["name"] for item in items])

    def event(self, seen: WatchEvent) -> None:
        name = seen.object["metadata"]["name"]
        self.notified.append((seen.type, name))
        if name == "breaks":
            raise RuntimeError(name)

    def called(self, verb: str) -> list[Any]:
        return [what for _at, name, what in self.api.calls if name == verb]

    async def run(self, calls: int) -> None:
        """Runs until the given number of calls was made."""
        task = asyncio.create_task(self.reflector.run())
        await self.api.called(calls)
        await settle()
        task.cancel()
        assert isinstance((await asyncio.gather(task, return_exceptions=True))[0], BaseException)


@pytest.mark.parametrize("streams_lists", [False, True])
async def test_an_ended_watch_is_freed_with_its_last_reference(streams_lists: bool) -> None:
    seen = Seen([page("a")], streams_lists=streams_lists)
    calls = 1 if streams_lists else 2
    assert await leaves_when_cancelled(seen.reflector.run(), seen.api.called(calls))


async def test_lists_then_watches_and_resumes() -> None:
    bookmark = WatchEvent("BOOKMARK", {"metadata": {"resourceVersion": "30"}})
    seen = Seen(
        [page("a", "b")],
        [
            [event("ADDED", "c", "11"), 300.0],
            [event("DELETED", "a", "12"), 1.0, bookmark, 300.0],
            [400.0],
        ],
    )
    await seen.run(5)
    assert seen.notified == [["a", "b"], ("ADDED", "c"), ("DELETED", "a")]
    assert seen.called("watch") == ["10", "11", "30", "30"]
    assert seen.reflector.healthy


async def test_pages() -> None:
    seen = Seen([page("a", continue_="x"), page("b", continue_="y"), page("c")])
    await seen.run(4)
    assert seen.called("list") == [(500, ""), (500, "x"), (500, "y")]
    assert seen.notified == [["a", "b", "c"]]


async def test_expired_pages_are_requested_again_at_once() -> None:
    seen = Seen([page("a", continue_="x"), Removed("expired", code=410), page("a", "b")])
    await seen.run(4)
    assert seen.called("list") == [(500, ""), (500, "x"), (0, "")]
    assert seen.notified == [["a", "b"]]


async def test_an_expired_version_lists_again_at_once() -> None:
    seen = Seen([page("a"), page("b", version="90")], [[5.0, Removed("old", code=410)]])
    await seen.run(4)
    assert seen.notified == [["a"], ["b"]]
    assert [(at, verb) for at, verb, _ in seen.api.calls[1:]] == [
        (0.0, "watch"),
        (5.0, "list"),
        (5.0, "watch"),
    ]


async def test_delays_grow_with_failures_and_a_success_resets_them() -> None:
    down = Unavailable("down")
    seen = Seen(
        [down, down, Forbidden("no", code=403), page("a")],
        [[down], [down], [down], [event("ADDED", "b", "11"), down], [down]],
    )
    assert not seen.reflector.healthy
    await seen.run(10)
    times = [at for at, _verb, _what in seen.api.calls]
    gaps = [later - earlier for earlier, later in pairwise(times)]
    bases = [0.8, 1.6, 3.2, 0, 0.8, 1.6, 3.2, 0.8, 1.6]
    assert len(gaps) == len(bases)
    for gap, base in zip(gaps, bases, strict=True):
        assert base - 0.01 <= gap <= 2 * base + 0.01
    assert seen.called("watch") == ["10", "10", "10", "10", "11", "11"]


async def test_delays_are_bounded_and_retry_after_is_respected() -> None:
    down = Unavailable("down")
    seen = Seen([TooManyRequests("slow", code=429, retry_after=20.0), *[down] * 12])
    await seen.run(13)
    times = [at for at, _verb, _what in seen.api.calls]
    gaps = [later - earlier for earlier, later in pairwise(times)]
    assert 20.0 < gaps[0] <= 40.0
    assert max(gaps) <= 60
    assert min(gaps[7:]) >= 30


@pytest.mark.parametrize(
    ("error", "at_once"),
    [
        (Unavailable("no connection"), True),
        (Unavailable("busy", code=503), False),
        (TooManyRequests("slow", code=429), False),
    ],
)
async def test_hurrying_retries_an_unreachable_api_at_once(error: ApiError, at_once: bool) -> None:
    """Refusals by the API itself are not retried early."""
    seen = Seen([*[error] * 6, page("a")])
    task = asyncio.create_task(seen.reflector.run())
    await seen.api.called(6)
    seen.reflector.hurry()
    seen.reflector.hurry()
    await seen.api.called(7)
    waited = seen.api.calls[6][0] - seen.api.calls[5][0]
    assert waited <= 3.0 if at_once else waited >= 25.0
    await seen.reflector.synced.wait()
    seen.reflector.hurry()
    task.cancel()


async def test_watches_that_end_at_once_are_no_busy_loop() -> None:
    seen = Seen([page("a")], [[], [], []])
    await seen.run(5)
    assert seen.api.calls[-1][0] > 3.0


async def test_health_follows_the_last_request() -> None:
    established = WatchEvent("BOOKMARK", {"metadata": {"resourceVersion": "10"}})
    seen = Seen([page("a")], [[5.0, Unavailable("down")], [established, 1000.0]])
    task = asyncio.create_task(seen.reflector.run())
    await seen.reflector.synced.wait()
    assert seen.reflector.healthy
    await eventually(lambda: not seen.reflector.healthy)
    assert str(seen.reflector.last_error) == "down"
    await eventually(lambda: seen.reflector.healthy)
    task.cancel()


async def test_malformed_objects_and_answers_are_skipped() -> None:
    bad: list[Any] = [None, 5, {}, {"metadata": None}, {"metadata": {"name": 3}}]
    nameless: list[Any] = [{}, {"metadata": []}, {"metadata": {}}]
    seen = Seen(
        [{"items": "x", "metadata": {}}, {"items": []}, page(*bad, "a")],
        [
            [
                *(WatchEvent("ADDED", each) for each in nameless),
                event("ADDED", "breaks", "20"),
                WatchEvent("MODIFIED", {"metadata": {"name": 1, "resourceVersion": "21"}}),
                event("MODIFIED", "b", "22"),
                5.0,
            ]
        ],
    )
    await seen.run(5)
    assert seen.notified == [["a"], ("ADDED", "breaks"), ("MODIFIED", "b")]
    assert seen.called("watch") == ["10", "22"]


# The version of a kind that is used with servers of several Kubernetes versions.

NEW, OLD = (
    Resource("certificates.k8s.io", version, "clustertrustbundles", False, "ClusterTrustBundle")
    for version in ("v1", "v1beta1")
)


class Server:
    """Serves the given versions; with ``fault`` every request fails."""

    def __init__(self, *served: str, fault: Exception | None = None) -> None:
        self.served, self.fault = served, fault

    async def list(self, resource: Resource, **_: Any) -> Any:
        if self.fault is not None:
            raise self.fault
        if resource.version not in self.served:
            raise NotFound("the server could not find the requested resource", code=404)


@pytest.mark.parametrize(
    ("served", "expected"), [(("v1",), NEW), (("v1beta1",), OLD), (("v1", "v1beta1"), NEW)]
)
async def test_the_best_served_version(served: tuple[str, ...], expected: Resource) -> None:
    assert await first_served(Server(*served), (NEW, OLD)) == expected  # type: ignore[arg-type]


async def test_a_server_without_the_kind_is_named() -> None:
    expected = r"has no clustertrustbundles \(certificates.k8s.io v1, v1beta1\)"
    with pytest.raises(NotFound, match=expected):
        await first_served(Server(), (NEW, OLD))  # type: ignore[arg-type]


async def test_a_server_that_does_not_answer_is_not_taken_for_an_old_one() -> None:
    with pytest.raises(Unavailable):
        await first_served(Server(fault=Unavailable("down")), (NEW, OLD))  # type: ignore[arg-type]
