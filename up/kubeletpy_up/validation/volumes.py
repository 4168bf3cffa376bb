"""Volumes, and their mounts and devices in containers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kubeletpy.pods import shape
from kubeletpy_up.schema import formats
from kubeletpy_up.validation import env

if TYPE_CHECKING:
    from kubeletpy.base.api.types import JSON
    from kubeletpy_up.validation.report import Report

_HOST_PATH_TYPES = (
    "",
    "BlockDevice",
    "CharDevice",
    "Directory",
    "DirectoryOrCreate",
    "File",
    "FileOrCreate",
    "Socket",
)
_PROPAGATION = ("Bidirectional", "HostToContainer", "None")
_RECURSIVE = ("Disabled", "Enabled", "IfPossible")
_PULL_POLICIES = ("Always", "IfNotPresent", "Never")
_PROJECTIONS = (
    "secret",
    "configMap",
    "downwardAPI",
    "serviceAccountToken",
    "clusterTrustBundle",
    "podCertificate",
)
_MIN_TOKEN_SECONDS = 600
_MAX_TOKEN_SECONDS = 2**32
_MAX_MODE = 0o777


def validate(report: Report, supplied: list[JSON], path: str) -> dict[str, JSON]:
    """Check ``spec.volumes``; returns the valid ones by name, for mounts to refer to."""
    sound: dict[str, JSON] = {}
    for index, volume in enumerate(supplied):
        where = f"{path}[{index}]"
        before = len(report.causes)
        kinds = [key for key, value in volume.items() if key != "name" and value is not None]
        if not kinds:
            report.required(where, "must specify a volume type")
        else:
            _source(report, kinds[0], volume[kinds[0]], f"{where}.{kinds[0]}")
            for problem in shape.volume_problems({kinds[0]: volume[kinds[0]]}, where):
                report.add(problem)
        for extra in kinds[1:]:
            report.forbidden(f"{where}.{extra}", "may not specify more than 1 volume type")
        name = volume.get("name") or ""
        report.well_formed(f"{where}.name", name, formats.dns_label)
        if name in sound:
            report.duplicate(f"{where}.name", name)
        if len(report.causes) == before:
            sound[name] = volume
    return sound


def _source(report: Report, kind: str, source: JSON, path: str) -> None:
    if kind == "hostPath":
        host_path(report, source, path)
    elif kind == "emptyDir":
        limit = source.get("sizeLimit")
        if limit is not None and formats.read(str(limit))[0] < 0:
            detail = "SizeLimit field must be a valid resource quantity"
            report.forbidden(f"{path}.sizeLimit", detail)
    elif kind == "secret":
        report.require(path, source, "secretName")
        _files(report, source, path)
    elif kind == "configMap":
        report.require(path, source, "name")
        _files(report, source, path)
    elif kind == "downwardAPI":
        _mode(report, source.get("defaultMode"), f"{path}.defaultMode")
        _downward(report, source, path)
    elif kind == "projected":
        _projected(report, source, path)
    elif kind == "persistentVolumeClaim":
        report.require(path, source, "claimName")
    elif kind == "nfs":
        nfs(report, source, path)
    elif kind == "csi":
        report.require(path, source, "driver")
    elif kind == "image":
        report.require(path, source, "reference")
        report.one_of(f"{path}.pullPolicy", source.get("pullPolicy"), _PULL_POLICIES)


def host_path(report: Report, source: JSON, path: str) -> None:
    """A path on the node."""
    target = source.get("path") or ""
    if not target:
        report.required(f"{path}.path")
        return
    report.all_invalid(f"{path}.path", target, formats.no_backsteps(target))
    if source.get("type") not in (None, *_HOST_PATH_TYPES):
        report.unsupported(f"{path}.type", source["type"], _HOST_PATH_TYPES)


def nfs(report: Report, source: JSON, path: str) -> None:
    """An NFS server's export."""
    report.require(path, source, "server", "path")
    if source.get("path") and not source["path"].startswith("/"):
        report.invalid(f"{path}.path", source["path"], "must be an absolute path")


def _mode(report: Report, mode: int | None, path: str) -> None:
    if mode is not None and not 0 <= mode <= _MAX_MODE:
        detail = "must be a number between 0 and 0777 (octal), both inclusive"
        report.invalid(path, mode, detail)


def _file_path(report: Report, target: str, path: str) -> None:
    if not target:
        report.required(path)
        return
    report.all_invalid(path, target, formats.relative_path(target))
    if target.startswith("..") and "/" not in target and target != "..":
        report.invalid(path, target, "must not start with '..'")


def _files(report: Report, source: JSON, path: str) -> None:
    _mode(report, source.get("defaultMode"), f"{path}.defaultMode")
    for index, item in enumerate(source.get("items") or ()):
        where = f"{path}.items[{index}]"
        report.require(where, item, "key")
        _file_path(report, item.get("path") or "", f"{where}.path")
        _mode(report, item.get("mode"), f"{where}.mode")


