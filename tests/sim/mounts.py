"""The mount table of a simulated node: what drivers have mounted, and what the agent has bound.

It outlives agents. The agent's own calls (binds of parts of volumes, and of devices with the loop
devices that hold them) are made here and not to the kernel. Threads call it, one at a time as
virtual time stands still for them; only what must never be is written down.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from unittest.mock import patch

from kubeletpy.base.host.mount_table import MountPoint
from tests.sim.history import History
from tests.sim.records import Container
from tests.sim.runtime import SimRuntime

if TYPE_CHECKING:
    from tests.sim.csi_drivers import SimDriver


class NodeMounts:
    """Mounts and loop devices of the node, by path."""

    def __init__(
        self, drivers: Mapping[str, SimDriver], runtime: SimRuntime, history: History
    ) -> None:
        self._drivers = drivers
        self._runtime = runtime
        self._history = history
        self.binds: dict[str, str] = {}
        """Target path -> the path in a volume that is mounted there."""
        self.loops: dict[str, str] = {}
        """Path that the agent holds by a loop device -> the device."""
        self._damaged: list[str] = []

    # -- calls of the agent to the kernel -----------------------------------------------------

    def table(self, containing: str = "") -> list[MountPoint]:
        """The mounts of drivers and of the agent, as the kernel lists them."""
        found = [mount for driver in self._drivers.values() for mount in driver.mounts()]
        bound = [MountPoint(path, shared=False, root=of) for path, of in self.binds.items()]
        return [*found, *bound]

    def mount(self, source: str, target: str, kind: str = "", flags: int = 0) -> None:
        """Bind a path of a volume."""
        source = str(Path(source).readlink()) if source.startswith("/proc/self/fd/") else source
        if not os.path.lexists(target):
            raise OSError(errno.ENOENT, "there is nothing to mount over", target)
        if target in self.binds:
            self._history.violated(f"{target} is mounted twice")
        if not any(inside(source, each) for each in self._volumes()):
            self._history.violated(f"{source} is bound and is of no volume")
        self.binds[target] = source

    def unmount(self, target: str) -> None:
        """Unmount what is at a path; of drivers' mounts only those that nobody can identify."""
        for container in self._runtime.running():
            if any(inside(path, target) for path in _handed(container)):
                self._history.violated(f"{target} unmounted under {container}")
        if target in self.binds:
            del self.binds[target]
            return
        for driver in self._drivers.values():
            if driver.has_mounted(target):
                if not self.is_damaged(target):
                    self._history.violated(f"the agent unmounted {target} itself")
                driver.lose(target)
                return
        raise OSError(errno.EINVAL, "nothing is mounted", target)

    def _same_file(self, target: str, desired: os.stat_result) -> bool:
        source = self.binds.get(target)
        if source is None:
            return False
        there = Path(source).stat()
        return (there.st_dev, there.st_ino) == (desired.st_dev, desired.st_ino)

    def _device_of(self, publish: str) -> str:
        if not any(publish in driver.published for driver in self._drivers.values()):
            raise OSError(errno.ENOTBLK, "it is no block device", publish)
        return publish

    def _attach(self, path: str) -> str:
        if path not in self.binds:
            self._history.violated(f"a loop device for {path}, which is not bound")
        return self.loops.setdefault(path, f"/dev/loop-of{path}")

    def _detach(self, device: str) -> None:
        for path in [path for path, each in self.loops.items() if each == device]:
            del self.loops[path]

    def _remove_tree(self, path: str, *, only_directories: bool = False) -> None:
        """Stand in for ``remove_tree``, which stops at a mount; mounts are only in this table."""
        if any(inside(each.path, path) for each in self.table()):
            raise OSError(errno.EBUSY, "it is mounted", path)
        shutil.rmtree(path)

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Have the agent see these mounts, and make and undo its own here."""
        calls = {
            "files.disk.table": self.table,
            "files.disk.mount": self.mount,
            "files.disk.unmount": self.unmount,
            "files.disk.device_of": self._device_of,
            "files.disk.machine.attach": self._attach,
            "files.disk.machine.loop_device_of": self.loops.get,
            "files.disk.machine.detach": self._detach,
            "csi.layout.remove_tree": self._remove_tree,
            "containers.container_mounts.mount": self.mount,
            "containers.container_mounts.detach": self.unmount,
            "containers.container_mounts._same_file": self._same_file,
        }
        with ExitStack() as stack:
            for name, call in calls.items():
                stack.enter_context(patch(f"kubeletpy.volumes.{name}", call))
            yield

    # -- what happens to the node -------------------------------------------------------------

    def damage(self, data: Path, *, torn: bool) -> None:
        """Lose or truncate the file that identifies a volume."""
        self._history.note("world", f"{'tears' if torn else 'loses'} {data}")
        if torn:
            data.write_text(data.read_text()[: data.stat().st_size // 2])
        else:
            data.unlink()
        directory = data.parent
        if directory.parent.parent.name == "volumeDevices":  # of a device: …/NAME/data
            name = directory.parent.name
            block = directory.parent.parent
            self._damaged += [f"{block}/{name}", f"{block}/staging/{name}"]
            self._damaged.append(f"{block}/publish/{name}")
        else:
            self._damaged.append(str(directory))

    def is_damaged(self, path: str) -> bool:
        """Whether the file that identifies the volume at a path was ever lost."""
        return any(inside(path, each) for each in self._damaged)

    def reboot(self) -> None:
        """The machine goes down: nothing is mounted any more, files stay."""
        self.binds.clear()
        self.loops.clear()
        for driver in self._drivers.values():
            driver.machine_stops()

    # -- judging ------------------------------------------------------------------------------

    def uses(self, container: Container) -> list[str]:
        """The paths in volumes behind a container's mounts and devices."""
        return [self.binds.get(path, os.path.realpath(path)) for path in _handed(container)]

    def bound_inside(self, directory: str) -> list[str]:
        """Targets of binds whose source is in a directory."""
        return [path for path, source in self.binds.items() if inside(source, directory)]

    def left(self) -> list[str]:
        """The binds and loop devices that the agent has not removed."""
        binds = [f"{path} is bound" for path in self.binds]
        return [*binds, *(f"{path} is held by a loop device" for path in self.loops)]

    def _volumes(self) -> list[str]:
        return [mount.path for driver in self._drivers.values() for mount in driver.mounts()]


def _handed(container: Container) -> list[str]:
    config = container.config
    return [
        *(each.host_path for each in config.mounts),
        *(each.host_path for each in config.devices),
    ]


def inside(path: str, directory: str) -> bool:
    """Whether a path is a directory's, or that directory."""
    return path == directory or path.startswith(f"{directory}/")
