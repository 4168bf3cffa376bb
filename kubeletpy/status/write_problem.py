"""Why a pod's status has not reached the API yet, and what of it the API does not show.

Pure.
"""

from __future__ import annotations

from collections.abc import Iterator

from kubeletpy.base.api import types as api
from kubeletpy.base.structs import Struct
from kubeletpy.status.conditions import is_ready

LATE_S = 10.0
"""Seconds without an answer after which a write is a problem although it has not failed."""
NO_ANSWER = "the API server has not answered yet"
NO_MIRROR = "the API has no mirror pod of this static pod yet"
MAX_PARTS = 5


class WriteProblem(Struct, frozen=True):
    """Why a pod's status has not reached the API."""

    since: float
    """Unix seconds of the first change that the API does not show."""
    message: str
    count: int
    """Failed tries in a row."""
    unreported: str = ""
    """The changes that the API does not show, in words; empty: nothing that matters to people."""


def unreported(in_api: api.PodStatus, newest: api.PodStatus) -> str:
    """The parts of the newest status that the API's lacks."""
    parts = list(_differences(in_api, newest))
    more = f" and {len(parts) - MAX_PARTS} more" if len(parts) > MAX_PARTS else ""
    return ", ".join(parts[:MAX_PARTS]) + more


def _differences(old: api.PodStatus, new: api.PodStatus) -> Iterator[str]:
    phase, shown = new.get("phase") or "Pending", old.get("phase") or "Pending"
    if phase != shown:
        yield f"phase {phase} instead of {shown}"
    if (ready := is_ready(new)) is not is_ready(old):
        yield "Ready" if ready else "not Ready"
    before = {(field, each.get("name")): each for field, each in _entries(old)}
    for field, each in _entries(new):
        known = before.get((field, each.get("name")))
        if known is None or _state(known) != _state(each):
            yield f"container {each.get('name')} {_state(each)}"
        elif known.get("restartCount") != each.get("restartCount"):
            yield f"container {each.get('name')} restarted {each.get('restartCount') or 0} times"


def _entries(status: api.PodStatus) -> Iterator[tuple[str, api.ContainerStatus]]:
    for each in status.get("initContainerStatuses") or ():
        yield "init", each
    for each in status.get("containerStatuses") or ():
        yield "regular", each


def _state(entry: api.ContainerStatus) -> str:
    state = entry.get("state") or {}
    if (ended := state.get("terminated")) is not None:
        return f"ended with exit code {ended.get('exitCode') or 0}"
    return "running" if "running" in state else "waiting"
