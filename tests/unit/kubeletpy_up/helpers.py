"""Helpers for tests of the embedded API: a settable clock, a registry in memory, objects."""

from __future__ import annotations

import random
from typing import Any

from kubeletpy_up.errors import ApiError
from kubeletpy_up.registry.registry import Registry
from kubeletpy_up.requests import ADMIN, node_caller
from kubeletpy_up.storage.store import Store

START = 1_700_000_000.0
NODE = node_caller("n1")


class SetClock:
    """A clock that changes only when a test sets it."""

    def __init__(self, now: float = START) -> None:
        self.time = now

    def now(self) -> float:
        return self.time


def make_registry(path: str = ":memory:", **options: Any) -> Registry:
    clock = options.pop("clock", None) or SetClock()
    options.setdefault("rng", random.Random(1))
    return Registry(clock, Store(path, clock), **options)


def pod(name: str = "web", **spec: Any) -> dict[str, Any]:
    containers = spec.pop("containers", [{"name": "c", "image": "busybox:1"}])
    return {"metadata": {"name": name}, "spec": {"containers": containers, **spec}}


def bound_pod(registry: Registry, name: str = "web", node: str = "n1", **spec: Any) -> Any:
    registry.create(ADMIN, "pods", pod(name, **spec), "default")
    target = {"target": {"kind": "Node", "name": node}}
    registry.create(ADMIN, "pods", target, "default", name=name, subresource="binding")
    return registry.get(ADMIN, "pods", name, "default")


def node(name: str = "n1", **status: Any) -> dict[str, Any]:
    room = {"cpu": "2", "memory": "4Gi", "pods": "10"}
    ready = {"type": "Ready", "status": "True"}
    return {
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        "status": {"capacity": room, "allocatable": room, "conditions": [ready], **status},
    }


def refusal(call: Any, *args: Any, **kwargs: Any) -> ApiError:
    """The error that a call ends with."""
    try:
        call(*args, **kwargs)
    except ApiError as error:
        return error
    raise AssertionError("nothing was refused")
