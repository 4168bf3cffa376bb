"""Checks a pod before anything is read from it: its shape, and the values that the node refuses.

Typed clients reject malformed objects while decoding. We work on plain JSON, so the check of the
shape is our decoding step, once for each object that arrives. From then on every field is absent or
what :mod:`kubeletpy.base.api.types` declares. Unknown fields pass: newer APIs have more. Values are
the API's to validate, but for the few below. Pure.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import cache
from typing import Any

from kubeletpy.base.api import types as api
from kubeletpy.base.api.pod_fields import KINDS, fields_of
from kubeletpy.base.api.quantity import parse as parse_quantity
from kubeletpy.base.api.times import parse_time
from kubeletpy.base.structs import Struct
from kubeletpy.pods.pod import Pod

_Check = Callable[[Any], str]
"""Empty when a value is valid, else the path from here and the problem: ``.spec.x: is not …``."""

_NAMES = {
    str: "a string",
    int: "a whole number",
    bool: "true or false",
    float: "a number",
    dict: "an object",
    list: "a list",
}
_PLAIN: dict[str, type] = {"str": str, "int": int, "bool": bool, "float": float}
_UNCHECKED = frozenset({"managedFields"})
"""Long, and not read by anything here."""
_QUANTITIES = {"ResourceRequirements": ("limits", "requests"), "PodSpec": ("overhead",)}
_TIMES = {"ObjectMeta": ("creationTimestamp", "deletionTimestamp")}
"""Fields, by kind, that are more than plain strings."""
_MAX_NAME = 253
_PATH_FIELDS = ("name", "namespace", "uid")


def pod_problem(obj: object, checked: Collection[object] = ()) -> str:
    """The fault in the shape of a decoded pod; empty when there is none.

    ``checked``: values of its fields, or of its status' fields, that were found right before, the
    same objects.
    """
    unchecked = obj
    if checked and isinstance(obj, dict):
        known = {id(value) for value in checked}
        unchecked = _without(obj, known)
        if isinstance(unchecked.get("status"), dict):
            unchecked["status"] = _without(unchecked["status"], known)
    problem = _check_of("Pod")(unchecked)
    if problem:
        return problem.removeprefix(".").removeprefix(": ")
    assert isinstance(obj, dict), "checked above"
    metadata = obj.get("metadata") or {}
    for field in _PATH_FIELDS:
        # these become parts of paths on the node
        if not _fits_in_a_path(metadata.get(field) or "x"):
            return f"metadata.{field} can't be a part of a path"
    return ""


def _without(obj: Mapping[str, Any], known: Collection[int]) -> dict[str, Any]:
    return {key: value for key, value in obj.items() if id(value) not in known}


def _fits_in_a_path(text: str) -> bool:
    return len(text) <= _MAX_NAME and text not in (".", "..") and not set(text) & {"/", "\0", "\n"}


@cache
def _check_of(kind: str) -> _Check:
    """``kind``: a type as :mod:`kubeletpy.base.api.pod_fields` has it."""
    if kind in KINDS:
        return _object_check(kind)
    if kind.startswith("list["):
        return _list_check(_check_of(kind[len("list[") : -1]))
    if kind.startswith("dict["):
        return _map_of(_check_of(kind.partition(", ")[2][:-1]))
    if kind == "JSON":
        return _map_of(_check_of("Any"))
    plain = [_PLAIN.get(each) for each in kind.split(" | ")]
    known = tuple(each for each in plain if each is not None)
    return _Plain(known) if len(known) == len(plain) else lambda value: ""


class _Plain(Struct, frozen=True):
    """The check of a value without parts."""

    kinds: tuple[type, ...]

    def __call__(self, value: Any) -> str:
        # type(), not isinstance: true is not a number
        if type(value) in self.kinds:
            return ""
        return f": is not {' or '.join(_NAMES[kind] for kind in self.kinds)}"


def _list_check(item: _Check) -> _Check:
    def check(value: Any) -> str:
        if type(value) is not list:
            return ": is not a list"
        for index, one in enumerate(value):
            if problem := item(one):
                return f"[{index}]{problem}"
        return ""

    return check


def _map_of(item: _Check) -> _Check:
    def check(value: Any) -> str:
        if type(value) is not dict:
            return ": is not an object"
        for key, one in value.items():
            if problem := item(one):
                return f"[{key!r:.80}]{problem}"
        return ""

    return check


def _object_check(kind: str) -> _Check:
    fields: dict[str, _Check] = {}
    plain: dict[str, tuple[type, ...]] = {}

    def check(value: Any) -> str:
        if type(value) is not dict:
            return ": is not an object"
        if not fields:  # most kinds never occur
            fields.update(_field_checks(kind))
            plain.update((n, c.kinds) for n, c in fields.items() if isinstance(c, _Plain))
        for key, one in value.items():
            # most values are plain and right: a call for each doubles a large pod's time
            if type(one) in plain.get(key, ()):
                continue
            field = fields.get(key)
            if field is not None and (problem := field(one)):
                return f".{key}{problem}"
        return ""

    return check


def _field_checks(kind: str) -> dict[str, _Check]:
    fields = fields_of(kind).items()
    checks = {name: _check_of(each) for name, each in fields if name not in _UNCHECKED}
    for name in _QUANTITIES.get(kind, ()):
        checks[name] = _map_of(_quantity)
    for name in _TIMES.get(kind, ()):
        checks[name] = _time
    return checks


def _quantity(value: Any) -> str:
    if type(value) in (int, float):  # as manifests may spell it: `cpu: 1`
        return ""
    return _readable(value, parse_quantity, "a quantity")


def _time(value: Any) -> str:
    return _readable(value, parse_time, "a time")


def _readable(value: Any, read: Callable[[str], object], what: str) -> str:
    if type(value) is not str:
        return f": is not {what}"
    try:
        read(value)
    except ValueError:
        return f": {value[:40]!r} is not {what}"
    return ""


# -- fields of 1.37 that concern volumes, for static pods and the embedded API ---------------
#
# Kubernetes checks them whether their gates are on or not.
# Source: docs/reference/behaviour.md, i13.

BIND_MOUNT_OPTIONS = ("nodev", "noexec", "nosuid")
MAX_MODE = 0o1777
"""Maximum mode of an emptyDir."""
MAX_ID = 2**31 - 1
"""The largest user or group id that API servers accept."""
FILE_SOURCES = ("configMap", "secret", "downwardAPI", "projected")
_SINGLE_FILES = ("serviceAccountToken", "clusterTrustBundle", "podCertificate")
CONTAINERS = ("containers", "initContainers", "ephemeralContainers")
_MAX_REPORTED = 256
"""Characters of a value in a message like the API's."""


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
        reported = _reported(json.dumps(self.value, ensure_ascii=False, separators=(",", ":")))
        detail = f": {self.detail}" if self.detail else ""
        return f"{_REASONS[self.reason]}: {reported}{detail}"


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
    if user is not None and not 0 <= user <= MAX_ID:
        detail = f"must be between 0 and {MAX_ID}, inclusive"
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


