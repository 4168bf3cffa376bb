"""Waiting for a process we started: a loop that polls until something answers.

Never for what the agent does: tests await its events (watches, condition changes) instead.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


class NotReadyError(TimeoutError):
    """A condition did not come true before its deadline; the text has the condition and reason."""


def wait_until(
    check: Callable[[], T],
    what: str,
    *,
    timeout: float = 30.0,
    interval: float = 0.02,
    retry: tuple[type[BaseException], ...] = (OSError,),
    give_up: Callable[[], str | None] = lambda: None,
) -> T:
    """Call `check` until it returns something true, and return that.

    `timeout` and `interval` in seconds. Errors of the types in `retry` count as "not yet" and are
    named in the error when time is up. `give_up` may return the reason why waiting is pointless
    (the process exited). Raises NotReadyError.
    """
    deadline = time.monotonic() + timeout
    while True:
        cause = "no answer yet"
        try:
            value = check()
            if value:
                return value
        except retry as error:
            cause = f"{type(error).__name__}: {error}"
        reason = give_up()
        if reason is not None:
            raise NotReadyError(f"{what}: {reason} (last: {cause})")
        if time.monotonic() >= deadline:
            raise NotReadyError(f"{what}: not within {timeout:g} s (last: {cause})")
        time.sleep(interval)
