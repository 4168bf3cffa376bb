"""The agent's mounts in a container: host paths and files from images."""

from __future__ import annotations

from collections.abc import Iterable

from kubeletpy.base.structs import Struct
from kubeletpy.pods.pod import Pod


class Mount(Struct, frozen=True):
    """A host path that the agent mounts into a container."""

    container_path: str
    host_path: str
    readonly: bool = False
    propagation: str = "PRIVATE"
    """PRIVATE, HOST_TO_CONTAINER or BIDIRECTIONAL."""
    selinux_relabel: bool = False
    recursive_read_only: bool = False
    options: tuple[str, ...] = ()
    """The subset of noexec, nodev and nosuid that the runtime adds to the bind mount."""
    volume: str = ""
    """Name of the pod's volume; empty for the agent's own files."""
    spec_name: str = ""
    """Name of the PersistentVolume behind it; empty: there is none."""
    index: int = 0
    """Which of the container's volumeMounts it is."""
    image: str = ""
    """The image whose files are mounted, as named in the spec; ``host_path`` is then empty."""
    image_pull_policy: str = ""
    image_ref: str = ""
    """The same image by the runtime's name, once it is on the node."""
    image_sub_path: str = ""
    device: str = ""
    """Permissions (``mrw``, ``r``): ``host_path`` is a block device and appears as one in the
    container; empty: it is mounted."""
    group: int | None = None
    """A supplemental group that the container's processes get for access to it."""


def volume_groups(pod: Pod, mounts: Iterable[Mount]) -> list[int]:
    """The supplemental groups that mounts need besides those in the pod's securityContext.

    Source: docs/reference/behaviour.md, j2.
    """
    listed = (pod.spec.get("securityContext") or {}).get("supplementalGroups") or ()
    needed = {mount.group: None for mount in mounts if mount.group is not None}
    return [group for group in needed if group not in listed]
