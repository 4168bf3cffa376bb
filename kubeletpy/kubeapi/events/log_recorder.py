"""Events of an agent without an API go to the log."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from kubeletpy.base.api import types as api
from kubeletpy.kubeapi.events.reasons import EventReason
from kubeletpy.kubeapi.events.recorder import WARNING, EventType

log = logging.getLogger(__name__)


class LogRecorder:
    """An :class:`~kubeletpy.kubeapi.events.recorder.EventRecorder` that logs."""

    def event(
        self,
        involved: api.ObjectReference,
        event_type: EventType,
        reason: EventReason,
        message: str,
        *,
        annotations: Mapping[str, str] | None = None,
    ) -> None:
        """Log one event; only warnings are shown by default."""
        level = logging.WARNING if event_type == WARNING else logging.DEBUG
        name = f"{involved.get('namespace', '')}/{involved.get('name', '')}".lstrip("/")
        log.log(
            level, message, extra={"reason": reason, "kind": involved.get("kind"), "object": name}
        )
