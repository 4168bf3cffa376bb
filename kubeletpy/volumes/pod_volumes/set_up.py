"""Sets up and tears down, on disk, the volumes that the agent makes itself. Blocking, for threads.

Repeating either changes nothing. The ready marker means that a volume was set up once: from then on
containers may use it. Teardown works from the disk and the kernel's mount table, so it also removes
what a previous agent has set up. Volumes of an unknown kind are left alone, because they may hold
somebody's data. Source: docs/reference/behaviour.md, i1, i2, i3, i4, i8, i13;
docs/reference/names.csv: volume-dir.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from kubeletpy.base.api.quantity import parse, value
from kubeletpy.base.host.disk_errors import complete_errors
from kubeletpy.base.host.errors import Cause, cause_of
from kubeletpy.base.host.files import remove_tree
from kubeletpy.base.structs import Hidden, HidesFields, Struct, replace
from kubeletpy.base.text import number
from kubeletpy.pods.pod import Pod
from kubeletpy.pods.resources import HUGEPAGES_PREFIX, VolumeSizeError, pod_level_limit, pod_limits
from kubeletpy.pods.shape import MAX_MODE
from kubeletpy.volumes.files import disk, safe_path
from kubeletpy.volumes.files.atomic import write_payload
from kubeletpy.volumes.files.paths import PLUGINS, PayloadError, PodPaths, UnsafePath
from kubeletpy.volumes.files.safe_path import HostPathError, give_to_group
from kubeletpy.volumes.pod_volumes.payload import (
    MAX_POD_BYTES,
    FileOwner,
    Input,
    build_payload,
    payload_size,
)
from kubeletpy.volumes.pod_volumes.planned import FILE_KINDS, PlannedVolume

MODE = 0o777
PRIVATE_MODE = 0o700
"""The mode that only a directory has which replaces a mount."""
MODE_GATE = "EmptyDirVolumeMode"
MEMORY = "Memory"
HUGE_PAGES = "HugePages"
_HUGE_PAGES_DIR = "/sys/kernel/mm/hugepages"
_META_MODE = 0o750


class VolumeWork(HidesFields, Struct, frozen=True):
    """One volume to set up or update."""

    volume: PlannedVolume
    inputs: Hidden[Sequence[Input]]


class VolumeFeatures(Struct, frozen=True):
    """Fields of volumes that are obeyed: each has a feature gate."""

    empty_dir_mode: bool = False
    """``emptyDir.mode``"""
    file_owners: bool = False
    """``defaultUser`` and ``user`` of volumes made of files."""


NO_FEATURES = VolumeFeatures()


class PodSetting(Struct, frozen=True):
    """The inputs that all volumes of a pod share."""

    pod: Pod
    paths: PodPaths
    owner: FileOwner
    allocatable_memory: str | None
    now: float
    """Unix seconds."""
    left: int = MAX_POD_BYTES
    """The most bytes in the files of the volumes to set up."""
    features: VolumeFeatures = NO_FEATURES
    rights: disk.MountRights = disk.REQUIRED
    """Whether directories may replace mounts."""


class SetUpOutcome(Struct, frozen=True):
    """The result for one volume."""

    volume: PlannedVolume
    problem: str
    """Why it is not as it should be; empty: it is."""
    seconds: float
    owning_s: float | None
    """Seconds spent on applying the fsGroup; None: not applied."""
    bytes: int
    """Bytes of its files; 0 for kinds that are not made of files."""
    existed: bool
    """Whether it existed before, perhaps left by a previous agent."""
    cause: Cause | None = None
    """Why, as data, where advice depends on it."""


def set_up_all(work: Sequence[VolumeWork], setting: PodSetting) -> list[SetUpOutcome]:
    """Set volumes up independently: the result of one does not affect the others."""
    outcomes: list[SetUpOutcome] = []
    left = setting.left
    for item in work:
        outcomes.append(_outcome(item, setting, left))
        left -= outcomes[-1].bytes
    return outcomes


def _outcome(item: VolumeWork, setting: PodSetting, left: int) -> SetUpOutcome:
    made, begun, problem, existed = 0, time.perf_counter(), "", False
    cause: Cause | None = None
    owning: list[float] = []
    try:
        existed = _was_set_up(item.volume, setting.paths)
        with complete_errors(_directory(item.volume, setting.paths)):
            made = _set_up(item, setting, owning, left)
    except (PayloadError, EmptyDirError, HostPathError, UnsafePath, OSError) as error:
        problem, cause = str(error), cause_of(error)
    seconds = time.perf_counter() - begun
    return SetUpOutcome(
        item.volume, problem, seconds, sum(owning) if owning else None, made, existed, cause
    )


def _directory(volume: PlannedVolume, paths: PodPaths) -> str:
    """The path of a volume, for errors that name none."""
    if volume.kind == "hostPath":
        return str(volume.source.get("path") or "")
    return paths.volume(volume.kind, volume.name) if volume.kind in PLUGINS else volume.name


def _was_set_up(volume: PlannedVolume, paths: PodPaths) -> bool:
    return volume.kind in PLUGINS and Path(paths.ready_marker(volume.kind, volume.name)).exists()


def is_established(
    volume: PlannedVolume, paths: PodPaths, rights: disk.MountRights = disk.REQUIRED
) -> bool:
    """Whether a volume of files was set up before and still exists."""
    if volume.kind not in FILE_KINDS:
        return False
    directory = paths.volume(volume.kind, volume.name)
    if volume.in_memory and not is_in_memory(directory, rights):
        return False
    return Path(paths.ready_marker(volume.kind, volume.name)).exists()


def _set_up(item: VolumeWork, setting: PodSetting, owning: list[float], left: int) -> int:
    made = 0
    volume, source = item.volume, item.volume.source
    if volume.kind == "hostPath":
        safe_path.prepare(str(source.get("path") or ""), source.get("type") or "")
    elif volume.kind == "emptyDir":
        _set_up_empty_dir(volume, setting, owning)
    elif volume.kind in FILE_KINDS:
        made = _set_up_files(item, setting, owning, left)
    if volume.propagated and volume.kind in PLUGINS:
        directory = setting.paths.volume(volume.kind, volume.name)
        setting.rights.does_without(partial(disk.share, directory))
    return made


def _set_up_empty_dir(volume: PlannedVolume, setting: PodSetting, owning: list[float]) -> None:
    directory = setting.paths.volume(volume.kind, volume.name)
    marker = Path(setting.paths.ready_marker(volume.kind, volume.name))
    in_memory, rights = bool(volume.source.get("medium")), setting.rights
    if marker.exists() and (
        is_in_memory(directory, rights) if in_memory else Path(directory).is_dir()
    ):
        return
    mode = own_mode(volume.source, obeyed=setting.features.empty_dir_mode)
    memory = setting.allocatable_memory
    set_up_empty_dir(directory, volume.source, setting.pod, memory, mode, rights=rights)
    if setting.owner.group is not None and not (in_memory and replaces_mount(directory, rights)):
        _own(directory, setting.owner.group, read_only=False, owning=owning)
    _mark(marker)


def _own(directory: str, group: int, *, read_only: bool, owning: list[float]) -> None:
    begun = time.perf_counter()
    give_to_group(directory, group, read_only=read_only)
    owning.append(time.perf_counter() - begun)


def _set_up_files(item: VolumeWork, setting: PodSetting, owning: list[float], left: int) -> int:
    volume, group = item.volume, setting.owner.group
    owner = replace(setting.owner, chosen=setting.features.file_owners)
    payload = build_payload(volume, item.inputs, setting.pod.namespace, owner, left)
    directory = setting.paths.volume(volume.kind, volume.name)
    if volume.in_memory:
        size = memory_size({}, setting.pod, setting.allocatable_memory)
        make_tmpfs(directory, size, setting.rights)
    else:
        make_directory(directory)
    own = None
    if group is not None and not (volume.in_memory and replaces_mount(directory, setting.rights)):
        own = partial(_own, directory, group, read_only=True, owning=owning)
    write_payload(directory, payload, setting.now, own)
    _mark(Path(setting.paths.ready_marker(volume.kind, volume.name)))
    return payload_size(payload)


def _mark(marker: Path) -> None:
    if not marker.exists():
        marker.parent.mkdir(_META_MODE, parents=True, exist_ok=True)
        marker.touch(0o640)


# Teardown (table i8).


def take_down(paths: PodPaths) -> list[tuple[str, float]]:
    """Unmount and remove all volumes of a pod whose containers have exited.

    Returns the plugin of each volume found (``kubernetes.io/secret``), and the seconds that its
    teardown took.

    Raises:
        OSError: something is still mounted or could not be removed; nothing mounted was
            removed.
        UnsafePath: the uid cannot be a directory's name.
    """
    directory = paths.pod_dir
    if not Path(directory).is_dir() or not _has_volumes(paths):
        return []
    unmounting: defaultdict[str, float] = defaultdict(float)
    for point in disk.mounts_below(directory):
        begun = time.perf_counter()
        _unmount(point)
        unmounting[point] += time.perf_counter() - begun
    left = disk.mounts_below(directory)
    if left:
        raise OSError(errno.EBUSY, "it is still mounted", left[0])
    _remove(paths.sub_paths_dir)
    ended = []
    for plugin in PLUGINS.values():
        for volume in _directories(f"{paths.volumes_dir}/{plugin}"):
            begun = time.perf_counter()
            _remove(volume)
            seconds = time.perf_counter() - begun + unmounting[volume]
            ended.append((plugin.replace("~", "/"), seconds))
        _remove(f"{paths.volumes_dir}/{plugin}")
    _remove(f"{directory}/plugins/{PLUGINS['emptyDir']}")
    return ended


def unmount_inside(paths: PodPaths, keep: Collection[str]) -> None:
    """Unmount what is mounted in a pod's directory, except volumes (``keep``) of plugins.

    Mounts of subPaths and mounts that containers made inside volumes would keep a plugin from
    unmounting its own. Raises OSError, UnsafePath.
    """
    # the volumes themselves are not accessed: a dead server would not answer
    kept = {str(Path(os.path.realpath(Path(path).parent)) / Path(path).name) for path in keep}
    for point in disk.mounts_below(paths.pod_dir):
        if point not in kept:
            _unmount(point)


def plugin_of(path: str, paths: PodPaths) -> str:
    """The plugin of the volume that contains a path; empty when none does."""
    inside = path.removeprefix(f"{paths.volumes_dir}/")
    plugin = inside.partition("/")[0]
    return plugin.replace("~", "/") if plugin in PLUGINS.values() and inside != path else ""


def _unmount(point: str) -> None:
    try:
        disk.unmount(point)
    except OSError as error:  # a shared mount takes its copies with it; the rest is seen afterwards
        if error.errno not in (errno.EINVAL, errno.ENOENT):
            raise


def _has_volumes(paths: PodPaths) -> bool:
    try:
        with os.scandir(paths.volumes_dir) as entries:
            if next(entries, None) is not None:
                return True
    except FileNotFoundError:
        pass
    return Path(paths.sub_paths_dir).exists()


def _directories(directory: str) -> list[str]:
    try:
        with os.scandir(directory) as entries:
            return [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)]
    except FileNotFoundError:
        return []


def _remove(directory: str) -> None:
    try:
        remove_tree(directory)
    except FileNotFoundError:
        return


# emptyDir volumes: a directory, a tmpfs or huge pages (tables i2, i13).


class EmptyDirError(Exception):
    """The volume cannot be made as the spec requires; the message contains the reason."""


def memory_size(source: Mapping[str, Any], pod: Pod, allocatable: str | None) -> int:
    """Bytes of a memory volume: the minimum of its own, the pod's and the node's limit; 0: none.

    Raises:
        EmptyDirError: an amount is not a quantity.
    """
    try:
        limits = [value(source.get("sizeLimit") or "0"), _memory_limit(pod)]
        limits.append(value(allocatable or "0"))
    except ValueError as error:
        raise EmptyDirError(f"sizeLimit or memory limit: {error}") from error
    return min((limit for limit in limits if limit > 0), default=0)


def _memory_limit(pod: Pod) -> int:
    """The memory limit of the pod's cgroup; 0 when it has none."""
    of_pod = pod_level_limit(pod, "memory")
    if of_pod:
        return value(of_pod)
    for container in (*pod.init_containers, *pod.containers):
        if not ((container.get("resources") or {}).get("limits") or {}).get("memory"):
            return 0
    return int(pod_limits(pod).get("memory", 0))


