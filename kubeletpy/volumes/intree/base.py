"""The base of in-tree kinds of volumes, their programs, mounts and measurements; and hostPath.

Source: docs/reference/behaviour-storage.md, sj, sq.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import shutil
from collections.abc import Callable, Collection, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any, Protocol, TypeVar
from weakref import WeakValueDictionary

from kubeletpy.base.host.patient_threads import PatientThreads
from kubeletpy.base.host.program import Program, ProgramFailed, run_program
from kubeletpy.volumes.claims import model as claims
from kubeletpy.volumes.claims.plugin import VolumePlugin
from kubeletpy.volumes.files import disk, safe_path
from kubeletpy.volumes.files.disk import MS_BIND, mount
from kubeletpy.volumes.files.paths import UnsafePath, safe_name
from kubeletpy.volumes.files.safe_path import HostPathError
from kubeletpy.volumes.usage import AT_ONCE

T = TypeVar("T")

log = logging.getLogger(__name__)

PROGRAM_PATHS = "/usr/sbin:/usr/bin:/sbin:/bin"
PACKAGES = {"iscsiadm": "open-iscsi", "multipath": "multipath-tools"}
"""Packages of programs that a node may well lack."""
PATIENCE_S = 10.0
"""Seconds within which a working file system answers a measurement."""
MOST_HANGING = 16
"""Hanging measurements for one kind of volume; each holds a thread."""
_NAMED = 4


class InThread(Protocol):
    """Does file work in a thread."""

    async def __call__(self, work: Callable[[], T], call: str) -> T:
        """The result of ``work``. Raises OperationFailed."""


class InTreePlugin(VolumePlugin):
    """A kind of volume without driver; ``publish`` and ``unpublish`` are up to each kind."""

    directory = ""
    """The directory of its volumes below a pod's ``volumes``; empty: it makes none."""

    def __init__(self, root: Path) -> None:
        """``root``: the kubelet's root directory."""
        self.root = Path(os.path.realpath(root))
        self.patient = PatientThreads()
        self._meters: Meters | None = None

    # -- questions ---------------------------------------------------------------------------

    def traits(self, source: claims.VolumeSource) -> claims.VolumeTraits | claims.Waits:
        """Traits of a volume, or why it is invalid; there is nothing to attach."""
        try:
            safe_name(source.spec_name)
        except UnsafePath as error:
            return claims.Waits(
                claims.WaitCause.INVALID, f'volume "{source.spec_name}"', str(error)
            )
        problem = self.problem(source)
        if problem:
            return claims.Waits(claims.WaitCause.INVALID, f'volume "{source.spec_name}"', problem)
        return self.named(source)

    def named(self, source: claims.VolumeSource) -> claims.VolumeTraits:
        """Traits of a valid volume."""
        unique = f"{self.name}/{source.pod_uid}-{source.spec_name}"
        return claims.VolumeTraits(unique, attachable=False, device_mountable=False)

    def problem(self, source: claims.VolumeSource) -> str:
        """Why a volume is invalid; empty: it is valid."""
        if source.mode is claims.Mode.BLOCK:
            return f"{source.kind} volumes can't be block devices"
        return ""

    def published(self, spec: claims.VolumeSpec, pod_uid: str) -> claims.PublishedOnDisk:
        """The path of a volume in a pod."""
        path = self.target(pod_uid, spec.spec_name, spec.mode)
        return claims.PublishedOnDisk(
            self.name, spec.unique_name, pod_uid, spec.spec_name, path, spec.mode
        )

    def staged(self, spec: claims.VolumeSpec) -> claims.StagedOnDisk:
        """A volume that is not staged has no path."""
        return claims.StagedOnDisk(
            self.name, spec.unique_name, "", spec.mode, spec_name=spec.spec_name
        )

    def target(self, pod_uid: str, spec_name: str, mode: claims.Mode) -> str:
        """The path of a volume in a pod."""
        kind = "volumes" if mode is claims.Mode.FILESYSTEM else "volumeDevices"
        return (
            f"{self.root}/pods/{safe_name(pod_uid)}/{kind}/{self.directory}/{safe_name(spec_name)}"
        )

    # -- acts --------------------------------------------------------------------------------

    async def stats(self, left: claims.PublishedOnDisk) -> claims.VolumeStats | None:
        """The usage of its file system, queried in a thread that may hang."""
        block = left.mode is claims.Mode.BLOCK
        call = f"{'size' if block else 'statfs'} of {left.path}"
        read = partial(_block_device if block else _file_system, left.path)
        if self._meters is None:
            self._meters = Meters()
        return await self._meters.measure(await self.server_of(left), call, read)

    async def server_of(self, left: claims.PublishedOnDisk) -> str:
        """The name of the server that answers a measurement: its volumes hang together."""
        return left.path

    def find_on_disk(self) -> claims.Found:
        """The directories of its volumes in all pods' directories."""
        if not self.directory:
            return claims.Found()
        published = [
            claims.PublishedOnDisk(
                self.name,
                self.unique_name(uid, name),
                uid,
                name,
                self.target(uid, name, mode),
                mode,
            )
            for mode, kind in (
                (claims.Mode.FILESYSTEM, "volumes"),
                (claims.Mode.BLOCK, "volumeDevices"),
            )
            for uid in disk.names_in(f"{self.root}/pods")
            for name in disk.names_in(f"{self.root}/pods/{uid}/{kind}/{self.directory}")
        ]
        return claims.Found(tuple(published))

    def unique_name(self, pod_uid: str, spec_name: str) -> str:
        """The unique name of a volume found on disk."""
        return f"{self.name}/{pod_uid}-{spec_name}"

    # -- tools -------------------------------------------------------------------------------

    async def bind(self, source: str, target: str, options: Sequence[str]) -> bool:
        """Bind a directory to its path in a pod, unless something is mounted there.

        Returns whether it was bound just now. Raises OperationFailed.
        """
        if await self.is_mounted(target):
            return False
        call = f"bind mount of {source}"
        await self.in_thread(partial(_bind, source, target), call)
        if options:
            flags = ",".join(["remount", "bind", *options])
            try:
                await run("mount", ["-o", flags, target], call=call, event_word="MountVolume.SetUp")
            except claims.OperationFailed:
                # otherwise a pod could write to a read-only volume: the next attempt binds again
                await self.in_thread(partial(disk.force_unmount, target), call)
                raise
        return True

    async def is_mounted(self, path: str) -> bool:
        """Whether something is mounted at a path. Raises OperationFailed."""
        return await self.in_thread(partial(disk.is_mounted, path), "read of the mount table")

    async def in_thread(self, work: Callable[[], T], call: str) -> T:
        """File work that may hang. Raises OperationFailed."""
        try:
            return await self.patient.run(work)
        except (OSError, UnsafePath) as error:
            raise claims.maybe_done(str(error), call=call) from error


