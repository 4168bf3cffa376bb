"""Events that a server sends for a list that comes over a watch."""

from __future__ import annotations

from collections.abc import Iterable

from kubeletpy.base.api.types import JSON
from kubeletpy.kubeapi.protocol import WatchEvent
from kubeletpy.kubeapi.watch_state import INITIAL_EVENTS_END


def end_of_list(version: str) -> WatchEvent:
    """The bookmark after the last object."""
    annotations = {INITIAL_EVENTS_END: "true"}
    return WatchEvent(
        "BOOKMARK", {"metadata": {"resourceVersion": version, "annotations": annotations}}
    )


def streamed(objects: Iterable[JSON], version: str) -> list[WatchEvent]:
    """All events of a list."""
    return [*(WatchEvent("ADDED", each) for each in objects), end_of_list(version)]