def page_size(medium: str, pod: Pod) -> int:
    """Bytes of one huge page for a medium ``HugePages`` or ``HugePages-{size}``.

    Raises:
        EmptyDirError: containers request no huge pages, or several sizes.
    """
    requested = sorted(set(_huge_page_names(pod)))
    if medium == HUGE_PAGES:
        if len(requested) != 1:
            found = ", ".join(requested) or "none"
            raise EmptyDirError(
                "medium HugePages: containers must request huge pages of one size, they request "
                f"{found}; use medium HugePages-<size>"
            )
        name = requested[0]
    else:
        name = HUGEPAGES_PREFIX + medium.removeprefix(f"{HUGE_PAGES}-")
        if name not in requested:
            raise EmptyDirError(f"medium {medium}: no container requests {name}")
    try:
        return value(name.removeprefix(HUGEPAGES_PREFIX))
    except ValueError as error:
        raise EmptyDirError(f"medium {medium}: {error}") from error


def _huge_page_names(pod: Pod) -> Iterator[str]:
    for container in (*pod.init_containers, *pod.containers):
        resources: Mapping[str, Any] = container.get("resources") or {}
        for field in ("requests", "limits"):
            for name, amount in (resources.get(field) or {}).items():
                if name.startswith(HUGEPAGES_PREFIX) and parse(amount) > 0:
                    yield name


