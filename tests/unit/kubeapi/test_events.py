"""The writer of Events on virtual time: it never blocks, retries for a while, counts drops."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Sequence
from typing import Any

import pytest

from kubeletpy.base.api import types as api
from kubeletpy.base.tasks import Backlog
from kubeletpy.kubeapi.errors import ApiError, Forbidden, NotFound, TooManyRequests, Unavailable
from kubeletpy.kubeapi.events.reasons import Reason
from kubeletpy.kubeapi.events.recorder import EventRecorder
from kubeletpy.kubeapi.events.writer import QUEUE_SIZE, WAITS_AT_MOST_S, EventWriter
from tests.kit.api import ScriptedApi
from tests.kit.virtual_time import LoopClock

pytestmark = pytest.mark.virtual_time

POD: api.ObjectReference = {"kind": "Pod", "namespace": "n", "name": "p", "uid": "u"}


def writer_to(errors: Sequence[ApiError] = ()) -> tuple[ScriptedApi, EventWriter]:
    server = ScriptedApi(write_errors=errors)
    return server, EventWriter(server, LoopClock(), "m", Backlog(), rng=random.Random(1))


def run(writer: EventWriter) -> asyncio.Future[Any]:
    return asyncio.gather(writer.write_normal(), writer.write_warnings())


async def write(writer: EventWriter, *messages: str) -> None:
    recorder: EventRecorder = writer
    for message in messages:
        recorder.event(POD, "Normal", Reason.CREATED, message)
    task = run(writer)
    await writer.drain()
    task.cancel()


async def test_creates_then_patches() -> None:
    server, writer = writer_to()
    await write(writer, "a", "a", "b")
    assert [verb for _at, verb, _what in server.calls] == ["create", "patch", "create"]
    assert server.calls[1][2]["count"] == 2
    assert not writer.dropped


async def test_a_removed_event_is_created_again() -> None:
    server, writer = writer_to()
    await write(writer, "a")
    server.write_errors = [NotFound("gone", code=404)]
    await write(writer, "a")
    assert [verb for _at, verb, _what in server.calls] == ["create", "patch", "create"]
    assert server.calls[2][2]["count"] == 2


async def test_an_outage_is_waited_for_and_order_is_kept() -> None:
    server, writer = writer_to([Unavailable("down"), TooManyRequests("slow"), Unavailable("down")])
    await write(writer, "a", "b")
    times = [at for at, _verb, _what in server.calls]
    assert 0 <= times[1] <= 10
    assert [round(times[2] - times[1]), round(times[3] - times[2])] == [10, 10]
    assert [what["message"] for _at, _verb, what in server.calls] == ["a", "a", "a", "a", "b"]
    assert not writer.dropped


async def test_it_gives_up_after_twelve_tries() -> None:
    server, writer = writer_to([Unavailable("down")] * 12)
    await write(writer, "a", "b")
    assert [what["message"] for _at, _verb, what in server.calls] == ["a"] * 12 + ["b"]
    assert writer.dropped == {"API not reachable": 1}


async def test_a_refusal_is_final() -> None:
    server, writer = writer_to([Forbidden("no", code=403, reason="Forbidden")])
    await write(writer, "a", "b")
    assert [what["message"] for _at, _verb, what in server.calls] == ["a", "b"]
    assert writer.dropped == {"Forbidden": 1}


@pytest.mark.parametrize(
    ("details", "stated"),
    [
        ({"causes": [{"reason": "NamespaceTerminating"}]}, False),
        ({"causes": [{"reason": "FieldValueInvalid"}]}, True),
        ({"causes": "NamespaceTerminating"}, True),
        ({}, True),
    ],
)
async def test_the_end_of_a_namespace_is_not_logged(
    caplog: pytest.LogCaptureFixture, details: dict[str, Any], stated: bool
) -> None:
    caplog.set_level(logging.INFO)
    refusal = Forbidden("no", code=403, reason="Forbidden", details=details)
    _server, writer = writer_to([refusal])
    await write(writer, "a")
    assert bool(caplog.messages) == stated
    assert writer.dropped == {"Forbidden": 1}


async def test_a_full_queue_drops_and_counts() -> None:
    _server, writer = writer_to()
    for index in range(QUEUE_SIZE + 5):
        writer.event(POD, "Normal", Reason.CREATED, str(index))
    assert writer.dropped == {"queue full": 5}


@pytest.mark.parametrize(("busy", "waited"), [(3.0, 3.0), (60.0, WAITS_AT_MOST_S)])
async def test_normal_events_wait_while_pods_wait_and_warnings_do_not(
    busy: float, waited: float
) -> None:
    server, backlog = ScriptedApi(), Backlog()
    writer = EventWriter(server, LoopClock(), "m", backlog)
    began = asyncio.get_running_loop().time()
    writer.event(POD, "Normal", Reason.CREATED, "a")
    writer.event(POD, "Normal", Reason.STARTED, "b")
    writer.event(POD, "Warning", Reason.FAILED, "c")
    task = run(writer)
    with backlog.waiting():
        await asyncio.sleep(busy)
    await writer.drain()
    task.cancel()
    written = [(what["message"], at - began) for at, _verb, what in server.calls]
    assert written == [("c", 0.0), ("a", waited), ("b", waited)]
