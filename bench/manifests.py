"""The pods of the benches: one kind of pod, as created in the API and as made by raw CRI calls.

The raw configs come from the agent's own builders, so that the runtime has the same work on both
sides. Pure.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

from kubeletpy.base.api.types import JSON
from kubeletpy.pods.pod import ContainerKind, Pod
from kubeletpy.remote.generated import api_pb2 as cri
from kubeletpy.runtime_manager.config.container_config import (
    ContainerInputs,
    build_container_config,
)
from kubeletpy.runtime_manager.config.sandbox_config import ResolverConfig, build_pod_sandbox_config
from kubeletpy.runtime_manager.config.settings import RuntimeSettings
from tools.env.images import BUSYBOX

NAMESPACE = "default"
CONTAINER = "main"
SCRIPT = "trap 'exit 0' TERM; sleep 100000 & wait"
"""Exits successfully at once on SIGTERM."""
_NOW = "2030-01-01T00:00:00Z"


def bound_pod(name: str, node: str, **spec: Any) -> JSON:
    """A bound pod, without a token unless ``spec`` mounts one."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": {"app": "bench"}},
        "spec": {
            "nodeName": node,
            "dnsPolicy": "Default",
            "automountServiceAccountToken": False,
            **spec,
        },
    }


def manifest(name: str, node: str) -> JSON:
    """A bound pod: one container that runs until SIGTERM and is not restarted then."""
    container = {
        "name": CONTAINER,
        "image": BUSYBOX,
        "command": ["/bin/sh", "-c", SCRIPT],
        "resources": {"requests": {"cpu": "1m", "memory": "1Mi"}},
    }
    return bound_pod(name, node, restartPolicy="Never", containers=[container])


def sandbox_config(pod: Pod, directory: Path) -> cri.PodSandboxConfig:
    """For RunPodSandbox; logs go below ``directory``."""
    return build_pod_sandbox_config(pod, 0, settings(directory), ResolverConfig())


def container_config(pod: Pod, directory: Path) -> cri.ContainerConfig:
    """For CreateContainer."""
    inputs = ContainerInputs(restart_count=0, image_ref=BUSYBOX)
    return build_container_config(
        pod, pod.containers[0], ContainerKind.REGULAR, settings(directory), inputs
    )


def settings(directory: Path) -> RuntimeSettings:
    """The builders' settings: logs go below ``directory``."""
    return RuntimeSettings(
        pod_logs_dir=str(directory / "logs"), container_logs_dir=str(directory / "links")
    )


def status_patch(pod: Pod, phase: str, container_id: str = "", ip: str = "") -> JSON:
    """A status write as large as an agent's: ``phase`` is Pending, Running or Succeeded."""
    ready = "True" if phase == "Running" else "False"
    states: dict[str, JSON] = {
        "Pending": {"waiting": {"reason": "ContainerCreating"}},
        "Running": {"running": {"startedAt": _NOW}},
        "Succeeded": {"terminated": {"exitCode": 0, "reason": "Completed", "finishedAt": _NOW}},
    }
    conditions = {"PodReadyToStartContainers": ready, "Initialized": "True"}
    conditions |= {"Ready": ready, "ContainersReady": ready}
    entry = {
        "name": CONTAINER,
        "image": BUSYBOX,
        "imageID": f"sha256:{'0' * 64}" if container_id else "",
        "containerID": f"containerd://{container_id}" if container_id else "",
        "ready": phase == "Running",
        "started": phase == "Running",
        "restartCount": 0,
        "state": states[phase],
    }
    status: JSON = {
        "phase": phase,
        "startTime": _NOW,
        "hostIP": "127.0.0.1",
        "hostIPs": [{"ip": "127.0.0.1"}],
        "qosClass": "Burstable",
        "conditions": [
            {"type": kind, "status": value, "lastTransitionTime": _NOW}
            for kind, value in conditions.items()
        ],
        "containerStatuses": [entry],
    }
    if ip:
        status |= {"podIP": ip, "podIPs": [{"ip": ip}]}
    return {"metadata": {"uid": pod.uid}, "status": status}


def as_pod(obj: JSON) -> Pod:
    """An API object in the form that the builders expect."""
    return Pod(cast(Any, obj))
