"""Pods and intents for the tests of this package."""

from __future__ import annotations

from typing import Any, cast

from kubeletpy.base.api import types as api
from kubeletpy.pods import defaults
from kubeletpy.pods.pod import Pod


def container(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "image": f"{name}:1", **more}


def pod(*containers: dict[str, Any], name: str = "p", **more: Any) -> Pod:
    spec = {"containers": list(containers) or [container("a")], **more}
    metadata = {"name": name, "namespace": "ns", "uid": f"uid-{name}"}
    made = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata}
    return Pod(cast(api.Pod, {**made, "spec": defaults.pod_spec(spec)}))
