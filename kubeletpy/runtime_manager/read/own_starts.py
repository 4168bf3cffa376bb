"""The starts of containers that failed in this agent's own life.

Their ends count, whatever the runtime's record contains: only a start that an earlier agent, or a
lost connection, left behind is abandoned. Pure. Must never grow without bound.
"""

from __future__ import annotations

from collections import deque

from kubeletpy.remote.errors import Code
from kubeletpy.remote.generated import api_pb2 as cri
from kubeletpy.runtime_manager.read.abandoned_start import is_abandoned_start

MOST_FAILED = 1000
"""Ids of containers that failed to start, of which the newest are remembered."""


class OwnStarts:
    """Containers that this agent created and failed to start, and those it could not adopt."""

    def __init__(self) -> None:
        self._failed: deque[str] = deque(maxlen=MOST_FAILED)
        self._refused: deque[str] = deque(maxlen=MOST_FAILED)

    def failed(self, container_id: str, code: Code) -> None:
        """A container that this agent created did not start."""
        self._refused.append(container_id)
        if code not in (Code.UNAVAILABLE, Code.CANCELLED):  # the call was lost, not answered
            self._failed.append(container_id)

    def refused(self, container_id: str) -> None:
        """A container that an earlier agent created did not start: it is created anew."""
        self._refused.append(container_id)

    def has_failed(self, container_id: str) -> bool:
        """Whether the container counts as an attempt although it never ran."""
        return container_id in self._failed

    def may_adopt(self, container_id: str) -> bool:
        """Whether nobody in this life has tried to start the container."""
        return container_id not in self._refused

    def is_abandoned(self, status: cri.ContainerStatus) -> bool:
        """Whether a container ended because the agent that was starting it exited."""
        return is_abandoned_start(status) and status.id not in self._failed
