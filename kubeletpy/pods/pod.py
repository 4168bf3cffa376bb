"""A pod: a read-only view of the API object, with the properties that all packages use.

Must never change the object (it is shared with caches and watches), read a clock or do I/O.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import StrEnum
from functools import cached_property
from typing import Any

from kubeletpy.base.api import types as api

CONFIG_SOURCE = "kubernetes.io/config.source"
CONFIG_SEEN = "kubernetes.io/config.seen"
CONFIG_HASH = "kubernetes.io/config.hash"
CONFIG_MIRROR = "kubernetes.io/config.mirror"

MAX_GRACE_S = 2**31 - 1
"""Seconds: 68 years. The API accepts any 64-bit number as a grace period, which would overflow a
runtime's nanoseconds and the deadline of a call."""

SOURCE_API = "api"
SOURCE_FILE = "file"
SOURCE_HTTP = "http"

TERMINAL_PHASES = ("Succeeded", "Failed")
"""Phases that a pod never leaves."""


class MalformedPod(ValueError):
    """A pod object that lacks a field every pod has; the message names the field."""


class ContainerKind(StrEnum):
    """A pod spec's container lists; values are the kubelet's ``container_type`` metric label."""

    REGULAR = "container"
    INIT = "init_container"
    EPHEMERAL = "ephemeral_container"


_LISTS = {
    ContainerKind.REGULAR: "containers",
    ContainerKind.INIT: "initContainers",
    ContainerKind.EPHEMERAL: "ephemeralContainers",
}
"""The fields of a spec that list containers."""


