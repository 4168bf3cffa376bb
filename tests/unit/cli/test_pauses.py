"""Garbage collections examine few objects."""

from __future__ import annotations

import gc
import sys
import weakref
from collections.abc import Iterator

import pytest

from kubeletpy.cli.process import EVERYTHING_EVERY_S, FREEZE_AT, SWITCH_S, Collections, importing
from tests.kit.clocks import SetClock
from tests.kit.costs import set_aside


class Knot:
    """An object that refers to itself."""

    def __init__(self) -> None:
        self.itself = self


@pytest.fixture
def clock() -> Iterator[SetClock]:
    clock = SetClock(5.0)
    collections = Collections(clock.now)
    collections.begin()
    yield clock
    gc.callbacks.remove(collections.collected)
    gc.unfreeze()
    set_aside()


def test_garbage_since_the_last_collection_is_freed(clock: SetClock) -> None:
    gc.collect()
    removed = weakref.ref(Knot())
    gc.collect()
    assert removed() is None


@pytest.mark.parametrize(
    ("generation", "later", "examined"),
    [
        (2, 0.0, False),
        (2, EVERYTHING_EVERY_S - 1, False),
        (2, EVERYTHING_EVERY_S, True),
        (1, EVERYTHING_EVERY_S, False),
    ],
)
def test_frozen_cycles_are_found_once_an_hour(
    clock: SetClock, generation: int, later: float, examined: bool
) -> None:
    many = [Knot() for _ in range(FREEZE_AT)]
    removed = weakref.ref(many[0])
    gc.collect()
    del many
    clock.time += later
    gc.collect(generation)
    gc.collect()
    assert (removed() is None) is examined


def test_few_objects_are_not_frozen_and_go_with_the_next_collection(clock: SetClock) -> None:
    frozen = gc.get_freeze_count()
    for _ in range(10):  # connections open, survive a collection, and close
        few = [Knot() for _ in range(FREEZE_AT // 8)]
        removed = weakref.ref(few[0])
        gc.collect()
        del few
        gc.collect()
        assert removed() is None
    assert gc.get_freeze_count() <= frozen


def test_many_objects_are_frozen_again_after_everything_was_examined(clock: SetClock) -> None:
    many = [Knot() for _ in range(FREEZE_AT)]
    gc.collect()
    clock.time += EVERYTHING_EVERY_S
    gc.collect()
    assert gc.get_freeze_count() == 0
    gc.collect()
    assert gc.get_freeze_count() > len(many)


def test_younger_collections_freeze_nothing(clock: SetClock) -> None:
    gc.collect()
    before = gc.get_freeze_count()
    kept = [Knot() for _ in range(FREEZE_AT)]
    gc.collect(1)
    assert gc.get_freeze_count() <= before
    del kept


def test_nothing_is_collected_while_modules_are_imported() -> None:
    before, callbacks = sys.getswitchinterval(), list(gc.callbacks)
    gc.unfreeze()
    try:
        with pytest.raises(ImportError), importing():
            assert not gc.isenabled()
            raise ImportError
        assert gc.isenabled()
        assert gc.get_freeze_count() > 0
        assert len(gc.callbacks) == len(callbacks) + 1
        assert sys.getswitchinterval() == pytest.approx(SWITCH_S)
    finally:
        gc.callbacks[:] = callbacks
        gc.unfreeze()
        set_aside()
        sys.setswitchinterval(before)
