"""Sets one volume up on disk. Blocking, for threads; repeating it changes nothing.

The ready marker means that a volume was set up once: from then on containers may use it. Source:
docs/reference/behaviour.md, i1, i2, i3, i4, i13; docs/reference/names.csv: volume-dir.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from kubeletpy.base.host.disk_errors import complete_errors
from kubeletpy.base.host.errors import MachineFault, machine_fault
from kubeletpy.base.structs import Hidden, HidesFields, Struct, replace
from kubeletpy.pods.pod import Pod
from kubeletpy.volumes.files import host_path
from kubeletpy.volumes.files.atomic import write_payload
from kubeletpy.volumes.files.content import PayloadError
from kubeletpy.volumes.files.host_path import HostPathError
from kubeletpy.volumes.files.ownership import give_to_group
from kubeletpy.volumes.files.paths import PLUGINS, PodPaths, UnsafePath
from kubeletpy.volumes.files.syscalls import REQUIRED, MountRights, share
from kubeletpy.volumes.pod_volumes.empty_dir import (
    EmptyDirError,
    is_in_memory,
    make_directory,
    make_tmpfs,
    memory_size,
    own_mode,
    replaces_mount,
    set_up_empty_dir,
)
from kubeletpy.volumes.pod_volumes.payload import (
    MAX_POD_BYTES,
    FileOwner,
    Input,
    build_payload,
    payload_size,
)
from kubeletpy.volumes.pod_volumes.plan import FILE_KINDS, PlannedVolume

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
    rights: MountRights = REQUIRED
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
    taken_over: bool
    """Whether it existed before, perhaps left by a previous agent."""
    fault: MachineFault | None = None
    """The fault of the machine behind the problem."""


def set_up_all(work: Sequence[VolumeWork], setting: PodSetting) -> list[SetUpOutcome]:
    """Set volumes up independently: the result of one does not affect the others."""
    outcomes: list[SetUpOutcome] = []
    left = setting.left
    for item in work:
        outcomes.append(_outcome(item, setting, left))
        left -= outcomes[-1].bytes
    return outcomes


def _outcome(item: VolumeWork, setting: PodSetting, left: int) -> SetUpOutcome:
    made, begun, problem, taken_over = 0, time.perf_counter(), "", False
    fault: MachineFault | None = None
    owning: list[float] = []
    try:
        taken_over = _was_set_up(item.volume, setting.paths)
        with complete_errors(_directory(item.volume, setting.paths)):
            made = _set_up(item, setting, owning, left)
    except (PayloadError, EmptyDirError, HostPathError, UnsafePath, OSError) as error:
        problem, fault = str(error), machine_fault(error)
    seconds = time.perf_counter() - begun
    return SetUpOutcome(
        item.volume, problem, seconds, sum(owning) if owning else None, made, taken_over, fault
    )


def _directory(volume: PlannedVolume, paths: PodPaths) -> str:
    """The place of a volume, for errors that name none."""
    if volume.kind == "hostPath":
        return str(volume.source.get("path") or "")
    return paths.volume(volume.kind, volume.name) if volume.kind in PLUGINS else volume.name


def _was_set_up(volume: PlannedVolume, paths: PodPaths) -> bool:
    return volume.kind in PLUGINS and Path(paths.ready_marker(volume.kind, volume.name)).exists()


def is_established(volume: PlannedVolume, paths: PodPaths, rights: MountRights = REQUIRED) -> bool:
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
        host_path.prepare(str(source.get("path") or ""), source.get("type") or "")
    elif volume.kind == "emptyDir":
        _set_up_empty_dir(volume, setting, owning)
    elif volume.kind in FILE_KINDS:
        made = _set_up_files(item, setting, owning, left)
    if volume.propagated and volume.kind in PLUGINS:
        try:
            share(setting.paths.volume(volume.kind, volume.name))
        except OSError as error:
            if not setting.rights.does_without(error):
                raise
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
