"""Settled probe results of containers, as read by compute-actions and status.

Must never depend on how a container is probed.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from kubeletpy.base.structs import Struct, field


class ProbeOutcome(StrEnum):
    """The last settled result of a probe."""

    SUCCESS = "success"
    FAILURE = "failure"
    UNKNOWN = "unknown"


class ProbeResults(Struct, frozen=True):
    """Settled probe results by container id, as compute-actions reads them. Absent: no result."""

    liveness: Mapping[str, ProbeOutcome] = field(default_factory=dict)
    startup: Mapping[str, ProbeOutcome] = field(default_factory=dict)
    readiness: Mapping[str, ProbeOutcome] = field(default_factory=dict)
