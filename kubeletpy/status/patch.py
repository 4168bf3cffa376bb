"""The strategic merge patch that turns the status the API has into the one it should show.

Pure. Only differences are sent, so one PATCH without a preceding GET is enough. Conditions and
fields of other writers are kept, also fields that this version does not know.
"""

from __future__ import annotations

from typing import Any

from kubeletpy.base.api import types as api
from kubeletpy.base.api.pod_fields import fields_of
from kubeletpy.base.api.types import JSON
from kubeletpy.status import conditions
from kubeletpy.status.store import FOREIGN_FIELDS

MERGED_BY_IP = ("podIPs", "hostIPs")
"""Lists that a strategic merge would append to; replaced as a whole instead."""
_WITHDRAWN = fields_of("PodStatus").keys() - {"conditions", *FOREIGN_FIELDS}
"""Fields that are removed from the API when the agent has no value. Unknown ones are others'."""


def status_patch(uid: str, in_api: api.PodStatus, shown: api.PodStatus) -> JSON | None:
    """The patch body (with the uid as precondition), or None when nothing has changed."""
    changed: dict[str, Any] = {}
    for name, value in shown.items():
        if name == "conditions" or name in FOREIGN_FIELDS:
            continue
        if value != in_api.get(name) and not (not value and not in_api.get(name)):
            replaced = name in MERGED_BY_IP and in_api.get(name)
            changed[name] = [*value, {"$patch": "replace"}] if replaced else value  # type: ignore[misc]
    for name in in_api:
        if name not in shown and name in _WITHDRAWN:
            changed[name] = None
    differing = _condition_changes(in_api, shown)
    if differing:
        changed["conditions"] = differing
    if not changed:
        return None
    return {"metadata": {"uid": uid}, "status": changed}


def may_wait(in_api: api.PodStatus, shown: api.PodStatus) -> bool:
    """Whether a change is a step on the way to the next one, which shows it as well.

    Such steps are the generation that was observed (it rises when a deletion begins) and, while a
    pod is Pending, its sandbox and addresses. Readiness, starts, ends and failures never wait.
    Source: docs/reference/behaviour.md, f2; docs/reference/differences.csv: behaviour.md.
    """
    return _awaited(in_api) == _awaited(shown)


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


def _condition_changes(in_api: api.PodStatus, shown: api.PodStatus) -> list[dict[str, Any]]:
    before = {entry["type"]: entry for entry in in_api.get("conditions") or ()}
    after = {entry["type"]: entry for entry in shown.get("conditions") or ()}
    changes: list[dict[str, Any]] = []
    for kind, condition in after.items():
        known = before.get(kind)
        if known is None or not _same_condition(known, condition):
            # a field that is no longer set must be null, or the merge would keep it
            gone = {name: None for name in (known or {}) if name not in condition}
            changes.append({**gone, **condition})
    changes += [
        {"type": kind, "$patch": "delete"}
        for kind in before
        if kind not in after and kind in conditions.OWNED
    ]
    return changes


def _same_condition(first: api.PodCondition, second: api.PodCondition) -> bool:
    return all(
        (first.get(name) or "") == (second.get(name) or "")
        for name in ("status", "reason", "message", "lastTransitionTime", "observedGeneration")
    )
