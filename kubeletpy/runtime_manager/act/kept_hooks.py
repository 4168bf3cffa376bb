"""preStop hooks that are too large for an annotation, kept in a file in the pod's directory.

A runtime returns all annotations of all containers in one answer of bounded size: a handful of
large ones would make every listing of the node fail. The annotation then names the file by the
digest of its content. Blocking, for threads.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from typing import Any

from kubeletpy.base.api import types as api
from kubeletpy.base.host.files import open_file, write_private
from kubeletpy.runtime_manager.act.container_files import (
    container_directory,
    made_container_directory,
)
from kubeletpy.runtime_manager.names.labels import digest
from kubeletpy.runtime_manager.names.log_paths import UnsafeName

MAX_BYTES = 2 << 20
"""Size limit of a hook's JSON; a whole pod of a real API server is smaller."""
_DIGEST = re.compile(r"[0-9a-f]{64}")


class HookLost(Exception):
    """The file of a hook is absent, or is not what was written."""


def keep_hook(root: str, uid: str, container: str, text: str) -> None:
    """Write a hook's JSON, unless it is there already.

    Raises:
        UnsafeName: uid or container name cannot be part of a path.
        OSError: it cannot be written, or is larger than MAX_BYTES.
    """
    data = text.encode("utf-8", "surrogatepass")
    if len(data) > MAX_BYTES:
        raise OSError(f"the preStop hook of container {container} has over {MAX_BYTES} bytes")
    with made_container_directory(root, uid, container) as directory:
        path = directory / _file_name(digest(text))
        if not path.is_file() or path.is_symlink():
            write_private(path, data)


def kept_hook(root: str, uid: str, container: str, name: str) -> api.LifecycleHandler:
    """The hook that an annotation refers to. Raises HookLost."""
    if not _DIGEST.fullmatch(name):
        raise HookLost("the annotation does not name a file of this agent")
    try:
        path = container_directory(root, uid, container) / _file_name(name)
        with os.fdopen(open_file(root, os.fspath(path)), "rb") as file:
            data = file.read(MAX_BYTES + 1)
    except (UnsafeName, OSError) as error:
        raise HookLost(getattr(error, "strerror", None) or str(error)) from error
    if hashlib.sha256(data).hexdigest() != name:
        raise HookLost("its file holds something else")
    try:
        found: Any = json.loads(data.decode("utf-8", "surrogatepass"))
    except (ValueError, RecursionError) as error:
        raise HookLost("its file is not JSON") from error
    if not isinstance(found, dict):
        raise HookLost("its file is not a hook")
    return found  # type: ignore[return-value]


def _file_name(name: str) -> str:
    return f"prestop-{name[:32]}.json"
