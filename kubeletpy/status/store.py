"""Prepares a pod status for storing: times, limits, order, and what may not change.

Pure: time is an argument. Must never send anything.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from kubeletpy.base.api import types as api
from kubeletpy.base.api.times import format_time
from kubeletpy.pods.pod import DISRUPTION_TARGET, TERMINAL_PHASES, Pod, is_sidecar
from kubeletpy.pods.runtime_status import could_restart_all, restart_after_exit
from kubeletpy.status import conditions

MESSAGE_BYTES_PER_POD = 12288
"""All termination messages of a pod combined, in bytes; each container gets an equal share."""

CONTAINER_LISTS: Final = (
    "initContainerStatuses",
    "containerStatuses",
    "ephemeralContainerStatuses",
)
"""Fields of a pod status with a status for each container of a kind."""

FOREIGN_FIELDS = (
    "resourceClaimStatuses",
    "extendedResourceClaimStatus",
    "nodeAllocatableResourceClaimStatuses",
)
"""Fields of a pod status that others write: kept as the API has them."""


def prepare(pod: Pod, status: api.PodStatus, old: api.PodStatus, now: float) -> api.PodStatus:
    """The status as stored: startTime, transition times, truncated messages.

    Args:
        old: what was stored (or what the API showed) before.
        now: Unix seconds.
    """
    kept: api.PodStatus = {**status}
    if old.get("startTime"):
        kept["startTime"] = old["startTime"]
    elif not kept.get("startTime"):
        kept["startTime"] = format_time(now)
    kept["conditions"] = [
        _with_transition(condition, conditions.find(old.get("conditions"), condition["type"]), now)
        for condition in kept.get("conditions") or ()
    ]
    _cut_messages(pod, kept)
    return kept


def mirrored(mirror: Pod) -> api.PodStatus:
    """The status that the first one of a static pod follows.

    Its mirror may show that the pod ended under an earlier agent: in a shutdown of the node, or by
    eviction. Such an end is not kept, and the pod runs again, as with the kubelet, whose first
    status of a static pod comes from the runtime alone. One whose containers may not restart ends
    again by their states. Source: docs/reference/behaviour.md, e2.
    """
    shown = mirror.status
    if shown.get("phase") not in TERMINAL_PHASES:
        return shown
    kept: api.PodStatus = {**shown}
    kept.pop("phase")
    kept.pop("reason", None)
    kept.pop("message", None)
    return kept


def _with_transition(
    condition: api.PodCondition, before: api.PodCondition | None, now: float
) -> api.PodCondition:
    timed_already = condition["type"] not in conditions.OWNED - conditions.RESIZE
    if condition.get("lastTransitionTime") and timed_already:
        return condition
    timed: api.PodCondition = {**condition}
    if (
        before is not None
        and before.get("status") == condition.get("status")
        and before.get("lastTransitionTime")
    ):
        timed["lastTransitionTime"] = before["lastTransitionTime"]
    else:
        timed["lastTransitionTime"] = format_time(now)
    return timed


def _cut_messages(pod: Pod, status: api.PodStatus) -> None:
    count = sum(1 for _ in pod.all_containers())
    limit = MESSAGE_BYTES_PER_POD // max(count, 1)
    for field in CONTAINER_LISTS:
        entries: list[api.ContainerStatus] = status.get(field) or []  # type: ignore[assignment]
        if entries:
            status[field] = [_cut_entry(entry, limit) for entry in entries]


def _cut_entry(entry: api.ContainerStatus, limit: int) -> api.ContainerStatus:
    shortened: api.ContainerStatus = {**entry}
    for name in ("state", "lastState"):
        state: api.ContainerState = entry.get(name) or {}  # type: ignore[assignment]
        ended = state.get("terminated")
        if ended is not None and ended.get("message"):
            message = ended["message"].encode()[:limit].decode(errors="ignore")
            shortened[name] = {"terminated": {**ended, "message": message}}
    return shortened


def same(first: api.PodStatus, second: api.PodStatus) -> bool:
    """Whether two statuses are equal as far as the agent is concerned."""
    return _ours(first) == _ours(second)


def _ours(status: api.PodStatus) -> dict[str, object]:
    rest = {
        key: value
        for key, value in status.items()
        if key not in FOREIGN_FIELDS and value not in (None, "", [], {})
    }
    rest["conditions"] = {
        condition["type"]: (
            condition.get("status"),
            condition.get("reason") or "",
            condition.get("message") or "",
            condition.get("observedGeneration")
            if condition.get("type") in conditions.RESIZE
            else None,
        )
        for condition in status.get("conditions") or ()
        if condition.get("type") in conditions.OWNED or condition.get("type") == DISRUPTION_TARGET
    }
    return rest


def illegal_transition(pod: Pod, old: api.PodStatus, new: api.PodStatus) -> str | None:
    """Why a status may not follow another: a container that may not restart is running again."""
    if pod.restart_policy == "Always" or could_restart_all(pod):
        return None
    for field, containers in (
        ("containerStatuses", pod.containers),
        ("initContainerStatuses", pod.init_containers),
    ):
        specs = {container["name"]: container for container in containers}
        after = {entry["name"]: entry for entry in _entries(new, field)}
        for entry in _entries(old, field):
            ended = (entry.get("state") or {}).get("terminated")
            container = specs.get(entry["name"])
            if ended is None or container is None or is_sidecar(container):
                continue
            exit_code = ended.get("exitCode") or 0
            if restart_after_exit(pod.restart_policy, container, exit_code)[0]:
                continue
            following = after.get(entry["name"])
            if following is None or "terminated" in (following.get("state") or {}):
                continue
            # a higher count: another container was created because its definition has changed
            if following.get("restartCount", 0) <= entry.get("restartCount", 0):
                return f"container {entry['name']} had terminated for good and came back"
    return None


def _entries(status: api.PodStatus, field: str) -> Iterable[api.ContainerStatus]:
    return status.get(field) or ()  # type: ignore[return-value]


def merge_for_api(
    in_api: api.PodStatus, kept: api.PodStatus, *, containers_may_run: bool
) -> api.PodStatus:
    """The status for the API: ours over theirs (docs/reference/behaviour.md, f3).

    While containers may run, a terminal phase is not shown: others would take the pod's resources
    (and name) for free.
    """
    shown: api.PodStatus = {**kept}
    going_terminal = (
        kept.get("phase") in TERMINAL_PHASES and in_api.get("phase") not in TERMINAL_PHASES
    )
    hidden = ("phase", "reason", "message") if going_terminal and containers_may_run else ()
    for name in (*hidden, *FOREIGN_FIELDS):
        shown.pop(name, None)  # type: ignore[misc]
        if in_api.get(name):
            shown[name] = in_api[name]  # type: ignore[literal-required]
    shown["conditions"] = _merge_conditions(
        in_api, kept, take_disruption=going_terminal and not containers_may_run
    )
    if shown.get("phase") in TERMINAL_PHASES:
        _not_ready(shown)
    return shown


def _merge_conditions(
    in_api: api.PodStatus, kept: api.PodStatus, *, take_disruption: bool
) -> list[api.PodCondition]:
    ours = conditions.OWNED | ({DISRUPTION_TARGET} if take_disruption else set())
    theirs = [each for each in in_api.get("conditions") or () if each.get("type") not in ours]
    return theirs + [each for each in kept.get("conditions") or () if each["type"] in ours]


def _not_ready(status: api.PodStatus) -> None:
    reason = "PodCompleted" if status.get("phase") == "Succeeded" else "PodFailed"
    for index, condition in enumerate(status["conditions"]):
        if condition["type"] in ("Ready", "ContainersReady"):
            ended: api.PodCondition = {**condition, "status": "False", "reason": reason}
            ended.pop("message", None)
            status["conditions"][index] = ended
