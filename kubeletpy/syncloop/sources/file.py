"""The sources of static pods but for a URL: manifest files, and a program's own source.

Each delivers its full set to the sync loop. The source *api* is a reflector, which calls the loop
itself (:func:`kubeletpy.agent.pod_state.build_sources`).
"""

from __future__ import annotations

import asyncio
import json
import logging
import stat
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from kubeletpy.base.api import types as api
from kubeletpy.base.api.types import JSON
from kubeletpy.base.host.inotify import DirectoryWatch
from kubeletpy.base.structs import Component, Struct, field
from kubeletpy.base.tasks import wait_within
from kubeletpy.pods.pod import SOURCE_API, SOURCE_FILE, SOURCE_HTTP
from kubeletpy.remote.errors import CRIError
from kubeletpy.syncloop.merge import NAMELESS
from kubeletpy.syncloop.sources.manifest import (
    MAX_MANIFEST,
    ManifestError,
    Origin,
    decode_manifest,
    renamed,
)

if TYPE_CHECKING:
    from kubeletpy.syncloop.sources.static_uids import StaticUids


log = logging.getLogger(__name__)


Deliver = Callable[[str, list[api.Pod]], None]
"""Takes the full set of a source."""
Unreadable = Callable[[str, str, str], None]
"""Takes the source and uid of a pod that keeps its last good version, and what is wrong now."""


RETRY = 1.0
"""Seconds until the runtime is queried again for the static pods that run."""
SETTLE = 0.05
"""Seconds to wait after a change: a file being written is read once, when it is complete."""
MOST_NOTIFIED = 10
"""Bad manifests that are named to people."""


class FileSource(Component):
    """The source *file*: static pods from a manifest directory, or from one manifest file.

    ``path`` is read at once, at every change that the kernel reports, and every ``check_frequency``
    seconds, but not below a subdirectory. A bad file is logged once and left out. The other files
    keep their pods, and so does a file that was good before, until it is good again or removed. For
    a file that was never good while this agent ran, NAMELESS is delivered: its pod is unknown, and
    a running pod may be that pod. A file that was deleted and reappears is a new pod, however
    quickly and whatever its content: the old one is withdrawn first.
    """

    path: Path
    node_name: str
    deliver: Deliver
    unreadable: Unreadable
    check_frequency: float = 20.0
    # Which UIDs pods have whose manifests have none; None: the computed ones.
    uids: StaticUids | None = None

    def __post_init__(self) -> None:
        self._changed = asyncio.Event()
        self._watch = DirectoryWatch(self.path, self._changed.set, self._note_deleted)
        self._deleted: set[str] = set()
        """Known files that were deleted since the last scan."""
        self._logged: dict[str, str] = {}
        self._last: list[api.Pod] | None = None
        self._good: dict[str, list[api.Pod]] = {}
        """The pods of each file when it was last readable."""
        self._signature: Signature | None = None

    async def run(self) -> None:
        """Read the path, and again at each change, until cancelled."""
        try:
            while True:
                self._watch.start()
                self._changed.clear()
                read = await self._scan()
                if await wait_within(self._changed, self.check_frequency if read else RETRY):
                    await asyncio.sleep(SETTLE)
        finally:
            self._watch.close()
            if self.uids is not None:
                await self.uids.close()

    def _note_deleted(self, name: str) -> None:
        file = str(self.path / name)
        if file in self._good:
            self._deleted.add(file)

    async def _scan(self) -> bool:
        """Returns whether the pods could be determined."""
        try:
            signature = await asyncio.to_thread(manifests_signature, self.path)
            if signature == self._signature and not self._deleted:
                return True
            read = await asyncio.to_thread(read_manifests, self.path, self.node_name)
            found = await self._with_uids(read)
            self._signature = signature
        except OSError as error:
            # what is there can't be known: the pods that run stay
            self._log({str(self.path): str(error)})
            return True
        except CRIError as error:
            log.warning("the runtime does not report static pods", extra={"error": str(error)})
            return False
        problems = read.problems
        self._take_back(self._deleted)
        known = {file: self._good[file] for file in problems if file in self._good}
        self._good = dict(sorted({**found, **known}.items()))
        self._log(problems)
        pods = [pod for each in self._good.values() for pod in each]
        if problems.keys() > known.keys():
            pods.append(NAMELESS)
        if pods != self._last:
            self._last = pods
            self.deliver(SOURCE_FILE, pods)
        return True

    async def _with_uids(self, read: ManifestFiles) -> dict[str, list[api.Pod]]:
        """The pods by file, with the uids that they have. Raises CRIError."""
        if self.uids is None:
            return read.pods
        pods = [pod for each in read.pods.values() for pod in each]
        uids = await self.uids.settle(SOURCE_FILE, pods, read.changed)
        return {file: [renamed(pod, uids) for pod in each] for file, each in read.pods.items()}

    def _take_back(self, deleted: set[str]) -> None:
        """Deliver the set without the deleted files, as if it had been read in between."""
        self._deleted = set()
        removed = {file for file in deleted if self._good.pop(file, None)}
        if removed and self._last is not None:
            rest: list[api.Pod] = [pod for each in self._good.values() for pod in each]
            self._last = [*rest, NAMELESS] if NAMELESS in self._last else rest
            self.deliver(SOURCE_FILE, self._last)

    def problem(self) -> str:
        """The manifests that can't be used, each with its reason; empty: none."""
        found = [f"static pod manifest {file}: {why}" for file, why in self._logged.items()]
        more = f"; and {len(found) - MOST_NOTIFIED} more" if len(found) > MOST_NOTIFIED else ""
        return "; ".join(found[:MOST_NOTIFIED]) + more

    def _log(self, problems: dict[str, str]) -> None:
        for file, problem in problems.items():
            if self._logged.get(file) == problem:
                continue
            log.error("static pod manifest skipped", extra={"file": file, "problem": problem})
            for pod in self._good.get(file, ()):
                text = f"{file}: {problem}; the pod goes on as it was"
                self.unreadable(SOURCE_FILE, pod["metadata"]["uid"], text)
        self._logged = problems


