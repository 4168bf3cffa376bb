"""Stacks of a thread, read by another thread."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator, Mapping

import pytest

from kubeletpy.metrics.trace.watched_loop import reading_frames, stack_of


@pytest.fixture
def collected_by() -> Iterator[list[int]]:
    """The thread of each garbage collection; one starts whenever something is allocated."""
    threads: list[int] = []

    def note(phase: str, info: Mapping[str, int]) -> None:
        if phase == "start":
            threads.append(threading.get_ident())

    before = gc.get_threshold()
    gc.callbacks.append(note)
    gc.set_threshold(1)
    try:
        yield threads
    finally:
        gc.set_threshold(*before)
        gc.callbacks.remove(note)


def deeper(depth: int, then: threading.Event, until: threading.Event) -> None:
    if depth:
        deeper(depth - 1, then, until)
    else:
        then.set()
        until.wait(10)


def test_no_collection_starts_while_the_frames_of_a_thread_are_read(
    collected_by: list[int],
) -> None:
    ready, over = threading.Event(), threading.Event()
    other = threading.Thread(target=deeper, args=(200, ready, over))
    other.start()
    ready.wait(10)
    assert other.ident is not None
    try:
        del collected_by[:]
        stack = stack_of(other.ident)
        while_read = list(collected_by)
    finally:
        over.set()
        other.join()
    assert any("deeper" in each for each in stack)
    assert len(while_read) <= 20, "otherwise each of the 200 frames starts one"


def test_garbage_collection_is_restored_afterwards() -> None:
    with reading_frames():
        assert not gc.isenabled()
    assert gc.isenabled()
    gc.disable()
    try:
        with reading_frames():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
