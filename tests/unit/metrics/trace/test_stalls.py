"""Turns of the event loop: their duration, and the code that blocks them."""

from __future__ import annotations

import asyncio
import logging
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from kubeletpy.metrics.trace.stalls import LoopStall, StallLines, TurnLog, Waits
from kubeletpy.metrics.trace.watched_loop import WatchedLoop, waited_for_processor, watching


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


def test_waits_of_a_turn_count_from_the_check_before_it() -> None:
    waits = Waits(1.0)
    assert waits.during_turn(1.5, None) == 0.5
    # the check sees turn 7, which began after the one before; and again, and another turn after it
    assert waits.during_turn(2.0, 7) == 0.5
    assert waits.during_turn(2.25, 7) == 0.75
    assert waits.during_turn(3.0, 9) == 1.5
    assert waits.during_turn(3.5, None) == 1.25, "turn 9 began after the total was 2.25"
    assert waits.during_turn(3.75, None) == 0.25


def test_what_a_thread_waits_for_a_processor() -> None:
    """Two that share one processor: each has about half of it."""
    task = Path("/proc/thread-self").resolve()
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(allowed)})  # of this thread and the child
    try:
        before, begun = waited_for_processor(task), time.monotonic()
        with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as other:
            try:
                while waited_for_processor(task) - before < 0.1:
                    assert time.monotonic() - begun < 60
            finally:
                other.kill()
    finally:
        os.sched_setaffinity(0, allowed)
    assert waited_for_processor(task) - before < time.monotonic() - begun
    assert waited_for_processor(Path("/proc/self/task/0")) == 0, "a thread that has ended"


def hold(turns: TurnLog, seconds: float) -> None:
    """Block for some time, and until the other thread, which may get no processor, has sampled."""
    task = Path("/proc/thread-self").resolve()
    end = time.monotonic() + seconds - waited_for_processor(task)
    while time.monotonic() - waited_for_processor(task) < end or turns.turn not in turns._seen:
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
