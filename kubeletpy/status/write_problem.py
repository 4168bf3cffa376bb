"""Why a pod's status has not reached the API yet.

Pure.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class WriteProblem:
    """Why a pod's status has not reached the API."""

    since: float
    """Unix seconds of the first failure in a row."""
    message: str
    count: int
