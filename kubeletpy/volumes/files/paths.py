"""Where a pod's volumes are below the kubelet's root directory, and their files as data.

Pure. Names from specs become path components here: a name that could lead elsewhere is refused.
Source: docs/reference/names.csv: dir, volume-dir; docs/reference/behaviour.md, i4.
"""

from __future__ import annotations

import re

from kubeletpy.base.host.errors import CausedError
from kubeletpy.base.structs import Hidden, HidesFields, Struct

MAX_FILE_NAME = 255
MAX_PATH = 4096

PLUGINS = {
    "emptyDir": "kubernetes.io~empty-dir",
    "configMap": "kubernetes.io~configmap",
    "secret": "kubernetes.io~secret",
    "projected": "kubernetes.io~projected",
    "downwardAPI": "kubernetes.io~downward-api",
}
"""Kind of volume -> name of its directory, for those that have one."""
_WITHOUT_DIRECTORY = {"hostPath": "kubernetes.io/host-path", "image": "kubernetes.io/image"}


class UnsafePath(ValueError):
    """A name or path from a spec could lead elsewhere; the message states which and why."""


class PodPaths(Struct, frozen=True):
    """The directories of one pod."""

    pods_dir: str
    """``{root}/pods``"""
    uid: str

    @property
    def pod_dir(self) -> str:
        """The pod's directory, ``{root}/pods/{uid}``. Raises UnsafePath."""
        return f"{self.pods_dir}/{safe_name(self.uid)}"

    @property
    def volumes_dir(self) -> str:
        """The directory of all volumes."""
        return f"{self.pod_dir}/volumes"

    @property
    def sub_paths_dir(self) -> str:
        """Where subPath mounts are."""
        return f"{self.pod_dir}/volume-subpaths"

    @property
    def hosts_file(self) -> str:
        """The managed hosts file."""
        return f"{self.pod_dir}/etc-hosts"

    @property
    def containers_dir(self) -> str:
        """Where the containers' termination message files are."""
        return f"{self.pod_dir}/containers"

    def container_dir(self, name: str) -> str:
        """Where those of one container are. Raises UnsafePath."""
        return f"{self.containers_dir}/{safe_name(name)}"

    def volume(self, kind: str, name: str) -> str:
        """The directory of a volume. Raises UnsafePath."""
        return f"{self.volumes_dir}/{PLUGINS[kind]}/{safe_name(name)}"

    def ready_marker(self, kind: str, name: str) -> str:
        """The file that marks a volume as set up. Raises UnsafePath."""
        meta = safe_name(name) if kind == "emptyDir" else f"wrapped_{safe_name(name)}"
        return f"{self.pod_dir}/plugins/{PLUGINS['emptyDir']}/{meta}/ready"

    def sub_path(self, volume: str, container: str, index: int) -> str:
        """Where a container's subPath is mounted for the runtime. Raises UnsafePath."""
        return f"{self.sub_paths_dir}/{safe_name(volume)}/{safe_name(container)}/{index}"


def plugin_name(kind: str) -> str:
    """The name of a kind of volume in metrics, for example ``kubernetes.io/empty-dir``."""
    return _WITHOUT_DIRECTORY.get(kind) or PLUGINS[kind].replace("~", "/")


def safe_name(name: str) -> str:
    """A name that is valid as a single path component. Raises UnsafePath."""
    if not name or len(name) > MAX_FILE_NAME or "/" in name or "\0" in name or name in (".", ".."):
        raise UnsafePath(f"{name[:MAX_FILE_NAME]!r} cannot be part of a path")
    return name


def payload_path(path: str) -> str:
    """A path for a file inside a volume: relative, without "..". Raises UnsafePath."""
    if path.startswith("/"):
        raise UnsafePath(f"invalid path: must be relative path: {path!r}")
    if len(path) > MAX_PATH:
        raise UnsafePath(f"invalid path: must be less than or equal to {MAX_PATH} characters")
    parts = path.split("/")
    if ".." in parts or "\0" in path:
        raise UnsafePath(f"invalid path: must not contain '..': {path!r}")
    if any(len(part.encode()) > MAX_FILE_NAME for part in parts):
        raise UnsafePath(f"invalid path: names must be at most {MAX_FILE_NAME} bytes: {path!r}")
    if parts[0].startswith(".."):
        raise UnsafePath(f"invalid path: must not start with '..': {path!r}")
    kept = [part for part in parts if part not in ("", ".")]
    if not kept:
        raise UnsafePath(f"invalid path: {path!r} names no file")
    return "/".join(kept)


def sub_path_parts(path: str) -> list[str]:
    """The components of a subPath; empty for the volume itself. Raises UnsafePath."""
    if path.startswith("/"):
        raise UnsafePath(f"{path!r} must be a relative path")
    if len(path) > MAX_PATH or "\0" in path:
        raise UnsafePath("the path is too long or holds a NUL")
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if ".." in parts:
        raise UnsafePath(f"{path!r} must not contain '..'")
    return parts


# The content of a volume's files, and the credentials that some of it is made of.


class PayloadError(CausedError):
    """The files of a volume cannot be made; the message names the object and what it lacks."""


class FileContent(HidesFields, Struct, frozen=True):
    """The content of one file of a volume, its mode and its owner."""

    data: Hidden[bytes]
    mode: int
    owner: int | None = None
    """Uid; None: root."""


Payload = dict[str, FileContent]


class TokenInput(HidesFields, Struct, frozen=True):
    """A service account token as one source of a projected volume."""

    token: Hidden[str]


class TrustInput(HidesFields, Struct, frozen=True):
    """The certificates of ClusterTrustBundles as one source of a projected volume."""

    pem: Hidden[bytes]


class CertificateInput(HidesFields, Struct, frozen=True):
    """A pod's key and its certificates (PEM) as one source of a projected volume."""

    key: Hidden[bytes]
    chain: Hidden[bytes]


_BUSY = re.compile(r"\bbusy\b|\bEBUSY\b|\bin use\b|\bstill mounted\b", re.I)
READ = 4096
"""Characters at the end of an error message that are checked."""


def mentions_busy(message: str) -> bool:
    """Whether an error of libc, umount(8) or a driver states that a volume is in use."""
    return _BUSY.search(message[-READ:]) is not None
