"""Takes the volumes of a pod down: unmounts what is below its directory, removes what was in it.

Works from what is on disk and what the kernel says, so it takes down what an agent before this one
has set up. Volumes whose kind the agent does not know are left: somebody's data may be in them.
Blocking, for threads. Source: docs/reference, volumes: teardown.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from kubeletpy.volumes.paths import PLUGINS, PodPaths
from kubeletpy.volumes.syscalls import mounts_below, unmount


def take_down(paths: PodPaths) -> None:
    """Unmount and remove all volumes of a pod whose containers are gone.

    Raises:
        OSError: something is still mounted or could not be removed; nothing that is mounted was
            removed.
        UnsafePath: the uid cannot be a directory's name.
    """
    directory = paths.pod_dir
    if not Path(directory).is_dir():
        return
    if not _has_volumes(paths):
        return
    for point in mounts_below(directory):
        unmount(point)
    left = mounts_below(directory)
    if left:
        raise OSError(f"{left[0]} is still mounted")
    _remove(paths.sub_paths_dir)
    for plugin in PLUGINS.values():
        _remove(f"{paths.volumes_dir}/{plugin}")
    _remove(f"{directory}/plugins/{PLUGINS['emptyDir']}")


def _has_volumes(paths: PodPaths) -> bool:
    try:
        with os.scandir(paths.volumes_dir) as entries:
            if next(entries, None) is not None:
                return True
    except FileNotFoundError:
        pass
    return Path(paths.sub_paths_dir).exists()


def _remove(directory: str) -> None:
    try:
        shutil.rmtree(directory)  # follows no links
    except FileNotFoundError:
        return
