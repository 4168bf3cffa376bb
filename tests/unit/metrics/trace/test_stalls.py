"""Turns of the event loop: their duration, and the code that blocks them."""

from __future__ import annotations

import asyncio
import logging
import threading
import time

import pytest

from kubeletpy.metrics.trace.stalls import LoopStall, StallLines, TurnLog
from kubeletpy.metrics.trace.watched_loop import WatchedLoop, watching


def test_the_longest_turn_and_the_stalls() -> None:
    turns = TurnLog()
    turns.end(1.0)
    assert turns.take_longest() == 0, "nothing was begun"
    turns.begin(10.0)
    assert turns.busy
    turns.record_stack(turns.turn, ("short",))
    turns.end(10.125)
    assert not turns.busy
    assert turns.turn == 1
    turns.begin(20.0)
    turns.end(20.0625)
    assert (turns.take_longest(), turns.take_longest()) == (0.125, 0)
    assert turns.take_stall() is None
    turns.begin(30.0)
    turns.end(31.0)
    assert turns.take_stall() == LoopStall(1.0, ()), "the stack of another turn is not reported"
    turns.begin(40.0)
    turns.record_stack(turns.turn, ("outer", "inner"))
    turns.end(42.0)
    assert turns.take_stall() == LoopStall(2.0, ("outer", "inner"))
    assert turns.take_stall() is None


@pytest.mark.parametrize(("seconds", "long"), [(0.25, True), (0.249, False)])
def test_how_long_a_stall_is(seconds: float, long: bool) -> None:
    turns = TurnLog()
    turns.begin(0.0)
    turns.end(seconds)
    assert turns.take_stall() == (LoopStall(seconds, ()) if long else None)


def test_a_line_a_minute_counts_the_stalls_that_had_none() -> None:
    lines = StallLines()
    assert [lines.add(now) for now in (5.0, 5.5, 64.9, 65.0, 125.0)] == [0, None, None, 2, 0]


def hold(turns: TurnLog, seconds: float) -> None:
    """Block for some time, and until the other thread, which may get no processor, has sampled."""
    end = time.monotonic() + seconds
    while time.monotonic() < end or turns.turn not in turns._seen:
        time.sleep(0.01)


def test_a_blocked_loop_is_logged_once_with_the_blocking_code(
    caplog: pytest.LogCaptureFixture,
) -> None:
    notified = threading.Event()

    async def main() -> float:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, WatchedLoop)
        await asyncio.to_thread(int)  # its thread may start slowly
        with watching(loop, notified.set):
            await asyncio.sleep(0)
            hold(loop.turns, 0.6)
            await asyncio.sleep(0)
            assert await asyncio.to_thread(notified.wait, 10)
        return loop.turns.take_longest()

    with caplog.at_level(logging.WARNING), asyncio.Runner(loop_factory=WatchedLoop) as runner:
        longest = runner.run(main())
    assert longest >= 0.6
    (record,) = caplog.records
    assert "the event loop was blocked" in record.message
    assert "hold (trace/test_stalls.py:" in record.__dict__["in"]
    assert record.__dict__["seconds"] >= 0.6
    assert all(thread.name != "loop-watch" for thread in threading.enumerate())
