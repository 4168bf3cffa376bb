"""Events about volume operations that have not failed: slow, odd or completed ones.

Pure. Source: docs/reference/behaviour-storage.md, si2, sp1, sp2, ss.
"""

from __future__ import annotations

from kubeletpy.kubeapi.events.reasons import Reason
from kubeletpy.kubeapi.events.recorder import NORMAL, WARNING, EventRecorder, pod_reference
from kubeletpy.volumes.claims.model import VolumeSpec
from kubeletpy.volumes.claims.on_disk import Published
from kubeletpy.volumes.claims.operation import PodUse

_HINT = (
    "consider using OnRootMismatch - https://kubernetes.io/docs/tasks/configure-pod-container/"
    "security-context/#configure-volume-permission-and-ownership-change-policy-for-pods"
)


class VolumeNotices:
    """Emits the events."""

    def __init__(self, recorder: EventRecorder) -> None:
        self._recorder = recorder

    def mapped(self, spec: VolumeSpec, use: PodUse, published: Published) -> None:
        """A pod has got a block device."""
        word = f'MapVolume.MapPodDevice succeeded for volume "{spec.spec_name}" '
        there = published.map_directory
        parts = [f'globalMapPath "{there}"'] if there else []
        parts.append(f'volumeMapPath "{published.path.rpartition("/")[0]}"')
        for part in parts:
            self._recorder.event(
                pod_reference(use.pod), NORMAL, Reason.SUCCESSFUL_MOUNT_VOLUME, word + part
            )

    def shared(self, spec: VolumeSpec, use: PodUse, group: int) -> None:
        """A pod requests a volume's files for another group than the pods that have it."""
        message = (
            f"The requested fsGroup is {use.fs_group}, but the volume {spec.spec_name} has GID "
            f"{group}. The volume may not be shareable."
        )
        self._warn(use, Reason.ALREADY_MOUNTED_VOLUME, message)

    def owning(self, use: PodUse, path: str, files: int | None) -> None:
        """The fsGroup is still being applied: ``files`` so far; None: it takes long."""
        about = f"Setting volume ownership for {path[max(path.find(use.uid), 0) :]}"
        said = (
            f" is taking longer than expected, {_HINT}"
            if files is None
            else f", processed {files} files."
        )
        self._warn(use, Reason.VOLUME_PERMISSION_CHANGE_IN_PROGRESS, about + said)

    def _warn(self, use: PodUse, reason: Reason, message: str) -> None:
        self._recorder.event(pod_reference(use.pod), WARNING, reason, message)
