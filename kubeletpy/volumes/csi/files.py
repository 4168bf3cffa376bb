"""CSI volumes on disk: vol_data.json, which a volume's teardown needs, and the volumes found by it.

The file is written atomically (the kubelet writes it in place, and a crash can leave it empty). A
file that is missing, torn or not ours is reported as such. Blocking, for threads. Source:
docs/reference/behaviour-storage.md, sj, sn1.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kubeletpy.base.host.files import write_whole
from kubeletpy.base.structs import Struct
from kubeletpy.volumes.claims.model import Found, Mode, PublishedOnDisk, StagedOnDisk
from kubeletpy.volumes.csi import objects as csi_objects
from kubeletpy.volumes.files import disk
from kubeletpy.volumes.files.paths import UnsafePath

MAX_BYTES = 64 * 1024
_KEYS = {
    "spec_name": "specVolID",
    "node": "nodeName",
    "attachment": "attachmentID",
    "handle": "volumeHandle",
    "driver": "driverName",
    "lifecycle": "volumeLifecycleMode",
    "selinux": "seLinuxMountContext",
}


class VolumeData(Struct, frozen=True):
    """The file's content, without empty values."""

    driver: str
    handle: str
    spec_name: str = ""
    node: str = ""
    attachment: str = ""
    lifecycle: str = ""
    selinux: str = ""


class DataUnreadable(Exception):
    """The file is not valid; the text contains the reason."""


def encode(data: VolumeData) -> bytes:
    """The text of the file: one JSON object of strings, and a newline."""
    found = {key: getattr(data, name) for name, key in sorted(_KEYS.items(), key=lambda kv: kv[1])}
    kept = {key: value for key, value in found.items() if value}
    return json.dumps(kept, separators=(",", ":")).encode() + b"\n"


def decode(content: bytes) -> VolumeData:
    """Parse a file's content. Raises DataUnreadable."""
    if not content.strip(b"\0 \n"):
        raise DataUnreadable("it is empty")
    try:
        found: Any = json.loads(content)
    except (ValueError, RecursionError):
        raise DataUnreadable("it is no JSON") from None
    if not isinstance(found, dict):
        raise DataUnreadable("it holds no JSON object")
    read = {name: found.get(key, "") for name, key in _KEYS.items()}
    if not all(isinstance(value, str) for value in read.values()):
        raise DataUnreadable("a value in it is no string")
    if not read["driver"] or not read["handle"]:
        raise DataUnreadable("it names no driver and volume")
    return VolumeData(**read)


def write(path: str, data: VolumeData) -> bool:
    """Write the file, unless it has this content already. Raises OSError.

    Returns whether it was written. The next agent will find it; :func:`flush` makes it survive a
    crash of the machine.
    """
    content = encode(data)
    with contextlib.suppress(OSError, DataUnreadable):
        if _read(path) == content:
            return False
    # through a name that the kubelet does not treat as a volume, and that our rmdir will find
    write_whole(Path(path), content, mode=0o644, flushed=False)
    return True


