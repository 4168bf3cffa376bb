"""What a probe has last found, for people. Plain data; what containers say is cut, not cleaned.

Pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from kubeletpy.pods.probe_results import ProbeOutcome
from kubeletpy.probes.schedule import ProbeKind

KEPT_WORDS = 200
"""Characters kept of what a run said."""


class Finding(NamedTuple):
    """What one run found; no outcome: it could not be run."""

    outcome: ProbeOutcome | None
    words: str = ""


@dataclass(frozen=True, slots=True)
class ProbeReport:
    """One probe of one container. Times are seconds of the event loop."""

    container: str
    kind: ProbeKind
    settled: ProbeOutcome | None
    """What counts for the container; None: nothing yet."""
    last: Finding | None = None
    """The newest run, also one that did not count; None: none has ended."""
    at: float = 0.0
    """When it ended."""
    streak: int = 0
    """Runs in a row that found the same."""
    threshold: int = 1
    """Runs in a row that settle that."""
    next_at: float | None = None
