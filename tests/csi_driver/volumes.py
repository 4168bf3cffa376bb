"""The volumes of a driver for tests: directories, and files behind loop devices."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from kubeletpy.base.host import machine, mount_table
from kubeletpy.volumes.files.disk import MS_BIND, mount, unmount

MS_RDONLY, MS_REMOUNT = 1, 32
DEFAULT_BYTES = 16 * 1024 * 1024


@dataclass(slots=True)
class Volume:
    """The record of one volume."""

    id: str
    name: str
    size: int
    block: bool


class Volumes:
    """All volumes of a driver, below one directory; they outlive the process."""

    def __init__(self, state: Path) -> None:
        self._state = state
        state.mkdir(parents=True, exist_ok=True)

    def __iter__(self) -> Iterator[Volume]:
        for meta in sorted(self._state.glob("*/meta.json")):
            yield Volume(**json.loads(meta.read_text()))

    def get(self, handle: str) -> Volume | None:
        """A volume by its id."""
        return next((volume for volume in self if volume.id == handle), None)

    def named(self, name: str) -> Volume | None:
        """A volume by its name."""
        return next((volume for volume in self if volume.name == name), None)

    def save(self, volume: Volume) -> None:
        """Write the record, and create the image or the directory of the data."""
        where = self._state / volume.id
        where.mkdir(exist_ok=True)
        if volume.block:
            with (where / "image").open("ab") as image:
                image.truncate(volume.size)
        else:
            (where / "data").mkdir(exist_ok=True)
        fresh = where / "meta.new"
        fresh.write_text(json.dumps(asdict(volume)))
        fresh.replace(where / "meta.json")

    def remove(self, volume: Volume) -> None:
        """Delete it and what it holds."""
        image = str(self._state / volume.id / "image")
        device = machine.loop_device_of(image)
        if device is not None:
            machine.detach(device)
        shutil.rmtree(self._state / volume.id)

    def source(self, volume: Volume) -> str:
        """The source of its mounts: its directory, or its loop device."""
        where = self._state / volume.id
        return machine.attach(str(where / "image")) if volume.block else str(where / "data")

    def used(self, volume: Volume) -> tuple[int, int]:
        """Bytes and files in it."""
        data = self._state / volume.id / "data"
        files = [path for path in data.rglob("*") if path.is_file()]
        return sum(path.stat().st_size for path in files), len(files)

    def release(self, volume: Volume) -> None:
        """Detach its loop device."""
        device = machine.loop_device_of(str(self._state / volume.id / "image"))
        if device is not None:
            machine.detach(device)


def bind(source: str, target: str, *, read_only: bool = False) -> None:
    """Mount a directory or a device at a path, which is made; once only."""
    if mounted(target):
        return
    whole = Path(target)
    if Path(source).is_dir():
        whole.mkdir(parents=True, exist_ok=True)
    else:
        whole.parent.mkdir(parents=True, exist_ok=True)
        whole.touch()
    mount(source, target, flags=MS_BIND)
    if read_only:
        mount("none", target, flags=MS_BIND | MS_REMOUNT | MS_RDONLY)


def unbind(target: str) -> None:
    """Unmount a path and remove it."""
    while mounted(target):
        unmount(os.path.realpath(target))
    whole = Path(target)
    if whole.is_dir():
        whole.rmdir()
    else:
        whole.unlink(missing_ok=True)


def mounted(target: str) -> bool:
    """Whether something is mounted at a path."""
    table = mount_table.parse(Path("/proc/self/mountinfo").read_bytes())
    return any(mount.path == os.path.realpath(target) for mount in table)
