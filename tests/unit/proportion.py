"""Whether work grows as its input does: for parsers of strangers' bytes."""

from __future__ import annotations

import time
from collections.abc import Callable

SIZE = 12_000


def is_linear(work: Callable[[int], object], size: int = SIZE) -> bool:
    """Whether ``work(size)`` takes less than eight times as long for four times the size.

    What is quadratic takes sixteen times as long. Counted in time of the processor, the best of
    three, so that a busy machine changes nothing.
    """
    return _seconds(work, 4 * size) < 8 * _seconds(work, size)


def _seconds(work: Callable[[int], object], size: int) -> float:
    taken = []
    for _ in range(3):
        begun = time.process_time()
        work(size)
        taken.append(time.process_time() - begun)
    return min(taken)
