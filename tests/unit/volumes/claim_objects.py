"""Claims, volumes, pods and volume managers for tests of claim-backed volumes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, cast

from kubeletpy.metrics.families import Families
from kubeletpy.metrics.volumes import VolumeMetrics
from kubeletpy.pods.pod import Pod
from kubeletpy.volumes.claims.model import Mode, VolumeSource, VolumeSpec, VolumeTraits, Waits
from kubeletpy.volumes.claims.plugin import VolumePlugin
from kubeletpy.volumes.claims.resolve import Attached, ClaimVolume, NodeObservation
from kubeletpy.volumes.operations.acts import Expander, VolumeActs
from kubeletpy.volumes.operations.reporter import Reporter
from kubeletpy.volumes.volume_manager import VolumeManager


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


class ObservedNode:
    """What the API shows of a node without claims: each volume is attached."""

    def __init__(self, in_use: frozenset[str] | None = None) -> None:
        self.in_use = in_use

    def observe(self, specs: Collection[VolumeSpec]) -> NodeObservation:
        attachments = {each.unique_name: self.attachment(each) for each in specs}
        return NodeObservation(self.in_use, attachments)

    def attachment(self, spec: VolumeSpec) -> Attached | Waits:
        return Attached()

    def on_change(self, listener: Callable[[str], None]) -> None:
        pass

    def release(self, uid: str) -> None:
        pass

    async def close(self) -> None:
        pass


class Failures(Reporter):
    """Keeps the messages of operations that failed, and reports nothing else."""

    def __init__(self) -> None:
        super().__init__(cast(Any, None), VolumeMetrics(Families()))
        self.messages: list[str] = []

    def ended(self, *args: Any) -> None:
        *_, failed = args
        if failed is not None:
            self.messages.append(failed.message)


def volume_manager(
    plugin: VolumePlugin,
    observed: ObservedNode,
    failures: Failures | None = None,
    changed: Callable[[str], None] = lambda uid: None,
) -> VolumeManager:
    """A manager of one plugin's volumes, without claims."""
    no, reporter = cast(Any, None), failures or Failures()
    acts = VolumeActs(Expander(no, no, no, "n"), reporter)
    return VolumeManager((plugin,), cast(Any, observed), acts, reporter, changed=changed)
