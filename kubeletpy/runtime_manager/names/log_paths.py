"""Where container logs are, and the names under which log collectors find them.

Names from specs become parts of paths here: a name that could lead elsewhere is refused. Source:
docs/reference/names.csv: log.
"""

from __future__ import annotations

MAX_FILE_NAME = 255
_SUFFIX = ".log"
_MIN_ID = 6


class UnsafeName(ValueError):
    """A name from a spec cannot be part of a path."""


def pod_log_directory(logs_root: str, namespace: str, name: str, uid: str) -> str:
    """``{root}/{namespace}_{name}_{uid}``: the sandbox's log_directory.

    Raises:
        UnsafeName: also where the name would be longer than the kernel allows.
    """
    directory = _part(f"{namespace}_{name}_{uid}")
    if (length := len(directory.encode("utf-8", "replace"))) > MAX_FILE_NAME:
        raise UnsafeName(
            "the directory of its logs, NAMESPACE_NAME_UID, would have a name of "
            f"{length} bytes, and a file name has {MAX_FILE_NAME} at most: give the pod a name "
            f"that is {length - MAX_FILE_NAME} bytes shorter"
        )
    return f"{logs_root}/{directory}"


def container_log_directory(
    logs_root: str, namespace: str, name: str, uid: str, container: str
) -> str:
    """The directory of one container's logs. Raises UnsafeName."""
    return f"{pod_log_directory(logs_root, namespace, name, uid)}/{_part(container)}"


def container_log_path(container: str, restart_count: int) -> str:
    """``{container}/{restart count}.log``, below the sandbox's log_directory. Raises UnsafeName."""
    return f"{_part(container)}/{restart_count}{_SUFFIX}"


def pod_uid_of_log_directory(directory_name: str) -> str:
    """The pod uid in the name of a pod's log directory."""
    return directory_name.rpartition("_")[2]


def log_link(
    links_root: str, pod_name: str, namespace: str, container: str, container_id: str
) -> str:
    """``{root}/{pod}_{namespace}_{container}-{id}.log``, the name cut to 255. Raises UnsafeName."""
    name = _part(f"{pod_name}_{namespace}_{container}-{container_id}")
    return f"{links_root}/{name[: MAX_FILE_NAME - len(_SUFFIX)]}{_SUFFIX}"


def container_id_of_log_link(link_name: str) -> str | None:
    """The container id (perhaps truncated) in a link's name; None when it is not such a name."""
    name = link_name.rpartition("-")[2]
    container_id = name.removesuffix(_SUFFIX)
    if container_id == name or len(container_id) < _MIN_ID:
        return None
    return container_id


def _part(name: str) -> str:
    if not name or "/" in name or "\0" in name or name in (".", ".."):
        raise UnsafeName(f"{name!r} cannot be part of a log path")
    return name