def own_mode(source: Mapping[str, Any], *, obeyed: bool) -> int | None:
    """The mode that a volume requests; None: none, or the feature gate is off (not obeyed)."""
    mode = source.get("mode") if obeyed else None
    return None if mode is None else mode & MAX_MODE


def set_up_empty_dir(
    directory: str,
    source: Mapping[str, Any],
    pod: Pod,
    allocatable_memory: str | None,
    mode: int | None = None,
    *,
    rights: disk.MountRights = disk.REQUIRED,
) -> None:
    """Make the volume; an existing one keeps its files.

    Args:
        directory: where it is made.
        source: the pod's ``emptyDir``.
        pod: whose it is.
        allocatable_memory: the node's, which bounds a volume in memory.
        mode: of its top directory, whatever its medium; None: that of the medium.
        rights: whether a directory may replace a mount.

    Raises:
        EmptyDirError: the medium is unavailable.
        OSError: it could not be made.
    """
    medium = source.get("medium") or ""
    if medium == "":
        make_directory(directory)
    elif medium == MEMORY:
        make_tmpfs(directory, memory_size(source, pod, allocatable_memory), rights)
    elif medium.startswith(HUGE_PAGES):
        _make_huge_pages(directory, medium, pod)
    else:
        raise EmptyDirError(f"unknown storage medium {medium!r}")
    if mode is not None:
        Path(directory).chmod(mode)  # of the mounted file system, if there is one


