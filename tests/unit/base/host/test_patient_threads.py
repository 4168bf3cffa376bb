"""Dedicated threads under the event loop and under virtual time."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from kubeletpy.base.host.patient_threads import PatientThreads, SteadyThreads
from tests.kit.virtual_time import on_virtual_time


async def _time_of_slow_call(threads: PatientThreads) -> float:
    loop = asyncio.get_running_loop()
    requested = asyncio.create_task(threads.run(time.sleep, 0.2))
    await asyncio.wait([requested], timeout=60.0)
    return loop.time()


def test_virtual_time_stops_during_a_call() -> None:
    @on_virtual_time
    async def run() -> None:
        begun = asyncio.get_running_loop().time()
        assert await _time_of_slow_call(PatientThreads()) - begun < 60.0

    run()


def test_no_thread_can_be_started() -> None:
    threads = PatientThreads(1)
    made: list[int] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(threading.Thread, "start", _refuse)
        with pytest.raises(OSError, match="no thread can be made"):
            threads.submit(made.append, 1)
    threads.submit(made.append, 2).result(10)
    assert made == [2], "what was refused is not done later"


def test_work_without_a_new_thread_waits_for_an_existing_one() -> None:
    threads, go_on = PatientThreads(2), threading.Event()
    first = threads.submit(go_on.wait, 10)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(threading.Thread, "start", _refuse)
        second = threads.submit(int, "7")
    go_on.set()
    assert (first.result(10), second.result(10)) == (True, 7)


def test_the_threads_of_the_loop_do_what_they_took() -> None:
    threads, go_on = SteadyThreads(), threading.Event()
    first = threads.submit(go_on.wait, 10)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(threading.Thread, "start", _refuse)
        second = threads.submit(int, "7")
    assert not second.done()
    go_on.set()
    assert (first.result(10), second.result(10)) == (True, 7)
    threads.shutdown()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(threading.Thread, "start", _refuse)
        with pytest.raises(RuntimeError):
            SteadyThreads()


def _refuse(_thread: threading.Thread) -> None:
    raise RuntimeError("can't start new thread")
