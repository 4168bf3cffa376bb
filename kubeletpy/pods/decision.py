"""The agent's decisions about a pod and their reasons, for people."""

from __future__ import annotations

from enum import StrEnum

from kubeletpy.base.structs import Struct


class KillReason(StrEnum):
    """Why one container is killed; the probe reasons select the probe's own grace period."""

    DEFINITION_CHANGED = "DefinitionChanged"
    LIVENESS_PROBE = "LivenessProbe"
    STARTUP_PROBE = "StartupProbe"
    UNKNOWN_STATE = "Unknown"
    RESIZE = "Resize"


class Decision(Struct, frozen=True):
    """One thing the agent decided about a pod, for `explain`: what and why.

    The text is for people; code reads the other fields.

    Attributes:
        failed: it is a failure rather than a decision: explain lists failures separately.
        killed: the name of the container that is killed, and ``kill_reason`` for what.
        ends_pod: the pod is terminated.
        restarts: a container that has ended is started again.
        starts: the name of the container that is started.
    """

    what: str
    why: str
    failed: bool = False
    killed: str = ""
    kill_reason: KillReason | None = None
    ends_pod: bool = False
    restarts: bool = False
    starts: str = ""
