"""Facts about this machine, as shown in a Node object.

Pure. A fact that could not be read is empty or 0.
"""

from __future__ import annotations

from collections.abc import Mapping

from kubeletpy.base.structs import Struct, field


class MachineFacts(Struct, frozen=True):
    """One machine at one boot."""

    hostname: str
    architecture: str
    kernel_version: str
    os_image: str
    machine_id: str
    system_uuid: str
    boot_id: str
    cpu_count: int
    memory_bytes: int
    swap_bytes: int
    root_storage_bytes: int
    """Size of the file system that holds the agent's root directory."""
    huge_pages: Mapping[int, int] = field(default_factory=dict)
    """Page size -> bytes reserved in pages of that size."""
    in_user_namespace: bool = False
    """Whether the agent runs in a user namespace other than the initial one."""
