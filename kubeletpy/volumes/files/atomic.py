"""Writes the files of a volume so that readers see either all the old files or all the new ones.

``..data`` is a symlink to a directory with the files; an update makes a new directory and renames a
new symlink over the old one. A crash at any instant leaves a volume that the next write completes.
Blocking, for threads. Source: docs/reference/behaviour.md, i4; docs/reference/names.csv:
volume-dir.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
import shutil
import time
from collections.abc import Callable
from pathlib import Path

from kubeletpy.base.host.disk_errors import complete_errors
from kubeletpy.base.host.files import NotBelow, open_file, open_folder, parts_below
from kubeletpy.volumes.files.paths import FileContent, Payload

DATA = "..data"
NEW_DATA = "..data_tmp"
DIRECTORY_MODE = 0o755
_VERSION = re.compile(r"\.\.\d{4}(_\d\d){5}\.[0-9a-z]+")
_READ_SLACK = 1
READERS_S = 0.02
"""How long the files before an update stay: a reader may have followed ``..data`` to them, but not
have opened its file yet. The kubelet removes them at once, and on a busy machine some reader gets
"no such file"."""


def write_payload(
    directory: str, payload: Payload, now: float, own: Callable[[], None] | None = None
) -> bool:
    """Make a volume's files match the payload; whether they had to change.

    Args:
        directory: the volume.
        payload: its files.
        now: Unix seconds, for the name of the new directory.
        own: sets the owner of everything in the volume; called before the new files are visible.

    Raises:
        OSError: the volume cannot be written; it shows the old files or the new ones.
    """
    root = Path(directory)
    current = before = _current(root)
    changed = current is None or not _same(root / current, payload)
    if changed:
        with complete_errors(directory, replace_path=True):
            current = _write_version(root, payload, now)
        if own is not None:
            own()
        new_link = root / NEW_DATA
        new_link.unlink(missing_ok=True)
        new_link.symlink_to(current)
        new_link.replace(root / DATA)
    assert current is not None, "written just now"
    _link_files(root, payload)
    if changed and before is not None:
        time.sleep(READERS_S)
    _remove_rest(root, payload, current)
    return changed


def read_file(below: str, directory: str, path: str, most: int) -> bytes:
    """A file of a volume as it was last written.

    Only the link ``..data`` is followed, and only to a directory that :func:`write_payload` made.

    Args:
        below: a directory that only the node can change, and ``directory``, the volume, below it.
        path: of the file in the volume.
        most: bytes.

    Raises:
        OSError: there is none, or something else is in its place.
    """
    folder = open_folder(below, parts_below(below, directory))
    try:
        version = os.readlink(DATA, dir_fd=folder)
    finally:
        os.close(folder)
    if not _VERSION.fullmatch(version):
        raise NotBelow(f"{directory}/{DATA} leads elsewhere")
    with os.fdopen(open_file(below, f"{directory}/{version}/{path}"), "rb") as file:
        data = file.read(most + _READ_SLACK)
    if len(data) > most:
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), path)
    return data


def _current(root: Path) -> str | None:
    """The directory that the files are in; None when there is none yet."""
    try:
        target = (root / DATA).readlink().name
    except OSError:
        return None
    return target if _VERSION.fullmatch(target) and (root / target).is_dir() else None


def _write_version(root: Path, payload: Payload, now: float) -> str:
    stamp = time.strftime("..%Y_%m_%d_%H_%M_%S.", time.gmtime(now))
    name = stamp + str(secrets.randbelow(10**10))
    version = root / name
    _make_directory(version)
    for path, content in payload.items():
        target = version / path
        for parent in reversed(target.relative_to(version).parents[:-1]):
            _make_directory(version / parent)
        _write_file(target, content)
    return name


def _make_directory(path: Path) -> None:
    try:
        path.mkdir(DIRECTORY_MODE)
    except FileExistsError:
        return
    path.chmod(DIRECTORY_MODE)  # regardless of the umask


def _write_file(path: Path, content: FileContent) -> None:
    flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(path, flags, 0o600)
    try:
        left = memoryview(content.data)
        while left:
            left = left[os.write(descriptor, left) :]
        if content.owner is not None:
            os.fchown(descriptor, content.owner, -1)
        os.fchmod(descriptor, content.mode)
    finally:
        os.close(descriptor)


def _same(version: Path, payload: Payload) -> bool:
    """Whether a directory holds exactly the payload's files."""
    found = 0
    for directory, _, files in os.walk(version):
        for name in files:
            path = Path(directory, name)
            desired = payload.get(str(path.relative_to(version)))
            if desired is None or not _holds(path, desired.data):
                return False
            found += 1
    return found == len(payload)


def _holds(path: Path, data: bytes) -> bool:
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    with os.fdopen(descriptor, "rb") as file:
        return file.read(len(data) + _READ_SLACK) == data


def _link_files(root: Path, payload: Payload) -> None:
    for name in {path.partition("/")[0] for path in payload}:
        link = root / name
        target = f"{DATA}/{name}"
        try:
            link.symlink_to(target)
        except FileExistsError:
            if not link.is_symlink() or str(link.readlink()) != target:
                raise


def _remove_rest(root: Path, payload: Payload, current: str) -> None:
    """Remove links to missing files, older versions, and leftovers of a crash."""
    kept = {path.partition("/")[0] for path in payload} | {DATA, current}
    for entry in list(os.scandir(root)):
        if entry.name in kept:
            continue
        if entry.is_symlink():
            Path(entry.path).unlink()
        elif _VERSION.fullmatch(entry.name):
            shutil.rmtree(entry.path)
