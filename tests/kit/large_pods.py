"""Pods as large as a real API server accepts, one for each kind of field that may repeat."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from kubeletpy.base.api.types import JSON

NAME = "large"
SETTINGS: JSON = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"name": "settings"},
    "data": {"a": "1"},
}
"""The object that some of them refer to."""


class Make(Protocol):
    """Makes a container that runs until it is stopped."""

    def __call__(self, name: str, **more: Any) -> JSON:
        """``more``: fields of it."""
        ...


def _pod(containers: list[JSON], **spec: Any) -> JSON:
    about: JSON = {"name": NAME}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": about,
        "spec": {"containers": containers, **spec},
    }


def many(count: int, entry: Callable[[int], Any]) -> list[Any]:
    return [entry(number) for number in range(count)]


def environment(make: Make) -> JSON:
    def refers(number: int) -> JSON:
        return {"name": f"VARIABLE_{number}", "value": f"$(VARIABLE_{number - 1}) $$"[:40]}

    literal = many(2500, lambda n: {"name": f"VARIABLE_{n}", "value": f"a value, {n}"})
    mixed = [refers(n) if n % 2 else each for n, each in enumerate(literal)]
    return _pod(many(8, lambda n: make(f"c{n}", env=mixed if n % 2 else literal)))


def mounts(make: Make) -> JSON:
    volumes = many(1000, lambda n: {"name": f"v{n}", "emptyDir": {}})
    uses = many(1000, lambda n: {"name": f"v{n}", "mountPath": f"/m/{n}"})
    made = many(40, lambda n: make(f"c{n}", volumeMounts=uses))
    return _pod(made, volumes=volumes)


def objects(make: Make) -> JSON:
    volumes = many(1000, lambda n: {"name": f"v{n}", "configMap": {"name": "settings"}})
    uses = many(1000, lambda n: {"name": f"v{n}", "mountPath": f"/m/{n}"})
    return _pod([make("c", volumeMounts=uses)], volumes=volumes)


def annotation(make: Make) -> JSON:
    return annotated(make, 250 * 1024)


def annotated(make: Make, size: int) -> JSON:
    field = {"fieldRef": {"fieldPath": "metadata.annotations['large']"}}
    volumes = many(
        20, lambda n: {"name": f"v{n}", "downwardAPI": {"items": [{"path": "a", **field}]}}
    )
    uses = many(20, lambda n: {"name": f"v{n}", "mountPath": f"/m/{n}"})
    env = [{"name": "LARGE", "valueFrom": field}]
    made = _pod([make("c", env=env, volumeMounts=uses)], volumes=volumes)
    made["metadata"]["annotations"] = {"large": "y" * size}
    return made


def fields(make: Make) -> JSON:
    """Files that each show all annotations, and as many small ones as fit."""
    whole = {"fieldRef": {"fieldPath": "metadata.annotations"}}
    limit = {"resourceFieldRef": {"containerName": "c", "resource": "limits.cpu"}}
    items = many(60, lambda n: {"path": f"a{n}", **whole})
    items += many(5000, lambda n: {"path": f"l{n}", **limit})
    volume = {"name": "v", "downwardAPI": {"items": items}}
    use = {"name": "v", "mountPath": "/m"}
    made = _pod([make("c", volumeMounts=[use])], volumes=[volume])
    made["metadata"]["annotations"] = {"large": "\n" * 250_000}
    return made


def references(make: Make) -> JSON:
    """Variables that each show a key of the same object, and commands made of them."""
    key = {"configMapKeyRef": {"name": "settings", "key": "a"}}
    env = many(5000, lambda n: {"name": f"VARIABLE_{n}", "valueFrom": key})
    env.append({"name": "LARGE", "value": "x" * 50_000})
    args = many(100, lambda n: "$(LARGE)")
    return _pod([make("c", env=env, args=args)])


def hook(make: Make) -> JSON:
    handler = {"exec": {"command": ["sh", "-c", "x" * 1_300_000]}}
    return _pod([make("c", lifecycle={"preStop": handler})])


def containers(make: Make) -> JSON:
    probe = {"exec": {"command": ["true"]}, "periodSeconds": 60}
    return _pod(many(200, lambda n: make(f"c{n}", readinessProbe=probe)))


def lists(make: Make) -> JSON:
    return _pod(
        [make("c", ports=many(5000, lambda n: {"containerPort": n + 1}))],
        tolerations=many(5000, lambda n: {"key": f"k{n}", "operator": "Exists"}),
        hostAliases=many(5000, lambda n: {"ip": "192.0.2.1", "hostnames": [f"h{n}"]}),
        imagePullSecrets=many(2000, lambda n: {"name": f"s{n}"}),
    )
