"""Whether memory-backed volumes may end up in swap, on a disk.

Source: docs/reference/behaviour-resources.md, rk. Such volumes (secrets among them) are mounted
with ``noswap`` where the kernel supports it.
"""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

from kubeletpy.volumes.files.syscalls import mount, unmount

NOSWAP_SINCE = (6, 4)
"""The kernel that introduced the option; distributions have backported it to older ones."""
NOTICE = (
    "Swap is on, and the kernel does not support the tmpfs option noswap: memory-backed volumes, "
    "secrets among them, may be written to disk"
)


def supports_noswap(kernel_version: str, *, in_user_namespace: bool) -> bool | None:
    """Whether tmpfs has the option; None: only trying shows it. Pure."""
    if in_user_namespace:
        return False
    found = re.match(r"(\d{1,4})\.(\d{1,4})", kernel_version)
    if found and (int(found[1]), int(found[2])) >= NOSWAP_SINCE:
        return True
    return None


def mounts_noswap(root: Path) -> bool:
    """Try it in a directory below ``root``, which is removed afterwards."""
    try:
        with tempfile.TemporaryDirectory(prefix="noswap-", dir=root) as directory:
            mount("tmpfs", directory, "tmpfs", data="noswap")
            unmount(directory)
    except OSError:
        return False
    return True
