"""When the runtime sent an event, on the clock that orders what the agent observed.

Pure. An event carries wall time, which may have been set between its creation and its arrival, so
its age is only believed where it is plausible. Must never return a time after ``steady``: a status
read later would be refused as older.
"""

from __future__ import annotations

PLAUSIBLE_EVENT_AGE = 7 * 24 * 3600 * 10**9
PLAUSIBLE_EVENT_LEAD = 10**9
"""Nanoseconds that the time of a runtime's event may be behind or ahead of ours; beyond that its
time is not believed, and the runtime is queried. An event from further ahead was sent before the
wall clock was set back."""


def event_observed_at(created_at: int, wall: int, steady: int) -> int | None:
    """Convert the wall time of an event to the event loop's clock; all in nanoseconds.

    None: the time of the event is nonsense, or the wall clock was set back after it was sent. The
    runtime must then be queried.

    >>> event_observed_at(created_at=1_000, wall=1_200, steady=500)
    300
    """
    age = wall - created_at
    if not -PLAUSIBLE_EVENT_LEAD <= age < PLAUSIBLE_EVENT_AGE:
        return None
    return steady - max(age, 0)
