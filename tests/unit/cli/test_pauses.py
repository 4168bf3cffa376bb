"""Collections of garbage look at little."""

from __future__ import annotations

import gc
import sys
import weakref
from collections.abc import Iterator

import pytest

from kubeletpy.cli.pauses import EVERYTHING_EVERY_S, SWITCH_S, Collections, importing


class Knot:
    """Refers to itself."""

    def __init__(self) -> None:
        self.itself = self


class Time:
    def __init__(self) -> None:
        self.seconds = 5.0

    def now(self) -> float:
        return self.seconds


@pytest.fixture
def clock() -> Iterator[Time]:
    clock = Time()
    collections = Collections(clock.now)
    collections.begin()
    yield clock
    gc.callbacks.remove(collections.collected)
    gc.unfreeze()


def test_garbage_since_the_last_collection_goes(clock: Time) -> None:
    gc.collect()
    gone = weakref.ref(Knot())
    gc.collect()
    assert gone() is None


@pytest.mark.parametrize(
    ("generation", "later", "looked_at"),
    [
        (2, 0.0, False),
        (2, EVERYTHING_EVERY_S - 1, False),
        (2, EVERYTHING_EVERY_S, True),
        (1, EVERYTHING_EVERY_S, False),
    ],
)
def test_what_was_alive_is_looked_at_once_an_hour(
    clock: Time, generation: int, later: float, looked_at: bool
) -> None:
    knot = Knot()
    gone = weakref.ref(knot)
    gc.collect()
    del knot
    clock.seconds += later
    gc.collect(generation)
    gc.collect()
    assert (gone() is None) is looked_at


def test_then_it_is_left_alone_again(clock: Time) -> None:
    gc.collect()
    clock.seconds += EVERYTHING_EVERY_S
    gc.collect()
    assert gc.get_freeze_count() == 0
    gc.collect()
    assert gc.get_freeze_count() > 1000


def test_younger_collections_exempt_nothing(clock: Time) -> None:
    gc.collect()
    before = gc.get_freeze_count()
    kept = [Knot() for _ in range(100)]
    gc.collect(1)
    assert gc.get_freeze_count() <= before
    del kept


def test_nothing_is_collected_while_modules_are_imported() -> None:
    before, callbacks = sys.getswitchinterval(), list(gc.callbacks)
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
        sys.setswitchinterval(before)
