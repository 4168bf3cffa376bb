"""The version of the API server: queried at the start, and again while the agent runs.

An agent stays what it was at its start. When its API server is upgraded it reports once that a
restart would move the node to the new version, and records that version for starts without the
server. Decisions: :mod:`kubeletpy.config.version_choice`.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable
from pathlib import Path

from kubeletpy.base.host.files import write_whole
from kubeletpy.base.kubernetes_version import KubernetesVersion
from kubeletpy.base.structs import Component, Struct
from kubeletpy.config.files import VERSION_RECORD
from kubeletpy.config.version_choice import (
    NoVersion,
    ResolvedVersion,
    ServerVersion,
    VersionSource,
    after_restart,
    decide,
    read_server_version,
)
from kubeletpy.kubeapi.errors import ApiError
from kubeletpy.kubeapi.protocol import KubeApi
from kubeletpy.kubeapi.transport import spread

CHECK_S = 600.0
"""Seconds between two requests, up to twice as many. Nothing acts on the answer but people, and
5000 nodes then send six requests a second, which read nothing from etcd; their leases are 500."""
UNKNOWN_CHECK_S = 10.0
"""The same until the first answer: the node may be newer than its API server."""
ANSWER_S = 10.0
"""Seconds for an answer to a running agent."""

log = logging.getLogger(__name__)


async def query_version(api: KubeApi, seconds: float) -> ServerVersion | NoVersion:
    """The API server's version; waits at most ``seconds``."""
    try:
        async with asyncio.timeout(seconds):
            return read_server_version(await api.version())
    except TimeoutError:
        return NoVersion(f"no answer within {seconds:g} s")
    except ApiError as error:
        return NoVersion(str(error)[:200])


def write_version_record(version: KubernetesVersion, root: Path) -> None:
    """Record a version for a start without the API server. A failure is logged."""
    path, text = root / VERSION_RECORD, f"{version}\n"
    try:
        if not path.is_file() or path.read_text(errors="replace") != text:
            write_whole(path, text, mode=0o644)
    except OSError as error:
        log.warning(
            "the Kubernetes version can't be recorded: a start without the API server will not "
            "have it",
            extra={"path": str(path), "why": str(error)},
        )


class VersionReported(Struct, frozen=True):
    """The node's version for explain.

    Attributes:
        running: the version that the agent runs as.
        source: where it comes from (VersionSource).
        why: one sentence.
        server: the API server's version at the last answer; empty while it is unknown.
        restart: what a restart would change; empty when nothing.
    """

    running: str
    source: str
    why: str
    server: str = ""
    restart: str = ""


class VersionFollower(Component):
    """Notices that the API server has another version than at the start."""

    api: KubeApi | None
    """Queried; None: the node has no API server."""
    resolved: ResolvedVersion
    """The Kubernetes version that the agent runs as."""
    root: Path
    """The directory of the record."""
    notify: Callable[[str, bool], None]
    """Reports a sentence to the owner of the node, and whether it is a warning; called once for
    each version that a restart would lead to."""
    rng: random.Random
    """For jitter."""

    def __post_init__(self) -> None:
        self._server = self.resolved.server
        self._restart = ""
        self._notified: set[KubernetesVersion] = set()
        self._unreached = False

    @property
    def reported(self) -> VersionReported:
        """The version now, for explain."""
        found = self.resolved
        return VersionReported(
            str(found.version), str(found.source), found.why, self._server, self._restart
        )

    async def run(self) -> None:
        """Query from time to time, until cancelled."""
        assert self.api is not None, "no task without an API"
        while True:
            seconds = CHECK_S if self._server else UNKNOWN_CHECK_S
            await asyncio.sleep(spread(seconds, self.rng.random()))
            await self.note_version(await query_version(self.api, ANSWER_S))

    async def note_version(self, answer: ServerVersion | NoVersion) -> None:
        """Take note of an answer."""
        if isinstance(answer, NoVersion):
            if not self._unreached:
                log.info("the API server's version is unknown", extra={"why": answer.why})
            self._unreached = True
            return
        self._unreached = False
        first, self._server = not self._server, answer.text
        next_start = decide(None, answer, None)
        if self.resolved.source is not VersionSource.FLAG:
            await asyncio.to_thread(write_version_record, next_start.version, self.root)
        if first and next_start.warning:
            log.warning("Kubernetes version", extra={"why": next_start.why})
        change = after_restart(self.resolved, answer)
        self._restart = change.why if change is not None else ""
        if change is not None and change.version not in self._notified:
            self._notified.add(change.version)
            level = logging.WARNING if change.warning else logging.INFO
            log.log(level, change.why)
            self.notify(change.why, change.warning)
