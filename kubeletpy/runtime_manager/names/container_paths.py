"""Where the agent keeps its own files of a container. Pure."""

from __future__ import annotations

import re

from kubeletpy.runtime_manager.names.log_paths import UnsafeName

_TERMINATION_FILE = re.compile(r"[0-9a-f]{8}")


def container_parts(uid: str, container: str) -> tuple[str, ...]:
    """Of a container's directory, below the kubelet's root directory. Raises UnsafeName."""
    for part in (uid, container):
        if not part or "/" in part or "\0" in part or part in (".", ".."):
            raise UnsafeName(f"{part!r} cannot be part of a path")
    return ("pods", uid, "containers", container)


def termination_file(root: str, uid: str, container: str, path: str) -> str:
    """Where the file for last words is that is mounted; empty for any other mount.

    ``path`` is what the runtime says that it mounted: it may have resolved links in ``root``.
    """
    try:
        parts = container_parts(uid, container)
    except UnsafeName:
        return ""
    directory, _, name = path.rpartition("/")
    if not _TERMINATION_FILE.fullmatch(name) or not directory.endswith("/" + "/".join(parts)):
        return ""
    return "/".join((root.rstrip("/"), *parts, name))