def _downward(report: Report, source: JSON, path: str) -> None:
    for index, item in enumerate(source.get("items") or ()):
        where = f"{path}.items[{index}]"
        _file_path(report, item.get("path") or "", f"{where}.path")
        if item.get("fieldRef") is not None:
            env.field_reference(report, item["fieldRef"], f"{where}.fieldRef", in_volume=True)
            if item.get("resourceFieldRef") is not None:
                detail = "fieldRef and resourceFieldRef can not be specified simultaneously"
                report.invalid(where, "resource", detail)
        elif item.get("resourceFieldRef") is not None:
            reference = item["resourceFieldRef"]
            env.resource_reference(report, reference, f"{where}.resourceFieldRef", in_volume=True)
        else:
            report.required(where, "one of fieldRef and resourceFieldRef is required")
        _mode(report, item.get("mode"), f"{where}.mode")


def _projected(report: Report, source: JSON, path: str) -> None:
    _mode(report, source.get("defaultMode"), f"{path}.defaultMode")
    for index, projection in enumerate(source.get("sources") or ()):
        where = f"{path}.sources[{index}]"
        kinds = [kind for kind in _PROJECTIONS if projection.get(kind) is not None]
        for extra in kinds[1:]:
            report.forbidden(
                f"{where}.{extra}", "may not specify more than 1 volume type per source"
            )
        if not kinds:
            report.required(where, "must specify one of the volume types")
        for kind in kinds[:1]:
            _projection(report, kind, projection[kind], f"{where}.{kind}", path)


def _projection(report: Report, kind: str, supplied: JSON, path: str, volume: str) -> None:
    if kind in ("secret", "configMap"):
        report.require(path, supplied, "name")
        _files(report, supplied, path)
    elif kind == "downwardAPI":
        _downward(report, supplied, path)
    elif kind == "serviceAccountToken":
        token_lifetime(report, supplied.get("expirationSeconds") or 0, f"{path}.expirationSeconds")
        # the API server names the volume's path here, not the source's
        _file_path(report, supplied.get("path") or "", f"{volume}.path")


def token_lifetime(report: Report, seconds: int, path: str) -> None:
    """How long the token of a service account is valid."""
    if seconds < _MIN_TOKEN_SECONDS:
        report.invalid(path, seconds, "may not specify a duration less than 10 minutes")
    elif seconds > _MAX_TOKEN_SECONDS:
        report.invalid(path, seconds, "may not specify a duration larger than 2^32 seconds")


def mounts(report: Report, container: JSON, path: str, known: dict[str, JSON]) -> None:
    """A container's ``volumeMounts`` and ``volumeDevices``."""
    devices = container.get("volumeDevices") or []
    device_names = {device.get("name") for device in devices}
    device_paths = {device.get("devicePath") for device in devices}
    points: set[str] = set()
    images = {name for name, volume in known.items() if volume.get("image")}
    for index, mount in enumerate(container.get("volumeMounts") or ()):
        where = f"{path}.volumeMounts[{index}]"
        name, point = mount.get("name") or "", mount.get("mountPath") or ""
        if not name:
            report.required(f"{where}.name")
        if name not in known:
            report.not_found(f"{where}.name", name)
        if not point:
            report.required(f"{where}.mountPath")
        if point in points:
            report.invalid(f"{where}.mountPath", point, "must be unique")
        points.add(point)
        if name in device_names:
            report.invalid(f"{where}.name", name, "must not already exist in volumeDevices")
        if point in device_paths:
            detail = "must not already exist as a path in volumeDevices"
            report.invalid(f"{where}.mountPath", point, detail)
        _mount_options(report, container, mount, where, f"{path}.volumeMounts")
        for problem in shape.bind_mount_problems(mount, where, images):
            report.add(problem)
    for index, device in enumerate(devices):
        where = f"{path}.volumeDevices[{index}]"
        if device.get("name") not in known:
            report.not_found(f"{where}.name", device.get("name") or "")
        report.require(where, device, "devicePath")


def _mount_options(report: Report, container: JSON, mount: JSON, where: str, path: str) -> None:
    sub_path, expression = mount.get("subPath") or "", mount.get("subPathExpr") or ""
    report.all_invalid(f"{path}.subPath", sub_path, formats.relative_path(sub_path))
    if sub_path and expression:
        detail = "subPathExpr and subPath are mutually exclusive"
        report.invalid(f"{where}.subPathExpr", expression, detail)
    report.all_invalid(f"{path}.subPathExpr", expression, formats.relative_path(expression))
    propagation = mount.get("mountPropagation")
    if propagation is not None:
        report.supported(f"{path}.mountPropagation", propagation, _PROPAGATION)
        privileged = (container.get("securityContext") or {}).get("privileged")
        if propagation == "Bidirectional" and not privileged:
            detail = "Bidirectional mount propagation is available only to privileged containers"
            report.forbidden(f"{path}.mountPropagation", detail)
    recursive = mount.get("recursiveReadOnly")
    if recursive is not None:
        if recursive not in _RECURSIVE:
            report.unsupported(f"{path}.recursiveReadOnly", recursive, _RECURSIVE)
        elif recursive != "Disabled" and not mount.get("readOnly"):
            detail = "may only be specified when readOnly is true"
            report.forbidden(f"{path}.recursiveReadOnly", detail)
