"""Where the agent keeps its own files for a container. Pure."""

from __future__ import annotations

import re

from kubeletpy.runtime_manager.names.log_paths import UnsafeName

_TERMINATION_FILE = re.compile(r"[0-9a-f]{8}")


def container_parts(uid: str, container: str) -> tuple[str, ...]:
    """A container's directory, below the kubelet's root directory. Raises UnsafeName."""
    for part in (uid, container):
        if not part or "/" in part or "\0" in part or part in (".", ".."):
            raise UnsafeName(f"{part!r} cannot be part of a path")
    return ("pods", uid, "containers", container)


def termination_file(root: str, uid: str, container: str, path: str) -> str:
    """The path of the mounted termination message file; empty for any other mount.

    ``path`` is the mounted path as the runtime reports it: it may have resolved links in ``root``.
    """
    directory, _, name = path.rpartition("/")
    if not _TERMINATION_FILE.fullmatch(name):
        return ""
    try:
        parts = container_parts(uid, container)
    except UnsafeName:
        return ""
    if not directory.endswith("/" + "/".join(parts)):
        return ""
    return "/".join((root.rstrip("/"), *parts, name))
