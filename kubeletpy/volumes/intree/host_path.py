"""PersistentVolumes that are a path of the node.

Nothing is mounted: containers get the path itself, and there is nothing to tear down. Source:
docs/reference/behaviour-storage.md, sc1.
"""

from __future__ import annotations

from functools import partial

from kubeletpy.volumes.claims.model import AttachmentMetadata, Mode, VolumeSource, VolumeSpec
from kubeletpy.volumes.claims.on_disk import FailureOutcome, Published, PublishedOnDisk
from kubeletpy.volumes.claims.operation import OperationFailed, PodUse
from kubeletpy.volumes.files import host_path
from kubeletpy.volumes.files.host_path import HostPathError
from kubeletpy.volumes.intree.base import InTreePlugin


class HostPathPlugin(InTreePlugin):
    """``hostPath`` in a PersistentVolume."""

    name = "kubernetes.io/host-path"
    kinds = frozenset({"hostPath"})

    def problem(self, source: VolumeSource) -> str:
        """A path is required, without ".."."""
        path = str(source.source.get("path") or "")
        if not path.startswith("/") or ".." in path.split("/"):
            return f"{path!r} is no path for a volume: it must be absolute, without '..'"
        return super().problem(source)

    def target(self, pod_uid: str, spec_name: str, mode: Mode) -> str:
        """None: it has no path of its own."""
        return ""

    async def publish(
        self, spec: VolumeSpec, attachment: AttachmentMetadata, use: PodUse, *, remount: bool
    ) -> Published:
        """Check or make the path, as its type requires."""
        path, kind = str(spec.source.get("path")), spec.source.get("type") or ""
        try:
            await self.patient.run(partial(host_path.prepare, path, kind))
        except (HostPathError, OSError) as error:
            message = f"hostPath {path}: {error}"
            raise OperationFailed(FailureOutcome.FINAL, message, call=f"check of {path}") from error
        return Published(path)

    async def unpublish(self, left: PublishedOnDisk) -> None:
        """Nothing to find."""
