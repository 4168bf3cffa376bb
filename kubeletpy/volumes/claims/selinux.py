"""Decides whether a volume is mounted with an SELinux context, and with which. Pure.

A mount option labels a volume at once; otherwise the runtime would relabel every file of it.
Source: docs/reference/behaviour-storage.md, sp3.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from kubeletpy.base.structs import Struct
from kubeletpy.pods.pod import Pod
from kubeletpy.volumes.claims.model import Mode, VolumeSpec

RECURSIVE = "Recursive"
_SOLE = ("ReadWriteOncePod",)
_LABEL = re.compile(r"[A-Za-z0-9_.:,-]+")


class SELinux(Struct, frozen=True):
    """The settings for all volumes of a node."""

    file_label: str = ""
    """The default label of container files; empty: the kernel labels nothing."""
    all_modes: bool = False
    """The feature gate SELinuxMount: not only ReadWriteOncePod volumes."""


class SELinuxConflict(Struct, frozen=True):
    """Containers of one pod need a volume with different labels, but it can have only one."""

    labels: tuple[str, ...]


def mount_option(context: str | None) -> tuple[str, ...]:
    """The mount option of a context; None: there is none."""
    return (f'context="{context}"',) if context else ()


def mount_context(
    spec: VolumeSpec, pod: Pod, node: SELinux, *, supported: bool
) -> str | SELinuxConflict | None:
    """The context to mount a volume with; None: the runtime relabels it.

    ``supported``: its plugin can mount with a context.
    """
    if not node.file_label or spec.pv is None or spec.mode is Mode.BLOCK:
        return None
    if not supported or not (node.all_modes or spec.access_modes == _SOLE):
        return None
    labels = sorted({_label(each, node.file_label) for each in _options(spec.pod_volume, pod)})
    if len(labels) > 1:
        return SELinuxConflict(tuple(labels))
    recursive = _context(pod.spec).get("seLinuxChangePolicy") == RECURSIVE
    return None if recursive or not labels else labels[0] or None


def _options(volume: str, pod: Pod) -> list[Mapping[str, Any]]:
    """The options of each container that mounts a volume, its own in preference to the pod's."""
    of_pod = _context(pod.spec).get("seLinuxOptions")
    found = []
    for _, container in pod.all_containers():
        options = _context(container).get("seLinuxOptions", of_pod)
        uses = any(mount["name"] == volume for mount in container.get("volumeMounts") or ())
        if uses and options is not None:
            found.append(options)
    return found


def _label(options: Mapping[str, Any], default: str) -> str:
    """The label of files that a process with these options may use.

    Empty: not known here, because the runtime picks the level, or refuses a text that is no label.
    In a mount's options such a text would be more options.
    """
    level = options.get("level")
    if not level:
        return ""
    user, role, kind, _ = default.split(":", 3)
    label = f"{options.get('user') or user}:{role}:{kind}:{level}"
    return label if _LABEL.fullmatch(label) else ""


def _context(found: Mapping[str, Any]) -> Mapping[str, Any]:
    return found.get("securityContext") or {}
