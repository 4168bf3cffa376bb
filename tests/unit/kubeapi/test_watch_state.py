"""Lists streamed over a watch, and servers that can't send them, on virtual time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Any

import pytest

from kubeletpy.base.structs import replace
from kubeletpy.kubeapi import errors
from kubeletpy.kubeapi.errors import ApiError, Forbidden, Removed, Unavailable, from_status
from kubeletpy.kubeapi.protocol import SECRETS, SERVICES, WatchEvent
from kubeletpy.kubeapi.reflector import Reflector
from kubeletpy.kubeapi.watch_state import (
    LASTING_S,
    SILENCE_S,
    TRY_AGAIN_S,
    FailingWatch,
    FailingWatches,
    InitialEvents,
    StreamedLists,
    Unstreamed,
    WatchSlots,
    list_instead,
)
from tests.kit.api import ScriptedApi, Step
from tests.kit.messages import end_of_list, streamed
from tests.kit.virtual_time import settle

from .test_reflector import Seen, event, page, pod

pytestmark = pytest.mark.virtual_time

ACCEPTED = WatchEvent("BOOKMARK", {"metadata": {"resourceVersion": ""}})


def streaming(*watches: Sequence[Step], lists: Sequence[Any] = ()) -> Seen:
    return Seen(lists, watches, streams_lists=True)


def calls_of(seen: Seen) -> list[tuple[str, str]]:
    return [(verb, what) for _at, verb, what in seen.api.calls]


async def test_one_watch_lists_and_follows_and_is_resumed_after_its_last_bookmark() -> None:
    bookmark = WatchEvent("BOOKMARK", {"metadata": {"resourceVersion": "30"}})
    seen = streaming(
        [
            ACCEPTED,
            event("ADDED", "b", "7"),
            event("ADDED", "a", "3"),
            end_of_list("20"),
            event("MODIFIED", "a", "21"),
            bookmark,
            400.0,
        ],
        [Unavailable("the server is restarted")],
        [400.0],
    )
    await seen.run(4)
    assert seen.notified == [["b", "a"], ("MODIFIED", "a")]
    assert calls_of(seen) == [("stream", ""), ("watch", "30"), ("watch", "30"), ("watch", "30")]


async def test_nothing_is_reported_before_the_list_is_complete() -> None:
    seen = streaming(
        [ACCEPTED, event("ADDED", "a", "3"), Unavailable("broken off")],
        [ACCEPTED, event("ADDED", "b", "4"), 5.0],
        [ACCEPTED, *streamed([pod("c")], "20"), 5.0],
    )
    await seen.run(4)
    assert seen.notified == [["c"]]
    assert calls_of(seen) == [("stream", "")] * 3 + [("watch", "20")]


async def test_changes_before_the_end_of_the_list_belong_to_it() -> None:
    seen = streaming(
        [
            event("ADDED", "a", "3"),
            event("ADDED", "b", "4"),
            WatchEvent("BOOKMARK", {"metadata": {"resourceVersion": "9"}}),
            event("DELETED", "a", "10"),
            event("MODIFIED", "b", "11"),
            WatchEvent("ADDED", {"metadata": {"name": 5}}),
            end_of_list("12"),
            5.0,
        ]
    )
    await seen.run(2)
    assert seen.notified == [["b"]]


async def test_an_expired_version_streams_the_list_again_at_once() -> None:
    seen = streaming(
        [*streamed([pod("a")], "20"), 5.0],
        [Removed("too old", code=410)],
        [*streamed([pod("b")], "90"), 5.0],
    )
    await seen.run(4)
    assert seen.notified == [["a"], ["b"]]
    assert calls_of(seen) == [("stream", ""), ("watch", "20"), ("stream", ""), ("watch", "90")]
    assert [at for at, _, _ in seen.api.calls] == [0.0, 5.0, 5.0, 10.0]


async def test_a_server_that_refuses_is_listed_and_retried_later(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    removed = Removed("too old", code=410)
    seen = Seen([page("a"), page("b"), page("c")], [[5.0, removed], [TRY_AGAIN_S, removed], [5.0]])
    await seen.run(6)
    assert seen.notified == [["a"], ["b"], ["c"]]
    stated = [r.message for r in caplog.records if "stream" in r.message]
    assert len(stated) == 2, "at first, and at the second attempt"


async def test_reflectors_share_what_a_server_supports() -> None:
    seen = streaming([from_status(422, {})], [1000.0], lists=[page("a"), page("b")])
    await seen.run(3)
    seen.api.watches = [[1000.0]]
    other = Seen()
    other.api = seen.api
    other.reflector.api = seen.api
    await other.run(5)
    assert calls_of(other)[3:] == [("list", (500, "")), ("watch", "10")]


async def test_a_server_that_never_ends_its_list_is_listed() -> None:
    seen = streaming(
        [ACCEPTED, event("ADDED", "a", "3"), 4000.0], [5.0], lists=[page("a", "b"), page("c")]
    )
    await seen.run(3)
    assert seen.notified == [["a", "b"]]
    assert [at for at, _, _ in seen.api.calls] == [0.0, SILENCE_S, SILENCE_S]


async def test_a_server_that_does_not_answer_is_retried() -> None:
    seen = streaming([4000.0], [*streamed([pod("a")], "20"), 5.0])
    await seen.run(3)
    assert seen.notified == [["a"]]
    assert calls_of(seen)[:2] == [("stream", ""), ("stream", "")]
    assert seen.api.calls[1][0] > SILENCE_S


async def test_a_list_may_take_long_while_it_continues() -> None:
    slow: list[Step] = []
    for number in range(10):
        slow += [event("ADDED", f"p{number}", "3"), SILENCE_S * 0.9]
    seen = streaming([*slow, end_of_list("20"), 4000.0])
    task = asyncio.create_task(seen.reflector.run())
    await seen.reflector.synced.wait()
    assert len(seen.notified[0]) == 10
    task.cancel()


@pytest.mark.parametrize(
    ("error", "listed", "remembered"),
    [
        (from_status(400, {}), True, True),
        (from_status(405, {}), True, True),
        (from_status(415, {}), True, True),
        (from_status(422, {}), True, True),
        (from_status(501, {}), True, True),
        (Unstreamed("no end"), True, True),
        (from_status(500, {}), True, False),
        (Forbidden("", code=403), False, False),
        (from_status(404, {}), False, False),
        (Removed("", code=410), False, False),
        (from_status(429, {}), False, False),
        (from_status(503, {}), False, False),
        (from_status(504, {}), False, False),
        (Unavailable("connection refused"), False, False),
    ],
)
def test_errors_that_lead_to_a_plain_list(error: ApiError, listed: bool, remembered: bool) -> None:
    assert list_instead(error) is listed
    lists = StreamedLists()
    assert lists.refused(error, 5.0) is remembered
    assert lists.refused(error, 6.0) is False
    assert lists.expected(6.0 + TRY_AGAIN_S - 0.1) is not remembered
    assert lists.expected(6.0 + TRY_AGAIN_S)


@pytest.mark.parametrize("metadata", [{}, {"resourceVersion": ""}, {"resourceVersion": 5}])
def test_the_end_of_a_list_needs_a_version(metadata: dict[str, Any]) -> None:
    end = {"metadata": {**metadata, "annotations": {"k8s.io/initial-events-end": "true"}}}
    with pytest.raises(Unavailable, match="without a resourceVersion"):
        InitialEvents().add_event("BOOKMARK", end)


@pytest.mark.parametrize(
    "metadata", [None, [], {"annotations": None}, {"annotations": {"k8s.io/initial-events-end": 1}}]
)
def test_other_bookmarks_end_nothing(metadata: Any) -> None:
    assert InitialEvents().add_event("BOOKMARK", {"metadata": metadata}) is False


def test_objects_differ_by_namespace() -> None:
    initial = InitialEvents()
    for namespace in ("x", "y"):
        initial.add_event("ADDED", {"metadata": {"name": "a", "namespace": namespace}})
    initial.add_event("DELETED", {"metadata": {"name": "a", "namespace": "x"}})
    assert [each["metadata"]["namespace"] for each in initial.objects] == ["y"]


# Watches that keep failing, with reason and start time.

BROKEN = Unavailable("watch of services: the answer is no gzip")
FAILING_WATCHES_ACCEPTED = WatchEvent("BOOKMARK", {"metadata": {"resourceVersion": "7"}})
WHOLE = WatchEvent(
    "BOOKMARK",
    {"metadata": {"resourceVersion": "7", "annotations": {"k8s.io/initial-events-end": "true"}}},
)


def services(since: float, failures: int = 1, why: str = "broken") -> FailingWatch:
    return FailingWatch("services", "", "", why, since, failures)


@pytest.mark.parametrize(
    ("happens", "found"),
    [
        ([], []),
        ([1.0], []),
        ([1.0, 2.0, 4.0], [services(1.0, 3)]),
        ([1.0, 2.0, "accepted 3"], []),
        ([1.0, "accepted 2", 3.0], [services(1.0, 2)]),
        ([1.0, 2.0, f"accepted {3 + LASTING_S}", 3 + 2 * LASTING_S], []),
        ([1.0, 2.0, "accepted 3", 40.0, 41.0], [services(40.0, 2)]),
        ([1.0, 2.0, "ended"], []),
        (["accepted 1", 2.0, 3.0], [services(2.0, 2)]),
    ],
)
def test_consecutive_failures(happens: Sequence[float | str], found: list[FailingWatch]) -> None:
    watches = FailingWatches()
    for each in happens:
        if isinstance(each, float):
            watches.failed("a", services(each))
        elif each == "ended":
            watches.ended("a")
        else:
            watches.accepted("a", float(each.removeprefix("accepted ")))
    assert watches.now() == found


def test_the_longest_failure_is_first() -> None:
    watches, secret = FailingWatches(), FailingWatch("secrets", "ns", "token", "no", 5.0)
    for watch, row in (("b", secret), ("a", services(1.0))) * 2:
        watches.failed(watch, row)
    assert [each.target for each in watches.now()] == ["services", "secrets ns/token"]
    assert [each.target for each in watches.of_objects([("secrets", "ns", "token")])] == [
        "secrets ns/token"
    ]
    assert replace(secret, name="").target == "secrets in namespace ns"
    assert replace(secret, namespace="").target == "secrets token"


def reflector(api: ScriptedApi, **options: Any) -> Reflector:
    return Reflector(api, SERVICES, on_replace=lambda _: None, on_event=lambda _: None, **options)


async def test_a_watch_that_keeps_failing_is_named_until_it_is_accepted() -> None:
    api = ScriptedApi([], [[BROKEN], [BROKEN], [BROKEN], [WHOLE, 300.0]], streams_lists=True)
    following = asyncio.ensure_future(reflector(api).run())
    await api.called(3)
    await settle()
    (found,) = api.failing_watches.now()
    assert (found.target, found.why, found.since, found.failures) == (
        *("services", BROKEN.message),
        *(0.0, 3),
    )
    await api.called(4)
    await settle()
    assert api.failing_watches.now() == []
    following.cancel()


async def test_a_watch_that_is_accepted_and_then_breaks_each_time_is_named() -> None:
    """Each LIST succeeds, and each watch answer begins without an error."""
    api = ScriptedApi(
        [{"items": [], "metadata": {"resourceVersion": "7"}}],
        [[FAILING_WATCHES_ACCEPTED, BROKEN]] * 4,
    )
    following = asyncio.ensure_future(reflector(api).run())
    await api.called(5)
    await settle()
    (found,) = api.failing_watches.now()
    assert (found.since, found.failures) == (0.0, 4)
    following.cancel()
    await settle()
    assert api.failing_watches.now() == [], "the reflector has ended"


async def test_the_watch_of_one_object_is_named_by_its_object() -> None:
    api = ScriptedApi([], [[BROKEN]] * 2, streams_lists=True)
    one = Reflector(
        api,
        SECRETS,
        namespace="ns",
        on_replace=lambda _: None,
        on_event=lambda _: None,
        field_selector="metadata.name=token",
    )
    following = asyncio.ensure_future(one.run())
    await api.called(2)
    await settle()
    assert [each.target for each in api.failing_watches.now()] == ["secrets ns/token"]
    following.cancel()


# Exceptions raised for error answers.


@pytest.mark.parametrize(
    ("code", "reason", "kind"),
    [
        (0, "", errors.Unavailable),
        (400, "", errors.BadRequest),
        (401, "", errors.Unauthorized),
        (402, "", ApiError),
        (403, "", errors.Forbidden),
        (404, "", errors.NotFound),
        (404, "AlreadyExists", errors.NotFound),
        (409, "", errors.Conflict),
        (409, "Conflict", errors.Conflict),
        (409, "AlreadyExists", errors.AlreadyExists),
        (410, "", errors.Removed),
        (422, "", errors.Invalid),
        (429, "", errors.TooManyRequests),
        (499, "", ApiError),
        (500, "", errors.Unavailable),
        (503, "", errors.Unavailable),
    ],
)
def test_kinds(code: int, reason: str, kind: type[ApiError]) -> None:
    found = from_status(code, {"reason": reason})
    assert (type(found), found.code, found.reason) == (kind, code, reason)
    if code:
        by_body = from_status(0, {"reason": reason, "code": code})
        assert (type(by_body), by_body.code) == (kind, code)


def test_the_http_status_precedes_the_code_of_the_body() -> None:
    assert from_status(404, {"code": 500}).code == 404


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"message": "no", "reason": "NotFound"}, "no"),
        ({"message": "", "reason": "NotFound"}, "NotFound"),
        ({"message": 5, "reason": "NotFound"}, "NotFound"),
        ({"reason": 5}, "HTTP status 404"),
        ({}, "HTTP status 404"),
        ("<html>", "HTTP status 404"),
        (None, "HTTP status 404"),
        ({"code": "x", "details": "y"}, "HTTP status 404"),
    ],
)
def test_messages(body: Any, message: str) -> None:
    found = from_status(404, body)
    assert (str(found), found.message, found.details) == (message, message, {})


@pytest.mark.parametrize(
    ("header", "seconds", "expected"),
    [
        (None, None, None),
        (None, 5, 5.0),
        (None, 0.5, 0.5),
        (None, 1, 1.0),
        (None, 0, None),
        (None, -1, None),
        (None, "5", None),
        (0.0, 5, 0.0),
        (3.0, 5, 3.0),
        (3.0, None, 3.0),
    ],
)
def test_retry_after(header: float | None, seconds: Any, expected: float | None) -> None:
    body = {"details": {"retryAfterSeconds": seconds}}
    found = from_status(429, body, retry_after=header)
    assert found.retry_after == expected
    assert found.details == body["details"]


def test_an_error_without_an_answer() -> None:
    bare = ApiError("x")
    assert (bare.code, bare.reason, bare.details, bare.retry_after) == (0, "", {}, None)


# Watch slots of pods, and their transfer when a pod has ended.


def test_each_pod_has_its_own_slots() -> None:
    slots = WatchSlots(pod=2)
    assert [slots.acquire(n, ["a"], 4) for n in range(3)] == [True, True, False]
    assert slots.acquire(0, ["a"], 4), "what has a slot keeps it"
    assert slots.acquire(2, ["a", "b"], 4), "b has room"
    assert slots.acquire(3, ["b"], 4)
    assert not slots.acquire(4, ["c"], 4), "the node is full"
    assert slots.acquire(0, ["a"], 3), (
        "what has a slot keeps it, though the node may have fewer now"
    )
    slots.give_back(0)
    assert not slots.acquire(4, ["c"], 3)
    assert slots.acquire(4, ["c"], 4)
    assert len(slots) == 4


def test_a_shared_watch_continues_for_the_remaining_pods() -> None:
    slots = WatchSlots(pod=1)
    assert slots.acquire("x", ["a", "b"])
    slots.pass_on("x", "b", ["a"])
    assert not slots.acquire("y", ["a"]), "it is still a's"
    slots.pass_on("x", "a", ["b"])
    assert slots.acquire("y", ["a"])
    assert not slots.acquire("z", ["b"])
    slots.pass_on("x", "b", [])
    assert slots.acquire("z", ["b"])


def test_slots_are_returned_one_by_one() -> None:
    slots = WatchSlots(pod=2)
    assert slots.acquire(0, ["a"])
    assert slots.acquire(1, ["a"])
    slots.give_back(0)
    assert slots.acquire(2, ["a"])
    assert not slots.acquire(3, ["a"])
    for watch in (0, 1, 2):
        slots.give_back(watch)
    assert not slots._counts, "nothing is kept of a pod that has none"
