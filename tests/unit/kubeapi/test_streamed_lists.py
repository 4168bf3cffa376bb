"""Lists streamed over a watch, and servers that can't send them, on virtual time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Any

import pytest

from kubeletpy.kubeapi.errors import ApiError, Forbidden, Removed, Unavailable, from_status
from kubeletpy.kubeapi.protocol import WatchEvent
from kubeletpy.kubeapi.watch_state import (
    SILENCE_S,
    TRY_AGAIN_S,
    InitialEvents,
    StreamedLists,
    Unstreamed,
    list_instead,
)
from tests.streamed_list import end_of_list, streamed
from tests.virtual_time import on_virtual_time

from .scripted_api import Step
from .test_reflector import Seen, event, page, pod

ACCEPTED = WatchEvent("BOOKMARK", {"metadata": {"resourceVersion": ""}})


def streaming(*watches: Sequence[Step], lists: Sequence[Any] = ()) -> Seen:
    return Seen(lists, watches, streams_lists=True)


def calls_of(seen: Seen) -> list[tuple[str, str]]:
    return [(verb, what) for _at, verb, what in seen.api.calls]


@on_virtual_time
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


@on_virtual_time
async def test_nothing_is_reported_before_the_list_is_complete() -> None:
    seen = streaming(
        [ACCEPTED, event("ADDED", "a", "3"), Unavailable("broken off")],
        [ACCEPTED, event("ADDED", "b", "4"), 5.0],
        [ACCEPTED, *streamed([pod("c")], "20"), 5.0],
    )
    await seen.run(4)
    assert seen.notified == [["c"]]
    assert calls_of(seen) == [("stream", "")] * 3 + [("watch", "20")]


@on_virtual_time
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


@on_virtual_time
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


@on_virtual_time
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


@on_virtual_time
async def test_reflectors_share_what_a_server_supports() -> None:
    seen = streaming([from_status(422, {})], [1000.0], lists=[page("a"), page("b")])
    await seen.run(3)
    seen.api.watches = [[1000.0]]
    other = Seen()
    other.api = seen.api
    other.reflector.api = seen.api
    await other.run(5)
    assert calls_of(other)[3:] == [("list", (500, "")), ("watch", "10")]


@on_virtual_time
async def test_a_server_that_never_ends_its_list_is_listed() -> None:
    seen = streaming(
        [ACCEPTED, event("ADDED", "a", "3"), 4000.0], [5.0], lists=[page("a", "b"), page("c")]
    )
    await seen.run(3)
    assert seen.notified == [["a", "b"]]
    assert [at for at, _, _ in seen.api.calls] == [0.0, SILENCE_S, SILENCE_S]


@on_virtual_time
async def test_a_server_that_does_not_answer_is_retried() -> None:
    seen = streaming([4000.0], [*streamed([pod("a")], "20"), 5.0])
    await seen.run(3)
    assert seen.notified == [["a"]]
    assert calls_of(seen)[:2] == [("stream", ""), ("stream", "")]
    assert seen.api.calls[1][0] > SILENCE_S


@on_virtual_time
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