def _reported(text: str) -> str:
    return text if len(text) <= _MAX_REPORTED else text[: _MAX_REPORTED - 1] + "…"


# -- values that weaken a pod where they are unknown: names of an enum, and ids --------------
#
# An API server validates them, but a manifest, another API or a newer server's value reaches the
# node as it is. An unknown restartPolicy would run a container again, an unknown imagePullPolicy
# would skip the registry, and an id beyond 2^32 is root's in a runtime that cuts it off. Such a
# spec is refused. Values whose default is the stronger one (procMount, mountPropagation) are not
# checked.

PROTOCOLS = ("TCP", "UDP", "SCTP")
PULL_POLICIES = ("Always", "IfNotPresent", "Never")
RESTART_POLICIES = ("Always", "OnFailure", "Never")
POD_ENUMS: Mapping[str, tuple[str, ...]] = {
    "restartPolicy": RESTART_POLICIES,
    "dnsPolicy": ("ClusterFirst", "ClusterFirstWithHostNet", "Default", "None"),
}
_ACTIONS = ("Restart", "RestartAllContainers")
_OPERATORS = ("In", "NotIn")
_IDS = ("runAsUser", "runAsGroup", "fsGroup")
_MAX_UNKNOWN = 40
"""Characters of an unknown value in a message."""


def unknown(field: str, value: object, known: tuple[str, ...]) -> str:
    """The problem of a value that is not one of those known; empty when it is."""
    if value in known:
        return ""
    reported = "missing" if value is None else f'"{value!s:.{_MAX_UNKNOWN}}"'
    return f"{field} is {reported}, not one of {', '.join(known)}; correct the pod's spec"


def id_problem(field: str, value: int) -> str:
    """The problem of a user or group id; empty when it is one."""
    if 0 <= value <= MAX_ID:
        return ""
    return f"{field} is {value}, not an id from 0 to {MAX_ID}; correct the pod's spec"


def unknown_value(pod: Pod) -> str:
    """The first value for which no sandbox is made; empty when all are known."""
    return next(filter(None, _pod_problems(pod)), "")


def container_problem(container: api.Container) -> str:
    """The first value for which a container is not made; empty when all are known."""
    return next(filter(None, _container_problems(container)), "")


def pull_policy_problem(container: api.Container) -> str:
    """The problem of the pull policy of an image; none: that of its tag."""
    return _optional(container, "imagePullPolicy", PULL_POLICIES)


def context_problem(context: Mapping[str, Any]) -> str:
    """The first id of a security context, of a pod or a container, that is none; or empty."""
    ids = [(name, context.get(name)) for name in _IDS]
    ids += [("supplementalGroups", each) for each in context.get("supplementalGroups") or ()]
    found = (id_problem(f"securityContext.{n}", v) for n, v in ids if v is not None)
    return next(filter(None, found), "")


def _pod_problems(pod: Pod) -> Iterator[str]:
    for field, known in POD_ENUMS.items():
        yield _optional(pod.spec, field, known)
    yield context_problem(pod.spec.get("securityContext") or {})
    for _, container in pod.all_containers():
        for port in container.get("ports") or ():
            if problem := _optional(port, "protocol", PROTOCOLS):
                yield f"container {container['name']}: port's {problem}"


def _container_problems(container: api.Container) -> Iterator[str]:
    if (policy := container.get("restartPolicy")) is not None:
        yield unknown("restartPolicy", policy, RESTART_POLICIES)
    for rule in container.get("restartPolicyRules") or ():
        yield unknown("restartPolicyRules: action", rule.get("action"), _ACTIONS)
        if codes := rule.get("exitCodes"):
            yield unknown("restartPolicyRules: operator", codes.get("operator"), _OPERATORS)
    yield pull_policy_problem(container)
    yield context_problem(container.get("securityContext") or {})


def _optional(spec: Mapping[str, Any], field: str, known: tuple[str, ...]) -> str:
    value = spec.get(field)
    return unknown(field, value, known) if value else ""
