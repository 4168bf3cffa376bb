"""Security contexts of pods and containers, and sysctls."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from kubeletpy_up.schema import formats

if TYPE_CHECKING:
    from kubeletpy.base.api.types import JSON
    from kubeletpy_up.validation.report import Report

_MAX_ID = 2**31 - 1
_PROFILE_TYPES = ("Localhost", "RuntimeDefault", "Unconfined")
_PROC_MOUNTS = ("Default", "Unmasked")
_GROUP_POLICIES = ("Merge", "Strict")
_LABEL_POLICIES = ("MountOption", "Recursive")
_CHANGE_POLICIES = ("Always", "OnRootMismatch")
_SYSCTL = r"([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?"
_SYSCTL_RE = re.compile(_SYSCTL)
_MAX_SYSCTL = 253


def _identity(report: Report, context: JSON, path: str, keys: tuple[str, ...]) -> None:
    for key in keys:
        value = context.get(key)
        if value is not None:
            report.all_invalid(f"{path}.{key}", value, formats.in_range(value, 0, _MAX_ID))


def _profile(report: Report, context: JSON, path: str, field: str, name: str) -> None:
    """A profile of seccomp or AppArmor; ``name``: how messages call it."""
    profile, path = context.get(field), f"{path}.{field}"
    if profile is None:
        return
    kind, local = profile.get("type"), profile.get("localhostProfile")
    where = f"{path}.localhostProfile"
    if not kind:
        report.required(f"{path}.type", f"type is required when {field} is set")
    elif kind not in _PROFILE_TYPES:
        report.unsupported(f"{path}.type", kind, _PROFILE_TYPES)
    elif kind != "Localhost":
        if local is not None:
            report.invalid(where, local, f"can only be set when {name} type is Localhost")
    elif not local:
        report.required(where, f"must be set when {name} type is Localhost")
    elif field == "seccompProfile":
        report.all_invalid(where, local, formats.relative_path(local))
    elif local.strip() != local:
        report.invalid(where, local, "must not be padded with whitespace")


def container(report: Report, context: JSON | None, path: str, *, host_users: bool) -> None:
    """A container's ``securityContext``; ``host_users``: the pod has no user namespace."""
    if not context:
        return
    _identity(report, context, path, ("runAsUser", "runAsGroup"))
    if context.get("procMount") is not None:
        report.one_of(f"{path}.procMount", context["procMount"], _PROC_MOUNTS)
        if host_users and context["procMount"] == "Unmasked":
            detail = "`hostUsers` must be false to use `Unmasked`"
            report.invalid(f"{path}.procMount", context["procMount"], detail)
    _profile(report, context, path, "seccompProfile", "seccomp")
    _profile(report, context, path, "appArmorProfile", "AppArmor")
    if context.get("allowPrivilegeEscalation") is False:
        added = (context.get("capabilities") or {}).get("add") or ()
        if context.get("privileged"):
            detail = "cannot set `allowPrivilegeEscalation` to false and `privileged` to true"
            report.invalid(path, context, detail)
        if "CAP_SYS_ADMIN" in added:
            detail = (
                "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` "
                "CAP_SYS_ADMIN"
            )
            report.invalid(path, context, detail)


def pod(report: Report, spec: JSON, path: str) -> None:
    """A pod's ``securityContext`` (``path``) and what in the spec depends on it."""
    context = spec.get("securityContext") or {}
    _identity(report, context, path, ("fsGroup", "runAsUser", "runAsGroup"))
    for index, group in enumerate(context.get("supplementalGroups") or ()):
        details = formats.in_range(group, 0, _MAX_ID)
        report.all_invalid(f"{path}.supplementalGroups[{index}]", group, details)
    if spec.get("shareProcessNamespace") and spec.get("hostPID"):
        detail = "ShareProcessNamespace and HostPID cannot both be enabled"
        report.invalid("spec.shareProcessNamespace", True, detail)
    _sysctls(report, spec, context.get("sysctls") or [], f"{path}.sysctls")
    for key, known in (
        ("fsGroupChangePolicy", _CHANGE_POLICIES),
        ("supplementalGroupsPolicy", _GROUP_POLICIES),
        ("seLinuxChangePolicy", _LABEL_POLICIES),
    ):
        if context.get(key) is not None and context[key] not in known:
            report.unsupported(f"{path}.{key}", context[key], known)
    _profile(report, context, path, "seccompProfile", "seccomp")
    _profile(report, context, path, "appArmorProfile", "AppArmor")
    if spec.get("hostUsers") is False:
        # the API server names two of the fields so
        for key, reported in (("hostNetwork", ""), ("hostPID", "HostPID"), ("hostIPC", "HostIPC")):
            if spec.get(key):
                report.forbidden(f"spec.{reported or key}", "when `hostUsers` is false")
        for kind in ("containers", "initContainers", "ephemeralContainers"):
            for index, each in enumerate(spec.get(kind) or ()):
                if each.get("volumeDevices"):
                    where = f"spec.{kind}[{index}].volumeDevices"
                    report.forbidden(where, "when `hostUsers` is false")


def _sysctls(report: Report, spec: JSON, sysctls: list[JSON], path: str) -> None:
    seen: set[str] = set()
    for index, sysctl in enumerate(sysctls):
        name, where = sysctl.get("name") or "", f"{path}[{index}].name"
        if not name:
            report.required(where)
        elif len(name) > _MAX_SYSCTL or not _SYSCTL_RE.fullmatch(name):
            detail = f"must have at most {_MAX_SYSCTL} characters and match regex ^{_SYSCTL}$"
            report.invalid(where, name, detail)
        elif name in seen:
            report.duplicate(where, name)
        seen.add(name)
        dotted = name.replace("/", ".") if re.match("[^./]*/", name) else name
        if spec.get("hostNetwork") and dotted.startswith("net."):
            report.invalid(where, name, "may not be specified when 'hostNetwork' is true")
        if spec.get("hostIPC") and dotted.startswith(
            ("kernel.shm", "kernel.msg", "kernel.sem", "fs.mqueue.")
        ):
            report.invalid(where, name, "may not be specified when 'hostIPC' is true")
