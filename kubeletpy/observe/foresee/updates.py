"""Which fields of a pod a change touches, and how the API server takes such changes. Pure.

Source: docs/reference/api-server.md, aa; the API server's validation of pod updates. Its checks of
the values themselves are not repeated here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import StrEnum
from typing import Any, cast

from kubeletpy.base.api.types import JSON
from kubeletpy.base.structs import Struct
from kubeletpy.pods.memory_volumes import changed_limits, size_limits, with_size_limits
from kubeletpy.pods.pod import Pod

_CONTAINER = r"(containers|initContainers)\[[^\]]*\]"
_EPHEMERAL = re.compile(r"ephemeralContainers\[[^\]]*\]")


class ChangeMethod(StrEnum):
    """How a field can be changed."""

    UPDATE = "update"
    """``kubectl edit``, ``patch``, ``set image``."""
    RESIZE = "resize"
    """``kubectl patch --subresource resize``."""
    DEBUG = "debug"
    """``kubectl debug``: ephemeral containers are added."""
    NEVER = "never"
    """The pod has to be replaced."""


_WAYS: tuple[tuple[re.Pattern[str], ChangeMethod], ...] = (
    (re.compile(rf"{_CONTAINER}\.image"), ChangeMethod.UPDATE),
    (re.compile(rf"{_CONTAINER}\.resources\.(requests|limits)\.(cpu|memory)"), ChangeMethod.RESIZE),
    (re.compile(rf"{_CONTAINER}\.resizePolicy"), ChangeMethod.RESIZE),
    (re.compile(r"resources\.(requests|limits)\.(cpu|memory)"), ChangeMethod.RESIZE),
)


class Change(Struct, frozen=True):
    """One field that changes: its path below ``spec``, containers by name."""

    path: str
    way: ChangeMethod


def changes(before: Pod, after: Pod, *, memory_volumes: bool = False) -> list[Change]:
    """The changes in a pod's spec. Metadata and status change nothing that runs.

    ``memory_volumes``: the size limits of volumes in memory can be resized, too.
    """
    found, old = [], cast(JSON, before.spec)
    if memory_volumes and (limits := changed_limits(size_limits(before), size_limits(after))):
        found = [
            Change(f"volumes[{name}].emptyDir.sizeLimit", ChangeMethod.RESIZE)
            for name in sorted(limits)
        ]
        old = {**old, "volumes": with_size_limits(before, limits)}
    for path, value, new in _differences(old, cast(JSON, after.spec), ""):
        found.append(Change(path, _way(path, value, new)))
    return found


def _way(path: str, old: Any, new: Any) -> ChangeMethod:
    if path == "tolerations":
        kept = [_lasting(each) for each in new or ()]
        allowed = all(_lasting(each) in kept for each in old or ())
    elif path == "terminationGracePeriodSeconds":
        allowed = new == 1 and old is not None and old < 0
    elif path == "activeDeadlineSeconds":
        allowed = new is not None and (old is None or new <= old)
    elif _EPHEMERAL.fullmatch(path):
        return ChangeMethod.DEBUG if old is None else ChangeMethod.NEVER
    else:
        return next((way for pattern, way in _WAYS if pattern.fullmatch(path)), ChangeMethod.NEVER)
    return ChangeMethod.UPDATE if allowed else ChangeMethod.NEVER


def _lasting(toleration: JSON) -> JSON:
    """All of a toleration but its seconds, which may change."""
    return {key: value for key, value in toleration.items() if key != "tolerationSeconds"}


def _differences(old: Any, new: Any, path: str) -> Iterator[tuple[str, Any, Any]]:
    if old == new:
        return
    if isinstance(old, dict) and isinstance(new, dict):
        for key in sorted({*old, *new}):
            yield from _differences(old.get(key), new.get(key), f"{path}.{key}" if path else key)
        return
    if path in ("containers", "initContainers", "ephemeralContainers"):
        yield from _containers(old or [], new or [], path)
        return
    if path.endswith((".resources", ".requests", ".limits")) or path == "resources":
        yield from _differences(old or {}, new or {}, path)
        return
    yield path, old, new


def _containers(old: list[JSON], new: list[JSON], path: str) -> Iterator[tuple[str, Any, Any]]:
    before = {each.get("name"): each for each in old}
    after = {each.get("name"): each for each in new}
    for name in sorted({*before, *after}, key=str):
        place = f"{path}[{name}]"
        if name in before and name in after:
            yield from _differences(before[name], after[name], place)
        else:
            yield place, before.get(name), after.get(name)
    if list(before) != list(after) and set(before) == set(after):
        yield path, list(before), list(after)
