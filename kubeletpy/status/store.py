"""The form in which a pod status is stored and sent: times, limits, order, and the patch. Pure.

Time is an argument. The protocol of the status manager stands last.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from kubeletpy.base.api import types as api
from kubeletpy.base.api.pod_fields import fields_of
from kubeletpy.base.api.times import format_time
from kubeletpy.base.api.types import JSON
from kubeletpy.base.structs import Struct
from kubeletpy.pods.pod import DISRUPTION_TARGET, TERMINAL_PHASES, Pod, is_sidecar
from kubeletpy.pods.runtime_status import could_restart_all, restart_after_exit
from kubeletpy.status import conditions
from kubeletpy.status.conditions import OWNED, RESIZE, is_ready

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
    reported = mirror.status
    if reported.get("phase") not in TERMINAL_PHASES:
        return reported
    kept: api.PodStatus = {**reported}
    kept.pop("phase")
    kept.pop("reason", None)
    kept.pop("message", None)
    return kept


def _with_transition(
    condition: api.PodCondition, before: api.PodCondition | None, now: float
) -> api.PodCondition:
    timed_already = condition["type"] not in OWNED - RESIZE
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
    for list_name in CONTAINER_LISTS:
        entries: list[api.ContainerStatus] = status.get(list_name) or []  # type: ignore[assignment]
        if entries:
            status[list_name] = [_cut_entry(entry, limit) for entry in entries]


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
            condition.get("observedGeneration") if condition.get("type") in RESIZE else None,
        )
        for condition in status.get("conditions") or ()
        if condition.get("type") in OWNED or condition.get("type") == DISRUPTION_TARGET
    }
    return rest


def illegal_transition(pod: Pod, old: api.PodStatus, new: api.PodStatus) -> str | None:
    """Why a status may not follow another: a container that may not restart is running again."""
    if pod.restart_policy == "Always" or could_restart_all(pod):
        return None
    for list_name, containers in (
        ("containerStatuses", pod.containers),
        ("initContainerStatuses", pod.init_containers),
    ):
        specs = {container["name"]: container for container in containers}
        after = {entry["name"]: entry for entry in _entries(new, list_name)}
        for entry in _entries(old, list_name):
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
    reported: api.PodStatus = {**kept}
    going_terminal = (
        kept.get("phase") in TERMINAL_PHASES and in_api.get("phase") not in TERMINAL_PHASES
    )
    hidden = ("phase", "reason", "message") if going_terminal and containers_may_run else ()
    for name in (*hidden, *FOREIGN_FIELDS):
        reported.pop(name, None)  # type: ignore[misc]
        if in_api.get(name):
            reported[name] = in_api[name]  # type: ignore[literal-required]
    reported["conditions"] = _merge_conditions(
        in_api, kept, take_disruption=going_terminal and not containers_may_run
    )
    if reported.get("phase") in TERMINAL_PHASES:
        _not_ready(reported)
    return reported


def _merge_conditions(
    in_api: api.PodStatus, kept: api.PodStatus, *, take_disruption: bool
) -> list[api.PodCondition]:
    ours = OWNED | ({DISRUPTION_TARGET} if take_disruption else set())
    theirs = [each for each in in_api.get("conditions") or () if each.get("type") not in ours]
    return theirs + [each for each in kept.get("conditions") or () if each["type"] in ours]


def _not_ready(status: api.PodStatus) -> None:
    reason = "PodCompleted" if status.get("phase") == "Succeeded" else "PodFailed"
    for index, condition in enumerate(status["conditions"]):
        if condition["type"] in ("Ready", "ContainersReady"):
            ended: api.PodCondition = {**condition, "status": "False", "reason": reason}
            ended.pop("message", None)
            status["conditions"][index] = ended


# -- the patch -------------------------------------------------------------------------------

MERGED_BY_IP = ("podIPs", "hostIPs")
"""Lists that a strategic merge would append to; replaced as a whole instead."""
_WITHDRAWN = fields_of("PodStatus").keys() - {"conditions", *FOREIGN_FIELDS}
"""Fields that are removed from the API when the agent has no value. Unknown ones are others'."""


def status_patch(uid: str, in_api: api.PodStatus, reported: api.PodStatus) -> JSON | None:
    """The strategic merge patch, with the uid as precondition; None when nothing has changed.

    Only differences are sent, so one PATCH without a preceding GET is enough. Conditions and fields
    of other writers are kept, also fields that are new to this version.
    """
    changed: dict[str, Any] = {}
    for name, value in reported.items():
        if name == "conditions" or name in FOREIGN_FIELDS:
            continue
        if value != in_api.get(name) and not (not value and not in_api.get(name)):
            replaced = name in MERGED_BY_IP and in_api.get(name)
            changed[name] = [*value, {"$patch": "replace"}] if replaced else value  # type: ignore[misc]
    for name in in_api:
        if name not in reported and name in _WITHDRAWN:
            changed[name] = None
    differing = _condition_changes(in_api, reported)
    if differing:
        changed["conditions"] = differing
    if not changed:
        return None
    return {"metadata": {"uid": uid}, "status": changed}


