"""The containers of a pod and how their runs ended, from its status and the runtime's records.

Pure. External text (messages, reasons) is truncated and put on one line.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kubeletpy.observe.explain.facts import PodFacts
from kubeletpy.observe.explain.model import ContainerStateKey, ContainerView, Exit, Role
from kubeletpy.observe.explain.moments import api_time
from kubeletpy.observe.explain.texts import one_line
from kubeletpy.pods.pod import ContainerKind, is_sidecar
from kubeletpy.pods.runtime_status import ContainerState, ContainerStatus
from kubeletpy.pods.start_errors import shown_reason

MAX_EXITS = 20
_FIELDS = {
    ContainerKind.INIT: "initContainerStatuses",
    ContainerKind.REGULAR: "containerStatuses",
    ContainerKind.EPHEMERAL: "ephemeralContainerStatuses",
}


def containers(facts: PodFacts) -> tuple[ContainerView, ...]:
    """Every container in the pod's spec: init containers, containers, ephemeral ones."""
    if facts.pod is None:
        return ()
    views = []
    for kind, container in facts.pod.all_containers():
        entries = _entries(facts, _FIELDS[kind])
        entry = next((one for one in entries if one.get("name") == container["name"]), {})
        role = {ContainerKind.REGULAR: Role.CONTAINER, ContainerKind.EPHEMERAL: Role.EPHEMERAL}.get(
            kind, Role.SIDECAR if is_sidecar(container) else Role.INIT
        )
        views.append(_view(entry, container["name"], role, container.get("image") or ""))
    return tuple(views)


def find_view(facts: PodFacts, name: str) -> ContainerView | None:
    """The container with that name; None: the pod has none."""
    return next((view for view in containers(facts) if view.name == name), None)


def ephemeral(views: Iterable[ContainerView]) -> frozenset[str]:
    """The names of those that were added for debugging."""
    return frozenset(view.name for view in views if view.kind is Role.EPHEMERAL)


def exits(facts: PodFacts) -> tuple[Exit, ...]:
    """How containers ended, newest first: from the runtime's records, else from the status."""
    found = []
    seen: set[str] = set()
    for record in facts.runtime.containers if facts.runtime is not None else ():
        if record.state is not ContainerState.EXITED:
            continue
        seen.add(record.id)
        found.append(
            Exit(
                record.name,
                record.restart_count,
                record.exit_code,
                record.reason,
                one_line(_message(facts, record)),
                record.started_at / 1e9 if record.started_at > 0 else None,
                record.finished_at / 1e9 if record.finished_at > 0 else None,
            )
        )
    for field in _FIELDS.values():
        for entry in _entries(facts, field):
            for name in ("state", "lastState"):
                ended = (entry.get(name) or {}).get("terminated")
                if ended and _bare(ended.get("containerID")) not in seen:
                    found.append(_exit(entry.get("name", ""), ended))
    found.sort(key=lambda one: one.finished_at or 0.0, reverse=True)
    return tuple(found[:MAX_EXITS])


def _message(facts: PodFacts, record: ContainerStatus) -> str:
    found = facts.pod.find_container(record.name) if facts.pod is not None else None
    if record.started_at > 0 or found is None:
        return record.message
    return shown_reason(record.message, found[1])


def last_exit(facts: PodFacts, name: str) -> Exit | None:
    """How a container's latest finished run ended."""
    return next((one for one in exits(facts) if one.container == name), None)


def _entries(facts: PodFacts, field: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = facts.status.get(field) or []  # type: ignore[assignment]
    return found


def _view(entry: dict[str, Any], name: str, kind: Role, image: str) -> ContainerView:
    states = entry.get("state") or {}
    state = next((each for each in ContainerStateKey if each in states), ContainerStateKey.WAITING)
    detail = states.get(state) or {}
    since = (
        detail.get("startedAt") if state is ContainerStateKey.RUNNING else detail.get("finishedAt")
    )
    reason = detail.get("reason") or ""
    code = None
    if state is ContainerStateKey.TERMINATED:
        code = int(detail.get("exitCode") or 0)
        reason = f"{reason} ({code})".strip()
    return ContainerView(
        name,
        kind,
        image,
        state,
        reason,
        one_line(detail.get("message") or ""),
        api_time(since),
        bool(entry.get("ready")),
        int(entry.get("restartCount") or 0),
        _bare(entry.get("containerID")),
        code,
    )


def _exit(name: str, ended: dict[str, Any]) -> Exit:
    return Exit(
        name,
        None,
        int(ended.get("exitCode") or 0),
        ended.get("reason") or "",
        one_line(ended.get("message") or ""),
        api_time(ended.get("startedAt")),
        api_time(ended.get("finishedAt")),
    )


def _bare(container_id: str | None) -> str:
    return (container_id or "").rpartition("://")[2]