Signature = tuple[tuple[str, int, int, int], ...]
"""Name, inode, size and time of change of each file."""


def manifests_signature(path: Path) -> Signature:
    """Identifies the state of the manifests without reading them. Raises OSError."""
    try:
        files = _files(path)
    except FileNotFoundError:
        return ()
    seen = []
    for file in files:
        try:
            found = file.stat()
        except OSError:
            continue
        seen.append((file.name, found.st_ino, found.st_size, found.st_mtime_ns))
    return tuple(seen)


class ManifestFiles(Struct):
    """The contents of manifest files.

    Attributes:
        pods: by file.
        problems: what is wrong, by file.
        changed: by uid that was computed, when the pod's file was last changed, in Unix seconds.
    """

    pods: dict[str, list[api.Pod]] = field(default_factory=dict)
    problems: dict[str, str] = field(default_factory=dict)
    changed: dict[str, float | None] = field(default_factory=dict)


def read_manifests(path: Path, node_name: str) -> ManifestFiles:
    """Read all manifests below a path.

    A path that does not exist has no pods. Raises OSError when the path can't be read.
    """
    found = ManifestFiles()
    try:
        files = _files(path)
    except FileNotFoundError:
        return found
    for file in files:
        try:
            if file.is_file():
                origin = Origin(node_name, str(file), is_file=True)
                computed: set[str] = set()
                found.pods[str(file)] = decode_manifest(_read_manifest(file), origin, computed)
                # after it was read: a change between the two counts as one after it
                found.changed.update(dict.fromkeys(computed, _changed_at(file)))
        except FileNotFoundError:
            continue
        except (OSError, ManifestError) as error:
            found.problems[str(file)] = str(error)
    return found


def _changed_at(file: Path) -> float:
    """When a file, or the link to it, was written, replaced or renamed. Raises OSError."""
    return max(file.stat().st_ctime, file.lstat().st_ctime)


def _files(path: Path) -> list[Path]:
    if not stat.S_ISDIR(path.stat().st_mode):
        return [path]
    return sorted(file for file in path.iterdir() if not file.name.startswith("."))


def _read_manifest(file: Path) -> bytes:
    with file.open("rb") as stream:
        return stream.read(MAX_MANIFEST + 1)


Show = Callable[[Sequence[JSON]], None]
"""Takes all pods of a source, each a v1 Pod as JSON; previous pods that are not among them end.

Raises ValueError, which states what is wrong, if any of them can't be a static pod; then the
previous pods stay."""


class PodSource(Protocol):
    """A program's own source of pods: they run without an API, as static pods do."""

    @property
    def name(self) -> str:
        """The source's unique name, used in the pods' annotation
        ``kubernetes.io/config.source``."""

    async def run(self, show: Show) -> None:
        """Show the pods, at once and at every change, until cancelled.

        Nothing on the node is cleaned up before the first call of ``show``. If it raises or
        returns, the agent ends.
        """


class SuppliedSource(Component):
    """Delivers the pods of a PodSource, a program that embeds an agent.

    They pass the same checks, defaults and computation of uids as a manifest from a URL.
    """

    # ValueError is raised if it has the name of one of the agent's own sources.
    source: PodSource
    node_name: str
    deliver: Deliver

    def __post_init__(self) -> None:
        if self.source.name in ("", SOURCE_API, SOURCE_FILE, SOURCE_HTTP):
            raise ValueError(
                f"a source of pods can't be named {self.source.name!r}: choose another"
            )
        self._origin = Origin(self.node_name, self.source.name, is_file=False)

    async def run(self) -> None:
        """Run the source until cancelled."""
        await self.source.run(self._show)
        raise RuntimeError(f"the source of pods {self.source.name} has ended")

    def _show(self, pods: Sequence[JSON]) -> None:
        manifest = {"apiVersion": "v1", "kind": "PodList", "items": list(pods)}
        decoded = decode_manifest(json.dumps(manifest).encode(), self._origin)
        self.deliver(self.source.name, decoded)
