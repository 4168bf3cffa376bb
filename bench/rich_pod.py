"""The rich pod: init containers, a sidecar, probes and volumes, for the API and as raw CRI configs.

Pure but for the directories that stand in for the volumes of the raw one.
"""

from __future__ import annotations

from pathlib import Path

from bench.manifests import NAMESPACE, SCRIPT, bound_pod, settings
from kubeletpy.base.api import types as api
from kubeletpy.base.api.types import JSON
from kubeletpy.pods.pod import ContainerKind, Mount, Pod
from kubeletpy.remote.generated import api_pb2 as cri
from kubeletpy.runtime_manager.config.container_config import (
    ContainerInputs,
    build_container_config,
)
from tools.env.images import BUSYBOX

SHARED = "bench-rich"
"""The configMap and the secret that it mounts."""
PROBE = ["/bin/test", "-f", "/v/config/a"]
SIDECAR = "sidecar"
INIT = ("init-1", "init-2")
MAIN = ("main-1", "main-2", "main-3")
VOLUMES: dict[str, JSON] = {
    "scratch": {"emptyDir": {}},
    "memory": {"emptyDir": {"medium": "Memory", "sizeLimit": "4Mi"}},
    "config": {"configMap": {"name": SHARED}},
    "secret": {"secret": {"secretName": SHARED}},
    "token": {
        "projected": {
            "sources": [
                {"serviceAccountToken": {"path": "token", "expirationSeconds": 3607}},
                {"configMap": {"name": SHARED}},
            ]
        }
    },
}


def shared_objects() -> tuple[JSON, JSON]:
    """The configMap and the secret."""
    meta = {"name": SHARED, "namespace": NAMESPACE}
    return {"metadata": meta, "data": {"a": "0"}}, {"metadata": meta, "data": {"k": "MA=="}}


def manifest(name: str, node: str) -> JSON:
    """A bound pod with two init containers, a sidecar, three probed containers, five volumes."""
    runs = ["/bin/sh", "-c", SCRIPT]
    probe = {"exec": {"command": PROBE}, "periodSeconds": 1, "timeoutSeconds": 5}
    return bound_pod(
        name,
        node,
        volumes=[{"name": key, **volume} for key, volume in VOLUMES.items()],
        initContainers=[
            *(_container(each, ["/bin/true"]) for each in INIT),
            {**_container(SIDECAR, runs), "restartPolicy": "Always"},
        ],
        containers=[{**_container(each, runs), "readinessProbe": probe} for each in MAIN],
    )


def _container(name: str, command: list[str]) -> JSON:
    return {
        "name": name,
        "image": BUSYBOX,
        "command": command,
        "resources": {"requests": {"cpu": "1m", "memory": "1Mi"}},
        "volumeMounts": [{"name": volume, "mountPath": f"/v/{volume}"} for volume in VOLUMES],
    }


def container_config(pod: Pod, name: str, directory: Path) -> cri.ContainerConfig:
    """For CreateContainer; creates the log directory and those of its mounts."""
    found = pod.find_container(name)
    assert found is not None
    kind, container = found
    mounts = [
        Mount(f"/v/{volume}", str(_directory(directory, volume)), volume=volume)
        for volume in VOLUMES
    ]
    return _config(pod, container, kind, directory, mounts)


def _config(
    pod: Pod, container: api.Container, kind: ContainerKind, directory: Path, mounts: list[Mount]
) -> cri.ContainerConfig:
    inputs = ContainerInputs(restart_count=0, image_ref=BUSYBOX, mounts=mounts)
    return build_container_config(pod, container, kind, settings(directory), inputs)


def _directory(directory: Path, volume: str) -> Path:
    path = directory / "volumes" / volume
    path.mkdir(parents=True, exist_ok=True)
    if volume == "config":
        (path / "a").touch()
    return path
