"""Environment variables and where their values come from."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from kubeletpy_up.schema import formats

if TYPE_CHECKING:
    from kubeletpy.base.api.types import JSON
    from kubeletpy_up.validation.report import Report

_SOURCES = ("fieldRef", "resourceFieldRef", "configMapKeyRef", "secretKeyRef", "fileKeyRef")
_ENV_FIELDS = (
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
)
_VOLUME_FIELDS = (
    "metadata.annotations",
    "metadata.labels",
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
)
_RESOURCES = (
    "limits.cpu",
    "limits.ephemeral-storage",
    "limits.memory",
    "requests.cpu",
    "requests.ephemeral-storage",
    "requests.memory",
)
_SUBSCRIPT = re.compile(r"^(metadata\.(?:labels|annotations))\['(.*)'\]$")


def field_reference(report: Report, supplied: JSON, path: str, *, in_volume: bool) -> None:
    """A downward API field: one that environment variables, or files, can show."""
    field = supplied.get("fieldPath") or ""
    if not field:
        report.required(f"{path}.fieldPath")
        return
    subscript = _SUBSCRIPT.match(field)
    if subscript:
        details = formats.qualified_name(subscript[2])
        report.all_invalid(path, subscript[2], details)
        return
    known = _VOLUME_FIELDS if in_volume else _ENV_FIELDS
    if field not in known:
        if not in_volume and field in _VOLUME_FIELDS:
            report.unsupported(f"{path}.fieldPath", field, known)
        elif not field.startswith(("metadata.", "spec.", "status.")):
            detail = f"error converting fieldPath: field label not supported: {field}"
            report.invalid(f"{path}.fieldPath", field, detail)
        else:
            report.unsupported(f"{path}.fieldPath", field, known)


def resource_reference(report: Report, supplied: JSON, path: str, *, in_volume: bool) -> None:
    """A downward API resource; in a volume, it must name its container."""
    if in_volume and not supplied.get("containerName"):
        report.required(f"{path}.containerName")
    resource = supplied.get("resource") or ""
    if not resource:
        report.required(f"{path}.resource")
    elif resource not in _RESOURCES and not resource.startswith(
        ("limits.hugepages-", "requests.hugepages-")
    ):
        report.unsupported(f"{path}.resource", resource, _RESOURCES)


def _value_from(report: Report, variable: JSON, path: str) -> None:
    source = variable["valueFrom"]
    supplied = [kind for kind in _SOURCES if source.get(kind) is not None]
    if "fieldRef" in supplied:
        field_reference(report, source["fieldRef"], f"{path}.fieldRef", in_volume=False)
    if "resourceFieldRef" in supplied:
        reference = source["resourceFieldRef"]
        resource_reference(report, reference, f"{path}.resourceFieldRef", in_volume=False)
    for kind in ("configMapKeyRef", "secretKeyRef"):
        if kind in supplied:
            report.require(f"{path}.{kind}", source[kind], "name")
            if not source[kind].get("key"):
                report.required(f"{path}.{kind}.key")
            else:
                key = source[kind]["key"]
                report.all_invalid(f"{path}.{kind}.key", key, formats.config_key(key))
    if "fileKeyRef" in supplied:
        report.require(f"{path}.fileKeyRef", source["fileKeyRef"], "volumeName", "path", "key")
    if not supplied:
        listed = "`fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`"
        report.invalid(path, "", f"must specify one of: {listed}")
    elif variable.get("value"):
        report.invalid(path, "", "may not be specified when `value` is not empty")
    elif len(supplied) > 1:
        report.invalid(path, "", "may not have more than one field specified at a time")


def validate(report: Report, variables: list[JSON], path: str) -> None:
    """Check the variables of a container's ``env``."""
    for index, variable in enumerate(variables):
        name = variable.get("name") or ""
        report.well_formed(f"{path}[{index}].name", name, formats.environment_name)
        if variable.get("valueFrom") is not None:
            _value_from(report, variable, f"{path}[{index}].valueFrom")


def validate_from(report: Report, sources: list[JSON], path: str) -> None:
    """Check the sources of a container's ``envFrom``."""
    for index, source in enumerate(sources):
        where = f"{path}[{index}]"
        prefix = source.get("prefix") or ""
        report.all_invalid(f"{where}.prefix", prefix, formats.environment_name(prefix))
        supplied = [kind for kind in ("configMapRef", "secretRef") if source.get(kind) is not None]
        for kind in supplied:
            report.require(f"{where}.{kind}", source[kind], "name")
        if not supplied:
            detail = "must specify one of: `configMapRef` or `secretRef`"
            report.invalid(where, "", detail)
        elif len(supplied) > 1:
            report.invalid(where, "", "may not have more than one field specified at a time")
