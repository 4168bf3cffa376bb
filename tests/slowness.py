"""How fast this machine is just now, for limits of processor time that hold on any machine."""

from __future__ import annotations

import json
import time

_YARDSTICK = json.dumps([{"name": f"v{number}", "of": {"key": number}} for number in range(20_000)])
_YARDSTICK_S = 0.012
"""CPU time of decoding it on the quiet machine that limits are meant for."""


def slowness() -> float:
    """How many times slower than that machine this one is just now, 1 at least.

    Other users of a core's caches and clock make the same work take more CPU time.
    """
    begun = time.thread_time()
    json.loads(_YARDSTICK)
    return max(1.0, (time.thread_time() - begun) / _YARDSTICK_S)