def unmount_and_remove(path: str) -> None:
    """Unmount and remove a path of ours. Blocks. Raises OSError."""
    disk.force_unmount(path)
    remove_directory(path)


def remove_directory(path: str) -> None:
    """Remove an empty directory. Raises OSError."""
    try:
        Path(path).rmdir()
    except FileNotFoundError:
        return
    except OSError as error:
        if error.errno == errno.ENOTDIR:
            Path(path).unlink(missing_ok=True)
            return
        raise


async def find_program(program: str) -> str | None:
    """The path of a program of the node; None: it is not installed."""
    return await asyncio.to_thread(shutil.which, program, path=PROGRAM_PATHS)


async def run(
    program: str,
    args: Sequence[str],
    *,
    call: str,
    event_word: str = "",
    timeout: float | None = None,
    fine: Collection[int] = (),
) -> str:
    """Run a program of the node; returns its output. ``fine``: exit statuses that mean success.

    Raises OperationFailed: it failed or hung.
    """
    path = await find_program(program)
    if path is None:
        package = f" (package {PACKAGES[program]})" if program in PACKAGES else ""
        message = f"{program} is not installed on this node{package}"
        raise claims.not_done(message, event_word=event_word, call=call)
    try:
        return (await run_program(Program(path, args), b"", timeout=timeout)).decode(
            errors="replace"
        )
    except ProgramFailed as error:
        if error.exit_status in fine:
            return ""
        message = f"{program} {' '.join(args)}: {error}"
        raise claims.maybe_done(message, event_word=event_word, call=call) from error


def _bind(source: str, target: str) -> None:
    disk.make_directory(target)
    mount(source, target, flags=MS_BIND)


def _block_device(path: str) -> claims.VolumeStats:
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        return claims.VolumeStats(capacity_bytes=os.lseek(descriptor, 0, os.SEEK_END))
    finally:
        os.close(descriptor)


def _file_system(path: str) -> claims.VolumeStats:
    found = os.statvfs(path)
    block = found.f_frsize
    return claims.VolumeStats(
        capacity_bytes=found.f_blocks * block,
        used_bytes=(found.f_blocks - found.f_bfree) * block,
        available_bytes=found.f_bavail * block,
        inodes=found.f_files,
        inodes_used=found.f_files - found.f_ffree,
        inodes_free=found.f_ffree,
    )


