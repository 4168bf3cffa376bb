"""Tears down the volumes of a pod: unmounts what is below its directory, removes the rest.

Works from the disk and the kernel's mount table, so it also tears down what a previous agent has
set up. Volumes of an unknown kind are left alone, because they may hold somebody's data. Blocking,
for threads. Source: docs/reference/behaviour.md, i8.
"""

from __future__ import annotations

import errno
import os
import time
from collections import defaultdict
from collections.abc import Collection
from pathlib import Path

from kubeletpy.base.host.files import remove_tree
from kubeletpy.volumes.files.paths import PLUGINS, PodPaths
from kubeletpy.volumes.files.syscalls import mounts_below, unmount


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
    for point in mounts_below(directory):
        begun = time.perf_counter()
        _unmount(point)
        unmounting[point] += time.perf_counter() - begun
    left = mounts_below(directory)
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
    for point in mounts_below(paths.pod_dir):
        if point not in kept:
            _unmount(point)


def plugin_of(path: str, paths: PodPaths) -> str:
    """The plugin of the volume that contains a path; empty when none does."""
    inside = path.removeprefix(f"{paths.volumes_dir}/")
    plugin = inside.partition("/")[0]
    return plugin.replace("~", "/") if plugin in PLUGINS.values() and inside != path else ""


def _unmount(point: str) -> None:
    try:
        unmount(point)
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
