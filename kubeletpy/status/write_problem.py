"""Why a pod's status has not reached the API yet.

Pure.
"""

from __future__ import annotations

from kubeletpy.structs import Struct


class WriteProblem(Struct, frozen=True):
    """Why a pod's status has not reached the API."""

    since: float
    """Unix seconds of the first failure in a row."""
    message: str
    count: int