class Meters:
    """Measures volumes of one kind, whose file systems may never answer. Use it in one event loop.

    A call that hangs keeps its thread until it returns. So each server (or each volume without one)
    has one call at a time, and gets no other call while that hangs. At most MOST_HANGING calls may
    hang at once. The volumes of other servers are measured meanwhile.
    """

    def __init__(self) -> None:
        self._threads = PatientThreads(MOST_HANGING + AT_ONCE)
        self._hanging: dict[str, str] = {}
        """Server or volume that does not answer -> the call."""
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._full = False

    async def measure(self, who: str, call: str, read: Callable[[], T]) -> T:
        """Run ``read`` in a thread and return its result; ``call`` names it.

        Raises OperationFailed: it failed, or ``who`` does not answer, or too many others do not.
        """
        turn = self._turns.setdefault(who, asyncio.Lock())
        async with turn:
            self._check_hanging(who, call)
            try:
                requested = asyncio.get_running_loop().run_in_executor(self._threads, read)
                try:
                    answered, _ = await asyncio.wait((requested,), timeout=PATIENCE_S)
                finally:
                    if not requested.done():  # its thread goes on, even if the caller is canceled
                        self._hanging[who] = call
                        requested.add_done_callback(partial(self._returned, who))
                if answered:
                    return requested.result()
            except OSError as error:
                raise claims.maybe_done(str(error), call=call) from error
            text = f"no answer within {PATIENCE_S:g}s"
            log.warning(
                "volumes are not measured until their file system answers",
                extra={"call": call, "of": who, "hanging": len(self._hanging)},
            )
            raise claims.maybe_done(text, call=call)

    def _check_hanging(self, who: str, call: str) -> None:
        """Raise OperationFailed if ``who`` or too many others do not answer."""
        if who in self._hanging:
            text = f"{who} still has not answered: {self._hanging[who]}"
            raise claims.maybe_done(text, call=call)
        if len(self._hanging) < MOST_HANGING:
            return
        named = ", ".join(list(self._hanging)[:_NAMED])
        text = f"{len(self._hanging)} others do not answer and hold all threads: {named}, ..."
        if not self._full:
            self._full = True
            log.warning("volumes are not measured", extra={"call": call, "why": text})
        raise claims.not_tried(text, call=call)

    def _returned(self, who: str, requested: asyncio.Future[T]) -> None:
        if not requested.cancelled():
            requested.exception()  # nobody waits for it any more
        del self._hanging[who]
        self._full = False


class HostPathPlugin(InTreePlugin):
    """The plugin for ``hostPath`` in a PersistentVolume.

    Nothing is mounted: containers get the path itself, and there is nothing to tear down.
    """

    name = "kubernetes.io/host-path"
    kinds = frozenset({"hostPath"})

    def problem(self, source: claims.VolumeSource) -> str:
        """A path is required, without ".."."""
        path = str(source.source.get("path") or "")
        if not path.startswith("/") or ".." in path.split("/"):
            return f"{path!r} is no path for a volume: it must be absolute, without '..'"
        return super().problem(source)

    def target(self, pod_uid: str, spec_name: str, mode: claims.Mode) -> str:
        """An empty path: the volume has none in the pod's directory."""
        return ""

    async def publish(
        self,
        spec: claims.VolumeSpec,
        attachment: claims.AttachmentMetadata,
        use: claims.PodUse,
        *,
        remount: bool,
    ) -> claims.Published:
        """Check or make the path, as its type requires."""
        path, kind = str(spec.source.get("path")), spec.source.get("type") or ""
        try:
            await self.patient.run(partial(safe_path.prepare, path, kind))
        except (HostPathError, OSError) as error:
            message = f"hostPath {path}: {error}"
            raise claims.not_done(message, call=f"check of {path}") from error
        return claims.Published(path)

    async def unpublish(self, left: claims.PublishedOnDisk) -> None:
        """Do nothing: the path was never mounted."""


class LatePlugin:
    """A rarely used kind of volume: the plugin is loaded with its first volume."""

    def __init__(self, name: str, kind: str, root: Path, load: Callable[[], VolumePlugin]) -> None:
        """Remember how to load the plugin.

        Args:
            name: of the plugin.
            kind: the field of its sources.
            root: the kubelet's root directory.
            load: makes the plugin.
        """
        self.name = name
        self.kinds = frozenset({kind})
        self._root = root
        self._plugin = cache(load)

    def __getattr__(self, name: str) -> Any:
        """An attribute of the plugin, which is loaded now if it was not before."""
        return getattr(self._plugin(), name)

    def find_on_disk(self) -> claims.Found:
        """Its volumes on disk; nothing is loaded when there are none. Blocks."""
        directory = self.name.replace("/", "~")
        places = (f"plugins/{self.name}", f"plugins/{directory}", f"pods/*/volume*/{directory}")
        there = any(next(self._root.glob(place), None) is not None for place in places)
        return self._plugin().find_on_disk() if there else claims.Found()

    def on_change(self, listener: Callable[[str], None]) -> None:
        """Ignore the listener: the abilities of these kinds never change."""
