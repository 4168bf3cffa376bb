"""Which Kubernetes version an agent runs as, and why. Pure.

Inputs are the flag, the answer of the API server and the record of the last start. The answer comes
from an untrusted peer: it decides nothing but which of the supported versions applies.
docs/configuration.md describes the rules.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from enum import StrEnum

from kubeletpy.base.kubernetes_version import NEWEST, OLDEST, SUPPORTED, KubernetesVersion
from kubeletpy.base.structs import Struct, replace

AUTO = "auto"
"""The flag's value for "that of the API server"."""
MAX_RECORD_BYTES = 64
"""Bytes of the record that are read."""
_NUMBER = re.compile(r"[0-9]{1,4}", re.ASCII)
_MINOR = re.compile(r"([0-9]{1,4})\+?", re.ASCII)
_GIT_VERSION = re.compile(r"[0-9A-Za-z.+_~-]{1,64}", re.ASCII)


class VersionSource(StrEnum):
    """Where a version comes from."""

    FLAG = "flag"
    SERVER = "server"
    RECORD = "record"
    STANDALONE = "standalone"
    """The node has no API server."""
    OLDEST = "oldest"
    """No API server answered, and there is no record of an earlier answer."""


class ServerVersion(Struct, frozen=True):
    """The version that an API server states.

    Attributes:
        major, minor: of the API that it serves: of the emulated version if that is older.
        text: for people, such as ``v1.37.2``.
    """

    major: int
    minor: int
    text: str


class NoVersion(Struct, frozen=True):
    """There was no usable answer, for this reason."""

    why: str


class ResolvedVersion(Struct, frozen=True):
    """The version that an agent runs as.

    Attributes:
        why: one sentence.
        server: the API server's version; empty while it is unknown.
        warning: whether the reason has a consequence that somebody should act on.
    """

    version: KubernetesVersion
    source: VersionSource
    why: str
    server: str = ""
    warning: bool = False


def read_server_version(body: bytes) -> ServerVersion | NoVersion:
    """Interpret an answer of /version; ``1`` and ``37+`` is 1.37."""
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        return NoVersion("the answer is not JSON")
    if not isinstance(found, dict):
        return NoVersion("the answer is not an object")
    stated = _pair(found.get("major"), found.get("minor"))
    if stated is None:
        return NoVersion("the answer has no major and minor version")
    emulated = _pair(found.get("emulationMajor"), found.get("emulationMinor"))
    major, minor = min(stated, emulated or stated)
    text = found.get("gitVersion")
    if not isinstance(text, str) or not _GIT_VERSION.fullmatch(text):
        text = f"v{major}.{minor}"
    if (major, minor) != stated:
        text = f"{text} (emulates {major}.{minor})"
    return ServerVersion(major, minor, text)


def read_record(content: bytes) -> KubernetesVersion | None:
    """The version in a record; None when it is none. Another agent's newest or oldest may differ
    from ours: the nearest that is supported."""
    text = content[:MAX_RECORD_BYTES].decode(errors="replace").strip()
    major, _, minor = text.partition(".")
    pair = _pair(major, minor)
    return None if pair is None else _nearest(*pair)


def at_least(resolved: ResolvedVersion) -> Sequence[ResolvedVersion]:
    """The versions to try in turn until the configuration is valid for one.

    Without an answer and a record, the later versions are tried too: otherwise a field of the
    newest version would keep the node down.
    """
    if resolved.source is not VersionSource.OLDEST:
        return (resolved,)
    why = f"{resolved.why} (the oldest that has all that is configured)"
    later = [each for each in SUPPORTED if each != resolved.version]
    return (resolved, *(replace(resolved, version=each, why=why) for each in later))


def decide(
    requested: KubernetesVersion | None,
    server: ServerVersion | NoVersion | None,
    record: KubernetesVersion | None,
) -> ResolvedVersion:
    """The version, and why.

    Args:
        requested: the flag's version; None: auto.
        server: its answer; None: the node has no API server, or it was not queried.
        record: the version of the last start with an answer.
    """
    if requested is not None:
        why = f"--kubernetes-version={requested}"
        return ResolvedVersion(requested, VersionSource.FLAG, why)
    if server is None:
        return ResolvedVersion(NEWEST, VersionSource.STANDALONE, "the node has no API server")
    if isinstance(server, NoVersion):
        if record is not None:
            why = f"the API server's version is unknown ({server.why}); that of the last start"
            return ResolvedVersion(record, VersionSource.RECORD, why)
        why = (
            f"the API server's version is unknown ({server.why}), and no earlier start recorded it;"
            " a node must not be newer than its API server: the oldest version until the agent is "
            "restarted"
        )
        return ResolvedVersion(OLDEST, VersionSource.OLDEST, why, warning=True)
    stated, why = (server.major, server.minor), f"the API server is {server.text}"
    too_old = stated < (1, OLDEST.minor)
    if too_old:
        why += (
            ", older than any supported version: the node is newer than its API server, which may "
            "refuse or drop what it reports; upgrade the server"
        )
    elif stated > (1, NEWEST.minor):
        why += f"; this agent's newest version is {NEWEST}"
    version = _nearest(*stated)
    return ResolvedVersion(version, VersionSource.SERVER, why, server.text, warning=too_old)


class VersionChange(Struct, frozen=True):
    """The effect of a restart: the new version, one sentence, and whether it is urgent."""

    version: KubernetesVersion
    why: str
    warning: bool


def after_restart(running: ResolvedVersion, server: ServerVersion) -> VersionChange | None:
    """The change that a restart would make now; None: none.

    A node that is newer than its API server has to be restarted (version skew policy). With a
    version by flag only that is reported: an older version is what the owner of the node named.
    """
    now, then = running.version, decide(None, server, None).version
    if then == now:
        return None
    if then.minor < now.minor:
        remedy = f"restart the agent to run as {then}"
        if running.source is VersionSource.FLAG:
            remedy = f"restart the agent with --kubernetes-version={then} or auto"
        why = (
            f"the node runs as Kubernetes {now} and is newer than its API server, {server.text}, "
            f"which may refuse or drop what it reports: {remedy}"
        )
        return VersionChange(then, why, warning=True)
    if running.source is VersionSource.FLAG:
        return None
    why = (
        f"the API server is {server.text}, and the node runs as Kubernetes {now}: "
        f"restart the agent to run as {then}"
    )
    return VersionChange(then, why, warning=False)


def _nearest(major: int, minor: int) -> KubernetesVersion:
    if major != 1:
        return NEWEST if major > 1 else OLDEST
    return next((each for each in reversed(SUPPORTED) if each.minor <= minor), OLDEST)


def _pair(major: object, minor: object) -> tuple[int, int] | None:
    if not isinstance(major, str) or not isinstance(minor, str):
        return None
    found = _MINOR.fullmatch(minor)
    if not _NUMBER.fullmatch(major) or found is None:
        return None
    return int(major), int(found[1])