def may_wait(in_api: api.PodStatus, reported: api.PodStatus) -> bool:
    """Whether a change is a step on the way to the next one, which shows it as well.

    Such steps are the generation that was observed (it rises when a deletion begins) and, while a
    pod is Pending, its sandbox and addresses. Readiness, starts, ends and failures never wait.
    Source: docs/reference/behaviour.md, f2; docs/reference/differences.csv: behaviour.md.
    """
    return _awaited(in_api) == _awaited(reported)


def _awaited(status: api.PodStatus) -> dict[str, Any]:
    """A status without what may wait."""
    pending = status.get("phase") == "Pending"
    late = {"observedGeneration", *(("podIP", "podIPs") if pending else ())}
    kept: dict[str, Any] = {
        name: value for name, value in status.items() if value and name not in late
    }
    kept["conditions"] = {
        condition["type"]: [condition.get(name) or "" for name in ("status", "reason", "message")]
        for condition in status.get("conditions") or ()
        if not (pending and condition["type"] == "PodReadyToStartContainers")
    }
    return kept


def _condition_changes(in_api: api.PodStatus, reported: api.PodStatus) -> list[dict[str, Any]]:
    before = {entry["type"]: entry for entry in in_api.get("conditions") or ()}
    after = {entry["type"]: entry for entry in reported.get("conditions") or ()}
    changes: list[dict[str, Any]] = []
    for kind, condition in after.items():
        known = before.get(kind)
        if known is None or not _same_condition(known, condition):
            # a field that is no longer set must be null, or the merge would keep it
            removed = {name: None for name in (known or {}) if name not in condition}
            changes.append({**removed, **condition})
    changes += [
        {"type": kind, "$patch": "delete"} for kind in before if kind not in after and kind in OWNED
    ]
    return changes


def _same_condition(first: api.PodCondition, second: api.PodCondition) -> bool:
    return first == second or all(
        (first.get(name) or "") == (second.get(name) or "")
        for name in ("status", "reason", "message", "lastTransitionTime", "observedGeneration")
    )


# -- why a status has not reached the API yet ------------------------------------------------

LATE_S = 10.0
"""Seconds without an answer after which a write is a problem although it has not failed."""
NO_ANSWER = "the API server has not answered yet"
NO_MIRROR = "the API has no mirror pod of this static pod yet"
MAX_MESSAGE = 5


class WriteProblem(Struct, frozen=True):
    """Why a pod's status has not reached the API."""

    since: float
    """Unix seconds of the first change that the API does not show."""
    message: str
    count: int
    """Failed tries in a row."""
    unreported: str = ""
    """The changes that the API does not show, as text; empty: nothing that matters to people."""


def unreported(in_api: api.PodStatus, newest: api.PodStatus) -> str:
    """The parts of the newest status that the API's lacks."""
    parts = list(_differences(in_api, newest))
    more = f" and {len(parts) - MAX_MESSAGE} more" if len(parts) > MAX_MESSAGE else ""
    return ", ".join(parts[:MAX_MESSAGE]) + more


def _differences(old: api.PodStatus, new: api.PodStatus) -> Iterator[str]:
    phase, reported = new.get("phase") or "Pending", old.get("phase") or "Pending"
    if phase != reported:
        yield f"phase {phase} instead of {reported}"
    if (ready := is_ready(new)) is not is_ready(old):
        yield "Ready" if ready else "not Ready"
    before = {(kind, each.get("name")): each for kind, each in _entries_by_field(old)}
    for kind, each in _entries_by_field(new):
        known = before.get((kind, each.get("name")))
        if known is None or _state(known) != _state(each):
            yield f"container {each.get('name')} {_state(each)}"
        elif known.get("restartCount") != each.get("restartCount"):
            yield f"container {each.get('name')} restarted {each.get('restartCount') or 0} times"


def _entries_by_field(status: api.PodStatus) -> Iterator[tuple[str, api.ContainerStatus]]:
    for each in status.get("initContainerStatuses") or ():
        yield "init", each
    for each in status.get("containerStatuses") or ():
        yield "regular", each


def _state(entry: api.ContainerStatus) -> str:
    state = entry.get("state") or {}
    if (ended := state.get("terminated")) is not None:
        return f"ended with exit code {ended.get('exitCode') or 0}"
    return "running" if "running" in state else "waiting"
