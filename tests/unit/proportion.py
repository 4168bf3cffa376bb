"""Whether work grows in proportion to its input: for parsers of untrusted bytes."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable

SIZE = 12_000


FEWEST, MOST = 3, 20
"""How often both sizes are measured: on a busy machine one measurement is longer, never shorter."""


def is_linear(work: Callable[[int], object], size: int = SIZE) -> bool:
    """Whether ``work(size)`` takes less than eight times as long for four times the size.

    Quadratic work takes sixteen times as long. The shortest of several measurements in processor
    time counts. Other processes share caches and the core's speed with this one, so measurements
    continue until both minima settle the question. The garbage collector, which visits all objects
    of the process, is off meanwhile.
    """
    collecting = gc.isenabled()
    gc.disable()
    try:
        small = large = float("inf")
        for round_ in range(MOST):
            small = min(small, _seconds(work, size))
            large = min(large, _seconds(work, 4 * size))
            if round_ + 1 >= FEWEST and large < 8 * small:
                return True
        return False
    finally:
        if collecting:
            gc.enable()


def _seconds(work: Callable[[int], object], size: int) -> float:
    begun = time.thread_time()
    work(size)
    return time.thread_time() - begun
