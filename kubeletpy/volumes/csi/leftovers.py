"""CSI volumes that a previous agent has left on disk, staged ones included.

Reads names and vol_data.json, and accesses no mount. Blocking, for threads. Source:
docs/reference/behaviour-storage.md, sn1; kubernetes 85476.
"""

from __future__ import annotations

from collections.abc import Iterator

from kubeletpy.volumes.claims.model import Mode
from kubeletpy.volumes.claims.on_disk import Found, PublishedOnDisk, StagedOnDisk
from kubeletpy.volumes.csi import files
from kubeletpy.volumes.csi.files import VolumeData
from kubeletpy.volumes.csi.names import (
    DATA_FILE,
    DIRECTORY,
    EPHEMERAL,
    PERSISTENT,
    PLUGIN,
    CsiPaths,
    inline_unique_name,
    unique_name,
)
from kubeletpy.volumes.files import disk
from kubeletpy.volumes.files.paths import UnsafePath

_NONE = VolumeData("", "")
_NOT_DRIVERS = ("volumeDevices", "pv")
"""Names next to the drivers' directories."""


def find_csi_volumes(paths: CsiPaths) -> Found:
    """All volumes found. Raises OSError: the root directory can't be read."""
    published = [*_filesystem(paths), *_block(paths)]
    staged = [*_staged(paths), *_staged_block(paths)]
    return Found(tuple(published), tuple(staged))


def _filesystem(paths: CsiPaths) -> Iterator[PublishedOnDisk]:
    for uid in _names(paths.pods):
        for name in _names(f"{paths.pods}/{uid}/volumes/{DIRECTORY}"):
            volume = paths.filesystem(uid, name)
            data, damaged = _data(volume.data)
            spec_name = data.spec_name or name
            inline = data.lifecycle == EPHEMERAL
            yield PublishedOnDisk(
                plugin=PLUGIN,
                unique_name=inline_unique_name(uid, spec_name)
                if inline or damaged
                else unique_name(data.driver, data.handle),
                pod_uid=uid,
                spec_name=spec_name,
                path=volume.target,
                driver=data.driver,
                handle=data.handle,
                lifecycle=EPHEMERAL if inline else PERSISTENT,
                selinux_context=data.selinux,
                damaged=damaged,
            )


def _block(paths: CsiPaths) -> Iterator[PublishedOnDisk]:
    """Volumes with a link in the pod's directory, and those whose link is already removed."""
    seen = set()
    for uid in _names(paths.pods):
        for name in _names(f"{paths.pods}/{uid}/volumeDevices/{DIRECTORY}"):
            seen.add((uid, name))
    for name in _names(paths.block_root):
        if name in ("staging", "publish"):
            continue
        block = paths.block(name)
        seen |= {(uid, name) for uid in _names(block.map_dir)}
    for name in _names(f"{paths.block_root}/publish"):
        seen |= {(uid, name) for uid in _names(paths.block(name).publish_dir)}
    for uid, name in sorted(seen):
        data, damaged = _data(paths.block(name).data)
        yield PublishedOnDisk(
            plugin=PLUGIN,
            unique_name=inline_unique_name(uid, name)
            if damaged
            else unique_name(data.driver, data.handle),
            pod_uid=uid,
            spec_name=data.spec_name or name,
            path=paths.block_link(uid, name),
            mode=Mode.BLOCK,
            driver=data.driver,
            handle=data.handle,
            damaged=damaged,
        )


def _staged(paths: CsiPaths) -> Iterator[StagedOnDisk]:
    for driver in _names(paths.staging_root):
        if driver in _NOT_DRIVERS:
            continue
        for key in _names(f"{paths.staging_root}/{driver}"):
            directory = f"{paths.staging_root}/{driver}/{key}"
            data, damaged = _data(f"{directory}/{DATA_FILE}")
            yield StagedOnDisk(
                plugin=PLUGIN,
                unique_name=f"{PLUGIN}/{driver}^{data.handle or key}",
                path=f"{directory}/globalmount",
                driver=data.driver,
                handle=data.handle,
                selinux_context=data.selinux,
                damaged=damaged,
            )


def _staged_block(paths: CsiPaths) -> Iterator[StagedOnDisk]:
    names = {n for n in _names(paths.block_root) if n not in ("staging", "publish")}
    for name in sorted(names | set(_names(f"{paths.block_root}/staging"))):
        block = paths.block(name)
        data, damaged = _data(block.data)
        yield StagedOnDisk(
            plugin=PLUGIN,
            unique_name=f"{PLUGIN}/{name}" if damaged else unique_name(data.driver, data.handle),
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
        data = files.read(path)
    except (files.DataUnreadable, UnsafePath) as error:
        return _NONE, f"{path}: {error}"
    return (data, "") if data is not None else (_NONE, f"{path} is missing")


def _names(directory: str) -> list[str]:
    """The entries of a directory without leading dots; none when the directory is missing."""
    return [name for name in disk.names_in(directory) if not name.startswith(".")]
