"""The last findings of a probe, for people. Plain data; output is truncated, not sanitized.

Pure.
"""

from __future__ import annotations

from typing import NamedTuple

from kubeletpy.base.structs import Struct
from kubeletpy.pods.runtime_status import ProbeOutcome
from kubeletpy.probes.schedule import ProbeKind

KEPT_WORDS = 200
"""Characters kept of a run's output."""


class ProbeFinding(NamedTuple):
    """The finding of one run; no outcome: it could not be run."""

    outcome: ProbeOutcome | None
    words: str = ""


class ProbeReport(Struct, frozen=True):
    """One probe of one container. Times are seconds of the event loop."""

    container: str
    kind: ProbeKind
    settled: ProbeOutcome | None
    """The settled result for the container; None: none yet."""
    last: ProbeFinding | None = None
    """The latest run, even if it did not count; None: none has ended."""
    at: float = 0.0
    """When it ended."""
    streak: int = 0
    """Consecutive runs with the same finding."""
    threshold: int = 1
    """Consecutive runs needed to settle it."""
    next_at: float | None = None
    killed_with: ProbeFinding | None = None
    """The run for which the previous container was killed; None: it was not."""