def flush(path: str) -> None:
    """Flush the file and its name to disk. Raises OSError."""
    for each, kind in ((path, os.O_NOFOLLOW), (str(Path(path).parent), os.O_DIRECTORY)):
        descriptor = os.open(each, os.O_RDONLY | kind | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def read(path: str) -> VolumeData | None:
    """Read the file; None when it does not exist. Raises DataUnreadable."""
    try:
        return decode(_read(path))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise DataUnreadable(error.strerror or "it cannot be read") from None


def remove(path: str) -> None:
    """Remove the file and any leftovers of a crash. Raises OSError."""
    target = Path(path)
    target.unlink(missing_ok=True)
    with contextlib.suppress(FileNotFoundError):
        for left in target.parent.glob(f".{target.name}.*"):
            left.unlink(missing_ok=True)


def remove_volume(target: str, data: str) -> None:
    """Remove an unmounted target, the file beside it and their directory.

    Raises:
        StillMounted: the target is still mounted.
        OSError: something else is in the way.
    """
    if disk.is_mounted(target):
        raise disk.StillMounted(errno.EBUSY, "it is still mounted", target)
    disk.remove_target(target)
    remove(data)
    disk.remove_directory(str(Path(data).parent))


def _read(path: str) -> bytes:
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise DataUnreadable("it is no file")
        content = file.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise DataUnreadable("it is too long")
    return content


# Volumes left on disk by a previous agent, staged ones included (table sn1, kubernetes 85476).
# Only names and vol_data.json are read; no mount is accessed.

_NONE = VolumeData("", "")
_NOT_DRIVERS = ("volumeDevices", "pv")
"""Names next to the drivers' directories."""


def find_csi_volumes(paths: csi_objects.CsiPaths) -> Found:
    """All volumes found. Raises OSError: the root directory can't be read."""
    published = [*_filesystem(paths), *_block(paths)]
    staged = [*_staged(paths), *_staged_block(paths)]
    return Found(tuple(published), tuple(staged))


def _filesystem(paths: csi_objects.CsiPaths) -> Iterator[PublishedOnDisk]:
    for uid in _names(paths.pods):
        for name in _names(f"{paths.pods}/{uid}/volumes/{csi_objects.DIRECTORY}"):
            volume = paths.filesystem(uid, name)
            yield _published(uid, name, Mode.FILESYSTEM, volume.target, volume.data)


def _published(uid: str, name: str, mode: Mode, path: str, file: str) -> PublishedOnDisk:
    data, damaged = _data(file)
    spec_name = data.spec_name or name
    inline = data.lifecycle == csi_objects.EPHEMERAL
    return PublishedOnDisk(
        plugin=csi_objects.PLUGIN,
        unique_name=csi_objects.inline_unique_name(uid, spec_name)
        if inline or damaged
        else csi_objects.unique_name(data.driver, data.handle),
        pod_uid=uid,
        spec_name=spec_name,
        path=path,
        mode=mode,
        driver=data.driver,
        handle=data.handle,
        lifecycle=csi_objects.EPHEMERAL if inline else csi_objects.PERSISTENT,
        selinux_context=data.selinux,
        damaged=damaged,
    )


def _block(paths: csi_objects.CsiPaths) -> Iterator[PublishedOnDisk]:
    """Volumes with a link in the pod's directory, and those whose link is already removed."""
    seen = set()
    for uid in _names(paths.pods):
        for name in _names(f"{paths.pods}/{uid}/volumeDevices/{csi_objects.DIRECTORY}"):
            seen.add((uid, name))
    for name in _names(paths.block_root):
        if name in ("staging", "publish"):
            continue
        block = paths.block(name)
        seen |= {(uid, name) for uid in _names(block.map_dir)}
    for name in _names(f"{paths.block_root}/publish"):
        seen |= {(uid, name) for uid in _names(paths.block(name).publish_dir)}
    for uid, name in sorted(seen):
        link = paths.block_link(uid, name)
        yield _published(uid, name, Mode.BLOCK, link, paths.block(name).data)


def _staged(paths: csi_objects.CsiPaths) -> Iterator[StagedOnDisk]:
    for driver in _names(paths.staging_root):
        if driver in _NOT_DRIVERS:
            continue
        for key in _names(f"{paths.staging_root}/{driver}"):
            directory = f"{paths.staging_root}/{driver}/{key}"
            data, damaged = _data(f"{directory}/{csi_objects.DATA_FILE}")
            yield StagedOnDisk(
                plugin=csi_objects.PLUGIN,
                unique_name=f"{csi_objects.PLUGIN}/{driver}^{data.handle or key}",
                path=f"{directory}/globalmount",
                driver=data.driver,
                handle=data.handle,
                selinux_context=data.selinux,
                damaged=damaged,
            )


def _staged_block(paths: csi_objects.CsiPaths) -> Iterator[StagedOnDisk]:
    names = {n for n in _names(paths.block_root) if n not in ("staging", "publish")}
    for name in sorted(names | set(_names(f"{paths.block_root}/staging"))):
        block = paths.block(name)
        data, damaged = _data(block.data)
        yield StagedOnDisk(
            plugin=csi_objects.PLUGIN,
            unique_name=f"{csi_objects.PLUGIN}/{name}"
            if damaged
            else csi_objects.unique_name(data.driver, data.handle),
            path=block.staging,
            mode=Mode.BLOCK,
            driver=data.driver,
            handle=data.handle,
            spec_name=data.spec_name or name,
            damaged=damaged,
        )


def _data(path: str) -> tuple[VolumeData, str]:
    """A file's content, or why there is none."""
    try:
        data = read(path)
    except (DataUnreadable, UnsafePath) as error:
        return _NONE, f"{path}: {error}"
    return (data, "") if data is not None else (_NONE, f"{path} is missing")


def _names(directory: str) -> list[str]:
    """The entries of a directory without leading dots; none when the directory is missing."""
    return [name for name in disk.names_in(directory) if not name.startswith(".")]
