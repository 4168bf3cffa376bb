"""Claims, volumes and pods for tests of claim-backed volumes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kubeletpy.pods.pod import Pod
from kubeletpy.volumes.claims.model import Mode, VolumeSource, VolumeSpec, VolumeTraits, Waits
from kubeletpy.volumes.claims.resolve import ClaimVolume


def pod(uid: str = "u1", name: str = "p", **spec: Any) -> Pod:
    return Pod(
        {
            "metadata": {"name": name, "namespace": "ns", "uid": uid},
            "spec": {"containers": [{"name": "c", "image": "i"}], **spec},  # type: ignore[typeddict-item]
        }
    )


def claim(**changes: Any) -> dict[str, Any]:
    made: dict[str, Any] = {
        "metadata": {"name": "data", "namespace": "ns", "uid": "claim-uid"},
        "spec": {"volumeName": "pv1"},
        "status": {"phase": "Bound", "capacity": {"storage": "1Gi"}},
    }
    for key, value in changes.items():
        made[key] = {**made[key], **value}
    return made


def pv(source: Mapping[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": "pv1"},
        "spec": {
            "capacity": {"storage": "1Gi"},
            "claimRef": {"uid": "claim-uid", "namespace": "ns", "name": "data"},
            "volumeMode": "Filesystem",
            "accessModes": ["ReadWriteOnce"],
            **(source or {"csi": {"driver": "d", "volumeHandle": "h"}}),
            **spec,
        },
    }


def volume(kind: str = "persistentVolumeClaim", **source: Any) -> ClaimVolume:
    if kind == "persistentVolumeClaim":
        source.setdefault("claimName", "data")
    return ClaimVolume("v", kind, source, mounted=True, mapped=False)


def spec(name: str = "vol", **changes: Any) -> VolumeSpec:
    made: dict[str, Any] = {
        "plugin": "kubernetes.io/csi",
        "kind": "csi",
        "pod_volume": "v",
        "spec_name": "pv1",
        "unique_name": name,
        "source": {"driver": "d", "volumeHandle": "h"},
        "mode": Mode.FILESYSTEM,
        "read_only": False,
        "device_mountable": True,
    }
    return VolumeSpec(**{**made, **changes})


class Csi:
    """A plugin that describes CSI volumes as in table sc1."""

    name = "kubernetes.io/csi"
    kinds = frozenset({"csi"})

    def traits(self, source: VolumeSource) -> VolumeTraits | Waits:
        if source.inline:
            return VolumeTraits(f"{self.name}/{source.pod_uid}-{source.spec_name}", False, False)
        unique = f"{self.name}/{source.source['driver']}^{source.source['volumeHandle']}"
        return VolumeTraits(unique, attachable=True, device_mountable=True)
