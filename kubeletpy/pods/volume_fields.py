"""Validation of the fields of 1.37 that concern volumes, for static pods and the embedded API.

Pure. Kubernetes checks them whether their gates are on or not. Source:
docs/reference/behaviour.md, i13.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from kubeletpy.base.structs import Struct

BIND_MOUNT_OPTIONS = ("nodev", "noexec", "nosuid")
MAX_MODE = 0o1777
"""Maximum mode of an emptyDir."""
MAX_USER = 2**31 - 1
FILE_SOURCES = ("configMap", "secret", "downwardAPI", "projected")
_SINGLE_FILES = ("serviceAccountToken", "clusterTrustBundle", "podCertificate")
CONTAINERS = ("containers", "initContainers", "ephemeralContainers")
_MAX_SHOWN = 256
"""Characters of a value in a message."""


class FieldProblem(Struct, frozen=True):
    """One field that the API refuses.

    Attributes:
        path: such as ``spec.volumes[0].emptyDir.mode``.
        reason: Invalid, NotSupported or Duplicate, as in the API's causes.
        value: what the field holds.
        detail: what is wrong with it; empty for Duplicate.
    """

    path: str
    reason: str
    value: object
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.path}: {self.message()}"

    def message(self) -> str:
        """The problem without the path; a long value is cut."""
        shown = _shown(json.dumps(self.value, ensure_ascii=False, separators=(",", ":")))
        detail = f": {self.detail}" if self.detail else ""
        return f"{_REASONS[self.reason]}: {shown}{detail}"


_REASONS = {
    "Invalid": "Invalid value",
    "NotSupported": "Unsupported value",
    "Duplicate": "Duplicate value",
}


def problems(spec: Mapping[str, Any]) -> Iterator[FieldProblem]:
    """The faults in these fields of a well-formed pod spec, in the order of the spec."""
    volumes = spec.get("volumes") or ()
    for index, volume in enumerate(volumes):
        yield from volume_problems(volume, f"spec.volumes[{index}]")
    images = {volume.get("name") for volume in volumes if volume.get("image")}
    for kind in CONTAINERS:
        for index, container in enumerate(spec.get(kind) or ()):
            path = f"spec.{kind}[{index}]"
            for number, mount in enumerate(container.get("volumeMounts") or ()):
                yield from bind_mount_problems(mount, f"{path}.volumeMounts[{number}]", images)


def volume_problems(volume: Mapping[str, Any], path: str) -> Iterator[FieldProblem]:
    """The faults in these fields of one volume."""
    mode = (volume.get("emptyDir") or {}).get("mode")
    if mode is not None and not 0 <= mode <= MAX_MODE:
        detail = "must be a number between 0 and 01777 (octal), both inclusive"
        yield FieldProblem(f"{path}.emptyDir.mode", "Invalid", mode, detail)
    for kind in FILE_SOURCES:
        if source := volume.get(kind):
            yield from _user_problems(source, "defaultUser", f"{path}.{kind}")
            yield from _item_problems(source, f"{path}.{kind}")
    for index, source in enumerate((volume.get("projected") or {}).get("sources") or ()):
        for kind, part in source.items():
            where = f"{path}.projected.sources[{index}].{kind}"
            if kind in _SINGLE_FILES:
                yield from _user_problems(part, "user", where)
            elif kind in FILE_SOURCES:
                yield from _item_problems(part, where)


def _item_problems(source: Mapping[str, Any], path: str) -> Iterator[FieldProblem]:
    for index, item in enumerate(source.get("items") or ()):
        yield from _user_problems(item, "user", f"{path}.items[{index}]")


def _user_problems(source: Mapping[str, Any], field: str, path: str) -> Iterator[FieldProblem]:
    user = source.get(field)
    if user is not None and not 0 <= user <= MAX_USER:
        detail = f"must be between 0 and {MAX_USER}, inclusive"
        yield FieldProblem(f"{path}.{field}", "Invalid", user, detail)


def bind_mount_problems(
    mount: Mapping[str, Any], path: str, images: Collection[object]
) -> Iterator[FieldProblem]:
    """The faults in one mount's ``bindMountOptions``; ``images``: names of image volumes."""
    options = mount.get("bindMountOptions") or []
    path = f"{path}.bindMountOptions"
    listed = ", ".join(f'"{option}"' for option in BIND_MOUNT_OPTIONS)
    seen: set[str] = set()
    for index, option in enumerate(options):
        where = f"{path}[{index}]"
        if option not in BIND_MOUNT_OPTIONS:
            yield FieldProblem(where, "NotSupported", option, f"supported values: {listed}")
        if option in seen:
            yield FieldProblem(where, "Duplicate", option)
        seen.add(option)
    if options and mount.get("name") in images:
        detail = "bindMountOptions may not be used with image volumes"
        yield FieldProblem(path, "Invalid", options, detail)


def _shown(text: str) -> str:
    return text if len(text) <= _MAX_SHOWN else text[: _MAX_SHOWN - 1] + "…"
