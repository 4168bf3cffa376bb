"""What the agent puts into a container: paths of the host and files of images."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Mount:
    """A host path that the agent puts into a container."""

    container_path: str
    host_path: str
    readonly: bool = False
    propagation: str = "PRIVATE"
    """PRIVATE, HOST_TO_CONTAINER or BIDIRECTIONAL."""
    selinux_relabel: bool = False
    recursive_read_only: bool = False
    volume: str = ""
    """Name of the pod's volume; empty for files of the agent."""
    index: int = 0
    """Which of the container's volumeMounts it is."""
    image: str = ""
    """An image whose files are mounted, as the spec names it; ``host_path`` is empty then."""
    image_pull_policy: str = ""
    image_ref: str = ""
    """That image as the runtime knows it, once it is on the node."""
    image_sub_path: str = ""
    device: str = ""
    """Permissions (``mrw``, ``r``): ``host_path`` is a block device, and becomes one in the
    container; empty: it is mounted."""
    group: int | None = None
    """A supplemental group that the container's processes get for it."""
