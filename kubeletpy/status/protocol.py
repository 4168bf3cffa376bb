"""The status manager as the pod workers and housekeeping see it. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from kubeletpy.base.api import types as api
from kubeletpy.pods.pod import Pod


class StatusManager(Protocol):
    """Keeps the newest status of each pod and writes it to the API: one write in flight per pod."""

    def get_status(self, uid: str) -> api.PodStatus | None:
        """The newest status kept for a pod (static pods: under their own uid).

        For a static pod it is its mirror's, if that was seen only after the kept one was computed.
        """
        ...

    def is_reported(self, uid: str) -> bool:
        """Whether the API has the newest status of a pod; also true for a pod without one."""
        ...

    def set_status(self, pod: Pod, status: api.PodStatus, *, containers_may_run: bool) -> None:
        """Keep a new status and have it written. Never blocks.

        ``containers_may_run``: while true, a terminal phase is kept but not yet shown to the API.
        """
        ...

    def finish(self, pod: Pod) -> None:
        """The worker is done with the pod: settle what is still open in its status, write it and,
        if the pod was deleted, delete it from the API."""
        ...

    def forget_except(self, uids: Iterable[str]) -> None:
        """Drop the statuses of pods that were removed."""
        ...
