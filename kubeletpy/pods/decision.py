"""What the agent has decided about a pod and why, for people."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Decision:
    """One thing the agent decided about a pod, for `explain`: what and why."""

    what: str
    why: str
    failed: bool = False
    """It is no decision but a failure: explain lists those apart."""
