"""Records of pods' resources that outlive the agent: those allocated, and those actuated.

Neither the API nor the runtime keeps this state. A spec contains what is requested, a container has
what is in force, and neither shows what this node has promised. There are two of these records, as
the kubelet keeps two files.

A change is in the journal when a setter returns: one append to an open file, about 20 µs and
without waiting for the disk. So records survive the agent's death at any instant. They need not
survive the machine's: then nothing runs any more. Soon after, a thread writes the whole state in
the kubelet's format and starts a new journal.

A file that cannot be used is reported once and ignored: then ``complete`` is false, and what was
allocated to pods has to be taken from the API. So no file keeps the agent from starting, or a pod
from running.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path

from kubeletpy.base.api import types as api
from kubeletpy.base.host.disk_errors import complete_errors
from kubeletpy.base.host.state_file import StateFile, read_state
from kubeletpy.base.structs import Component, replace
from kubeletpy.resources.allocation import checkpoint_file
from kubeletpy.resources.allocation.resources import PodResources, Requirements
from kubeletpy.resources.placement.state import StateError

log = logging.getLogger(__name__)

SNAPSHOT_AFTER_S = 1.0
"""Changes within this time go into one snapshot."""
_NOTHING = PodResources()


class ResourceState(Component):
    """Resources by pod uid and container. Without a path they are kept in memory only.

    Use it inside the event loop only.
    """

    path: Path | None = None
    memory_volumes: bool = True
    """If false, sizes of volumes that the files contain are ignored."""

    def __post_init__(self) -> None:
        self._file: StateFile | None = None
        self._pods: dict[str, PodResources] = {}
        self.complete = False
        """Whether every record ever written is known: the files existed and were readable."""
        self._journal: int | None = None
        self._lines: list[bytes] = []
        """Those since the newest snapshot was begun."""
        path = self.path
        if path is not None:
            problem = "allocated resources can't be written; trying again"
            self._file = StateFile(
                path,
                self._capture,
                problem,
                soon_s=SNAPSHOT_AFTER_S,
                stored=lambda: self._restart_journal(path),
            )
            self._load(path, self._file)

    # -- records -----------------------------------------------------------------------------

    def find(self, uid: str) -> PodResources | None:
        """Return everything recorded for a pod, or None."""
        return self._pods.get(uid)

    def get(self, uid: str, container: str) -> Requirements | None:
        """The record of one container."""
        return self.pod(uid).get(container)

    def pod(self, uid: str) -> Mapping[str, Requirements]:
        """The records of a pod's containers."""
        return self._pods.get(uid, _NOTHING).containers

    def get_pod_level(self, uid: str) -> Requirements | None:
        """The record at pod level."""
        return self._pods.get(uid, _NOTHING).pod

    def volumes(self, uid: str) -> Mapping[str, str]:
        """The sizes that are recorded for a pod's volumes in memory."""
        return self._pods.get(uid, _NOTHING).volumes

    def uids(self) -> list[str]:
        """The pods that have a record."""
        return list(self._pods)

    def set(self, uid: str, container: str, resources: Requirements) -> None:
        """Record the resources of one container."""
        before = self._pods.get(uid, _NOTHING)
        containers = {**before.containers, container: resources}
        self.put(uid, replace(before, containers=containers))

    def set_pod_level(self, uid: str, resources: Requirements | None) -> None:
        """Record the pod-level resources of a pod."""
        self.put(uid, replace(self._pods.get(uid, _NOTHING), pod=resources))

    def set_volume(self, uid: str, volume: str, size: str) -> None:
        """Record the size of one volume in memory."""
        before = self._pods.get(uid, _NOTHING)
        self.put(uid, replace(before, volumes={**before.volumes, volume: size}))

    def put(self, uid: str, found: PodResources) -> None:
        """Record everything for a pod at once."""
        if self._pods.get(uid) != found:
            self._pods[uid] = found
            self._note(checkpoint_file.journal_line(uid, found))

    def remove(self, uid: str) -> None:
        """Drop the record of a pod."""
        if self._pods.pop(uid, None) is not None:
            self._note(checkpoint_file.journal_line(uid, None))

    def forget_others(self, uids: Iterable[str]) -> None:
        """Drop the records of all pods but these."""
        kept = set(uids)
        for uid in [each for each in self._pods if each not in kept]:
            self.remove(uid)

    # -- writing -----------------------------------------------------------------------------

    async def close(self) -> None:
        """Write what is not in the snapshot yet, and stop writing."""
        if self._file is not None:
            await self._file.close()
        if self._journal is not None:
            os.close(self._journal)
            self._journal = None

    def _note(self, line: bytes) -> None:
        if self._file is None:
            return
        try:
            journal = _journal_path(self._file.path)
            if self._journal is None:
                flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
                self._journal = os.open(journal, flags, 0o600)
            with complete_errors(journal):
                if os.write(self._journal, line) < len(line):
                    os.write(self._journal, b"\n")
        except OSError as error:
            self._file.failed(error)
        self._lines.append(line)
        self._file.write_soon()

    def _capture(self) -> Callable[[], str]:
        self._lines = []
        return partial(checkpoint_file.snapshot, dict(self._pods))

    def _restart_journal(self, path: Path) -> None:
        """Begin the new journal with the changes that the snapshot lacks."""
        if not self._lines and self._journal is not None:
            os.ftruncate(self._journal, 0)
            return
        journal = _journal_path(path)
        fresh = journal.with_name(f"{journal.name}.new")
        descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o600)
        try:
            with complete_errors(fresh):
                os.write(descriptor, b"".join(self._lines))
                fresh.replace(journal)
        except OSError:
            os.close(descriptor)
            raise
        if self._journal is not None:
            os.close(self._journal)
        self._journal = descriptor

    # -- reading -----------------------------------------------------------------------------

    def _load(self, path: Path, file: StateFile) -> None:
        text = _read(path)
        lines = (_read(_journal_path(path)) or b"").splitlines(keepends=True)
        if text is None and not lines:
            return
        problem = ""
        if text is not None:
            try:
                snapshot = text.decode("utf-8", "replace")
                self._pods = checkpoint_file.read_snapshot(snapshot, _pod_list)
            except StateError as error:
                problem = str(error)
        if lines and not lines[-1].endswith(b"\n"):
            # torn by the agent's death: its change never took effect
            torn = lines.pop()
            with contextlib.suppress(OSError):
                journal = _journal_path(path)
                os.truncate(journal, journal.stat().st_size - len(torn))
        unread = checkpoint_file.replay(self._pods, lines)
        if not self.memory_volumes:
            self._pods = {uid: replace(found, volumes={}) for uid, found in self._pods.items()}
        if unread:
            problem = problem or f"{unread} lines of its journal can't be read"
        if lines:
            file.note_change()
        self.complete = not problem
        if problem:
            log.warning(
                "a state file can't be used: allocated resources are taken from the API",
                extra={"path": str(path), "why": problem},
            )


def _pod_list(raw: bytes) -> Iterable[api.Pod]:
    # only a kubelet that ran here before has written one
    from kubeletpy.base.wire.api_table import pod_list

    return pod_list(raw)


def _journal_path(path: Path) -> Path:
    return path.with_name(f"{path.name}.journal")


def _read(path: Path) -> bytes | None:
    """A file's content; None if it does not exist, empty if it can't be read."""
    try:
        return read_state(path)
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        log.warning("a state file can't be read", extra={"path": str(path), "why": str(error)})
        return b""
