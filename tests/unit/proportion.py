"""Whether work grows as its input does: for parsers of strangers' bytes."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable

SIZE = 12_000


def is_linear(work: Callable[[int], object], size: int = SIZE) -> bool:
    """Whether ``work(size)`` takes less than eight times as long for four times the size.

    What is quadratic takes sixteen times as long. Counted in time of the processor, the best of
    three, so that a busy machine changes nothing, without the collector of garbage: it looks at all
    that the process has whenever enough was made.
    """
    return _seconds(work, 4 * size) < 8 * _seconds(work, size)


def _seconds(work: Callable[[int], object], size: int) -> float:
    taken = []
    collecting = gc.isenabled()
    gc.disable()
    try:
        for _ in range(3):
            begun = time.thread_time()
            work(size)
            taken.append(time.thread_time() - begun)
    finally:
        if collecting:
            gc.enable()
    return min(taken)