class Pod:
    """A pod from the API, a manifest file or a manifest URL.

    Two views are equal when their objects are equal.
    """

    def __init__(self, obj: api.Pod) -> None:
        """Wrap a decoded object.

        Raises:
            MalformedPod: name, namespace, uid or the container list is missing or has the wrong
                type.
        """
        self.object = obj
        metadata: Mapping[str, Any] = _mapping(obj, "metadata")
        self.uid = _text(metadata, "uid")
        self.name = _text(metadata, "name")
        self.namespace = _text(metadata, "namespace")
        spec = _mapping(obj, "spec")
        for field in _LISTS.values():
            _check_containers(spec.get(field), field)
        if not spec.get("containers"):
            raise MalformedPod(f"pod {self.namespace}/{self.name}: spec.containers is empty")

    @property
    def metadata(self) -> api.ObjectMeta:
        """The object's metadata."""
        return self.object["metadata"]

    @property
    def spec(self) -> api.PodSpec:
        """The object's spec."""
        return self.object["spec"]

    @property
    def status(self) -> api.PodStatus:
        """The status that the API server had when it sent the object; empty when it had none."""
        return self.object.get("status") or {}

    @property
    def labels(self) -> Mapping[str, str]:
        """Labels, possibly none."""
        return self.metadata.get("labels") or {}

    @cached_property
    def annotations(self) -> Mapping[str, str]:
        """Annotations, possibly none."""
        return self.metadata.get("annotations") or {}

    @property
    def generation(self) -> int:
        """metadata.generation; 0 for static pods."""
        return self.metadata.get("generation") or 0

    @cached_property
    def full_name(self) -> str:
        """``{name}_{namespace}``: what links a static pod and its mirror."""
        return f"{self.name}_{self.namespace}"

    @property
    def key(self) -> str:
        """``{namespace}/{name}``, for people."""
        return f"{self.namespace}/{self.name}"

    @property
    def description(self) -> str:
        """``{name}_{namespace}({uid})``, as pods are named in the kubelet's messages."""
        return f"{self.full_name}({self.uid})"

    @property
    def source(self) -> str:
        """Where the pod came from: api, file or http."""
        return self.annotations.get(CONFIG_SOURCE, SOURCE_API)

    @property
    def is_mirror(self) -> bool:
        """Whether this is the mirror of a static pod in the API."""
        return CONFIG_MIRROR in self.annotations

    @cached_property
    def is_static(self) -> bool:
        """Whether the pod comes from a manifest of this node, not from the API."""
        return self.source != SOURCE_API

    def is_shown_by(self, mirror: Pod) -> bool:
        """Whether a mirror is of this static pod's manifest, not of an earlier one of that name."""
        return mirror.annotations.get(CONFIG_MIRROR) == self.annotations.get(CONFIG_HASH, self.uid)

    @property
    def being_deleted(self) -> bool:
        """Whether deletion was requested."""
        return bool(self.metadata.get("deletionTimestamp"))

    @property
    def priority(self) -> int:
        """spec.priority; 0 when it has none."""
        return self.spec.get("priority") or 0

    @property
    def deletion_grace_period(self) -> int | None:
        """metadata.deletionGracePeriodSeconds, at most MAX_GRACE_S."""
        grace = self.metadata.get("deletionGracePeriodSeconds")
        return None if grace is None else min(grace, MAX_GRACE_S)

    @property
    def termination_grace_period(self) -> int:
        """spec.terminationGracePeriodSeconds, at most MAX_GRACE_S; 30 when it has none."""
        grace = self.spec.get("terminationGracePeriodSeconds")
        return 30 if grace is None else min(grace, MAX_GRACE_S)

    @property
    def restart_policy(self) -> str:
        """Always, OnFailure or Never."""
        return self.spec.get("restartPolicy") or "Always"

    @property
    def host_network(self) -> bool:
        """Whether the pod shares the node's network."""
        return bool(self.spec.get("hostNetwork"))

    @property
    def phase(self) -> str:
        """The API's phase; empty when the object has no status."""
        return self.status.get("phase") or ""

    @cached_property
    def is_terminal_in_api(self) -> bool:
        """Whether the API already shows Succeeded or Failed."""
        return self.phase in TERMINAL_PHASES

    @property
    def containers(self) -> list[api.Container]:
        """Regular containers."""
        return self.spec["containers"]

    @property
    def init_containers(self) -> list[api.Container]:
        """Init containers in order, including sidecars."""
        return self.spec.get("initContainers") or []

    @property
    def ephemeral_containers(self) -> list[api.Container]:
        """Ephemeral containers; their common fields are those of a container."""
        return self.spec.get("ephemeralContainers") or []  # type: ignore[return-value]

    def all_containers(self) -> Iterator[tuple[ContainerKind, api.Container]]:
        """Every container with its kind: init, regular, ephemeral."""
        for container in self.init_containers:
            yield ContainerKind.INIT, container
        for container in self.containers:
            yield ContainerKind.REGULAR, container
        for container in self.ephemeral_containers:
            yield ContainerKind.EPHEMERAL, container

    def find_container(self, name: str) -> tuple[ContainerKind, api.Container] | None:
        """The container with that name and its kind."""
        for kind, container in self.all_containers():
            if container.get("name") == name:
                return kind, container
        return None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Pod) and (
            self.object is other.object or self.object == other.object
        )

    __hash__ = None  # type: ignore[assignment]  # a mutable-looking value: key by uid

    def __repr__(self) -> str:
        return f"Pod({self.description})"


def is_sidecar(container: api.Container) -> bool:
    """Whether an init container is a sidecar (KEP-753): restartPolicy Always on the container."""
    return container.get("restartPolicy") == "Always"


def field_path(kind: ContainerKind, name: str) -> str:
    """The fieldPath by which events refer to a container."""
    return f"spec.{_LISTS[kind]}{{{name}}}"


def _mapping(obj: Mapping[str, Any], field: str) -> Mapping[str, Any]:
    value = obj.get(field) if isinstance(obj, Mapping) else None
    if not isinstance(value, Mapping):
        raise MalformedPod(f"{field} is missing or not an object")
    return value


def _text(metadata: Mapping[str, Any], field: str) -> str:
    value = metadata.get(field)
    if not isinstance(value, str) or not value:
        raise MalformedPod(f"metadata.{field} is missing or not a string")
    return value


def _check_containers(value: object, field: str) -> None:
    if value is None:
        return
    if not isinstance(value, list):
        raise MalformedPod(f"spec.{field} is not a list")
    for index, container in enumerate(value):
        if not isinstance(container, Mapping) or not isinstance(container.get("name"), str):
            raise MalformedPod(f"spec.{field}[{index}] has no name")
