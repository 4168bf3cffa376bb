"""Checks of changes to an existing pod, by the path it is changed through."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from kubeletpy_up.schema import formats
from kubeletpy_up.validation import metadata, pod_resize, pod_spec

if TYPE_CHECKING:
    from kubeletpy.base.api.types import JSON
    from kubeletpy_up.validation.report import Report

_MIRROR = "kubernetes.io/config.mirror"
_MAX_INT32 = 2**31 - 1
_UPDATABLE = ",".join(
    (
        "`spec.containers[*].image`",
        "`spec.initContainers[*].image`",
        "`spec.activeDeadlineSeconds`",
        "`spec.tolerations` (only additions to existing tolerations)",
        "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously "
        "negative)",
    )
)
_MAX_PATHS = 10
_HEALTH = ("DataLoss", "Degraded", "Inaccessible")
_REASON = re.compile(r"[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?")
_REASON_RULE = (
    "a condition reason must start with alphabetic character, optionally followed by a string of "
    "alphanumeric characters or '_,:', and must end with an alphanumeric character or '_' (e.g. "
    "'my_name',  or 'MY_NAME',  or 'MyName',  or 'ReasonA,ReasonB',  or 'ReasonA:ReasonB', regex "
    "used for validation is '[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?')"
)


def validate(report: Report, new: JSON, old: JSON, subresource: str) -> None:
    """Check an update; ``subresource`` is empty for the pod itself."""
    metadata.validate_update(report, new, old)
    if subresource == "status":
        _status(report, new, old)
        return
    pod_spec.validate(report, new)
    mirror = _MIRROR in ((old.get("metadata") or {}).get("annotations") or {})
    _mirror_annotation(report, new, old)
    if subresource == "ephemeralcontainers":
        if mirror:
            report.forbidden("[]", "static pods do not support ephemeral containers")
        else:
            _ephemeral(report, new["spec"], old["spec"])
    elif subresource == "resize":
        if mirror:
            report.forbidden("[]", "static pods cannot be resized")
        else:
            pod_resize.validate(report, new, old)
    else:
        _spec(report, new["spec"], old["spec"])


def _mirror_annotation(report: Report, new: JSON, old: JSON) -> None:
    path = f"metadata.annotations[{_MIRROR}]"
    now = ((new.get("metadata") or {}).get("annotations") or {}).get(_MIRROR)
    before = ((old.get("metadata") or {}).get("annotations") or {}).get(_MIRROR)
    if before is None and now is not None:
        report.forbidden(path, "may not add mirror pod annotation")
    elif before is not None and now != before:
        report.forbidden(path, "may not remove or update mirror pod annotation")


def changed_paths(new: Any, old: Any, path: str) -> list[str]:
    """The paths of fields in which two objects differ; values stay out of messages."""
    if new == old:
        return []
    if isinstance(new, dict) and isinstance(old, dict):
        found: list[str] = []
        for key in sorted({*new, *old}):
            found += changed_paths(new.get(key), old.get(key), f"{path}.{key}")
        return found
    if isinstance(new, list) and isinstance(old, list) and len(new) == len(old):
        found = []
        for index, (one, other) in enumerate(zip(new, old, strict=True)):
            found += changed_paths(one, other, f"{path}[{index}]")
        return found
    return [path]


def _same_containers(report: Report, new: JSON, old: JSON) -> bool:
    for key in ("containers", "initContainers"):
        after, before = new.get(key) or [], old.get(key) or []
        if len(after) != len(before):
            report.forbidden(f"spec.{key}", "pod updates may not add or remove containers")
            return False
    return True


def _spec(report: Report, new: JSON, old: JSON) -> None:
    if not _same_containers(report, new, old):
        return
    if not _deadline(report, new.get("activeDeadlineSeconds"), old.get("activeDeadlineSeconds")):
        return
    _tolerations(report, new, old)
    gates = [gate.get("name") for gate in old.get("schedulingGates") or ()]
    for gate in new.get("schedulingGates") or ():
        if gate.get("name") not in gates:
            detail = "only deletion is allowed, but found new scheduling gate"
            report.forbidden("spec.schedulingGates", f"{detail} '{gate.get('name')}'")
    allowed = dict(new)
    for key in ("containers", "initContainers"):
        if new.get(key):
            allowed[key] = [
                {**container, "image": before.get("image")}
                for container, before in zip(new[key], old[key], strict=True)
            ]
    for key in ("activeDeadlineSeconds", "tolerations", "schedulingGates"):
        _restore(allowed, old, key)
    if (old.get("terminationGracePeriodSeconds") or 0) < 0 and (
        new.get("terminationGracePeriodSeconds") == 1
    ):
        _restore(allowed, old, "terminationGracePeriodSeconds")
    paths = changed_paths(allowed, old, "spec")
    if paths:
        reported = ", ".join(paths[:_MAX_PATHS]) + (", …" if len(paths) > _MAX_PATHS else "")
        report.forbidden(
            "spec",
            f"pod updates may not change fields other than {_UPDATABLE}\nchanged: {reported}",
        )


def _restore(target: JSON, source: JSON, key: str) -> None:
    if key in source:
        target[key] = source[key]
    else:
        target.pop(key, None)


def _deadline(report: Report, new: int | None, old: int | None) -> bool:
    path = "spec.activeDeadlineSeconds"
    if new is None:
        if old is not None:
            report.invalid(path, None, "must not update from a positive integer to nil value")
        return True
    details = formats.in_range(new, 0, _MAX_INT32)
    if not details and old is not None and new > old:
        details = ["must be less than or equal to previous value"]
    report.all_invalid(path, new, details)
    return not details


def _tolerations(report: Report, new: JSON, old: JSON) -> None:
    def without_seconds(toleration: JSON) -> JSON:
        return {key: value for key, value in toleration.items() if key != "tolerationSeconds"}

    kept = [without_seconds(toleration) for toleration in new.get("tolerations") or ()]
    for toleration in old.get("tolerations") or ():
        if without_seconds(toleration) not in kept:
            detail = "existing toleration can not be modified except its tolerationSeconds"
            report.forbidden("spec.tolerations", detail)
            return


def _ephemeral(report: Report, new: JSON, old: JSON) -> None:
    path = "spec.ephemeralContainers"
    by_name = {c.get("name"): c for c in new.get("ephemeralContainers") or ()}
    for container in old.get("ephemeralContainers") or ():
        name = container.get("name")
        if name not in by_name:
            detail = f'existing ephemeral containers "{name}" may not be removed\n'
            report.forbidden(path, detail)
        elif by_name[name] != container:
            changed = ", ".join(changed_paths(by_name[name], container, path))
            detail = (
                f'existing ephemeral containers "{name}" may not be changed\nchanged: {changed}'
            )
            report.forbidden(path, detail)


def _volume_health(report: Report, supplied: list[JSON], spec: JSON) -> None:
    volumes = {volume.get("name") for volume in spec.get("volumes") or ()}
    for index, entry in enumerate(supplied):
        path = f"status.volumeHealth[{index}]"
        if entry.get("name") and entry["name"] not in volumes:
            report.not_found(f"{path}.name", entry["name"])
        for number, condition in enumerate(entry.get("healthConditions") or ()):
            reason = condition.get("reason") or ""
            if reason and not _REASON.fullmatch(reason):
                where = f"{path}.healthConditions[{number}].reason"
                report.invalid(where, reason, _REASON_RULE)
            if condition.get("status") not in _HEALTH:
                where = f"{path}.healthConditions[{number}].status"
                report.unsupported(where, condition.get("status") or "", _HEALTH)


def _status(report: Report, new: JSON, old: JSON) -> None:
    after, before = new.get("status") or {}, old.get("status") or {}
    for index, condition in enumerate(after.get("conditions") or ()):
        kind = condition.get("type") or ""
        if kind and "/" in kind:
            details = formats.qualified_name(kind)
            report.all_invalid(f"status.conditions[{index}].type", kind, details)
    if before.get("qosClass") and after.get("qosClass") != before["qosClass"]:
        report.invalid("status.qosClass", after.get("qosClass") or "", "field is immutable")
    nominated = after.get("nominatedNodeName")
    bound = (old.get("spec") or {}).get("nodeName")
    if bound and nominated and nominated != before.get("nominatedNodeName"):
        detail = "may not be set on pods that are already bound to a node"
        report.forbidden("status.nominatedNodeName", detail)
    if (after.get("observedGeneration") or 0) < 0:
        detail = "must be a non-negative integer"
        report.invalid("status.observedGeneration", after["observedGeneration"], detail)
    if after.get("hostIPs") and after["hostIPs"][0].get("ip") != (after.get("hostIP") or ""):
        address = after["hostIPs"][0].get("ip") or ""
        report.invalid("status.hostIPs[0].ip", address, "must be equal to `hostIP`")
    _volume_health(report, after.get("volumeHealth") or [], new.get("spec") or {})
    for key in ("podIPs", "hostIPs"):
        _addresses(report, f"status.{key}", after.get(key) or [], before.get(key) or [])
    _first_address(report, after)
    if (old.get("spec") or {}).get("restartPolicy") == "Always":
        return
    _terminated_stay(report, after, before, old.get("spec") or {})


def _first_address(report: Report, after: JSON) -> None:
    """podIP is the first of podIPs."""
    first, entries = after.get("podIP") or "", after.get("podIPs") or []
    if bool(first) != bool(entries):
        reported = [{"IP": entry.get("ip") or ""} for entry in entries] or None
        detail = "podIP and podIPs must either both be set or both be unset"
        report.invalid("status.podIPs", reported, detail)
    elif entries and (entries[0].get("ip") or "") != first:
        address = entries[0].get("ip") or ""
        report.invalid("status.podIPs[0].ip", address, "must be equal to `podIP`")


def _addresses(report: Report, path: str, now: list[JSON], before: list[JSON]) -> None:
    """New addresses must be valid, at most one of each family."""
    known = {entry.get("ip") for entry in before}
    addresses = [str(entry.get("ip") or "") for entry in now]
    for index, address in enumerate(addresses):
        if address not in known:
            report.all_invalid(f"{path}[{index}]", address, formats.ip_address(address))
    if len(addresses) < 2 or any(formats.ip_address(each) for each in addresses):
        return
    if len(addresses) > len({":" in each for each in addresses}):
        reported = json.dumps([{"IP": each} for each in addresses], separators=(",", ":"))
        detail = "may specify no more than one IP for each IP family"
        report.invalid_text(path, reported, detail)


def _terminated_stay(report: Report, after: JSON, before: JSON, spec: JSON) -> None:
    """A terminated container that won't restart stays terminated."""
    restartable = {
        container.get("name")
        for container in spec.get("containers") or ()
        if container.get("restartPolicy") or container.get("restartPolicyRules")
    }
    listed = after.get("containerStatuses") or ()
    now = {status.get("name"): (index, status) for index, status in enumerate(listed)}
    for status in before.get("containerStatuses") or ():
        ended = (status.get("state") or {}).get("terminated")
        name = status.get("name")
        if not ended or name in restartable or name not in now:
            continue
        if spec.get("restartPolicy") == "OnFailure" and ended.get("exitCode"):
            continue
        index, status_now = now[name]
        if not (status_now.get("state") or {}).get("terminated"):
            path = f"status.containerStatuses[{index}].state"
            report.forbidden(path, "may not be transitioned to non-terminated state")