def make_directory(directory: str) -> None:
    """A world-writable directory, with its parents. Raises OSError."""
    path = Path(directory)
    if path.is_dir():
        return
    path.mkdir(MODE, parents=True, exist_ok=True)
    path.chmod(MODE)  # regardless of the umask


def make_tmpfs(directory: str, size: int, rights: disk.MountRights = disk.REQUIRED) -> None:
    """An in-memory directory of at most ``size`` bytes (0: kernel's default).

    Raises OSError, unless a directory for this user alone may replace it.
    """
    make_directory(directory)
    if is_in_memory(directory, rights):
        return
    if rights.does_without(partial(_mount_tmpfs, directory, size)):
        Path(directory).chmod(PRIVATE_MODE)


def is_in_memory(directory: str, rights: disk.MountRights) -> bool:
    """Whether a directory is a mount, or replaces one."""
    return disk.is_mount_point(directory) or replaces_mount(directory, rights)


def replaces_mount(directory: str, rights: disk.MountRights) -> bool:
    """Whether a directory is there because the kernel refused its mount."""
    try:
        mode = os.lstat(directory).st_mode
    except FileNotFoundError:
        return False
    if rights.required or disk.is_mount_point(directory):
        return False
    return stat.S_ISDIR(mode) and stat.S_IMODE(mode) == PRIVATE_MODE


def _mount_tmpfs(directory: str, size: int) -> None:
    options = [f"size={size}"] if size else []
    try:
        disk.mount("tmpfs", directory, "tmpfs", data=",".join([*options, "noswap"]))
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        disk.mount("tmpfs", directory, "tmpfs", data=",".join(options))


def resize_tmpfs(directory: str, size: int, rights: disk.MountRights = disk.REQUIRED) -> None:
    """Give a mounted in-memory directory another size in bytes; its files stay.

    A directory that replaces a mount has no size.

    Raises:
        VolumeSizeError: it is not mounted, or more than that is in use.
    """
    if not disk.is_mount_point(directory):
        if is_in_memory(directory, rights):
            return
        raise VolumeSizeError("it is not mounted; the resize is retried")
    try:
        disk.mount("tmpfs", directory, "tmpfs", disk.MS_REMOUNT, f"size={size}")
    except OSError as error:
        why = f"remount with size={size}: {error.strerror}"
        if error.errno == errno.EINVAL and (used := _bytes_used(directory)) > size:
            why = f"{why}: {used} bytes are in use; the resize is retried"
        raise VolumeSizeError(why) from error


def _bytes_used(directory: str) -> int:
    found = os.statvfs(directory)
    return (found.f_blocks - found.f_bfree) * found.f_frsize


def _make_huge_pages(directory: str, medium: str, pod: Pod) -> None:
    size = page_size(medium, pod)
    known = Path(_HUGE_PAGES_DIR, f"hugepages-{size // 1024}kB", "nr_hugepages")
    try:
        reserved = number(known.read_text(errors="replace"))
    except OSError:
        reserved = None
    if not reserved:
        raise EmptyDirError(
            f"medium {medium}: this node has no huge pages of {size // 1024} KiB reserved "
            "(vm.nr_hugepages)"
        )
    make_directory(directory)
    if not disk.is_mount_point(directory):
        disk.mount("nodev", directory, "hugetlbfs", data=f"pagesize={size}")
        os.chmod(directory, MODE)  # noqa: PTH101 - the root of the new file system
