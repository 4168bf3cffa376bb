"""Which plugin is to be registered or let go next, from the sockets that there are.

Pure. Source: docs/reference/behaviour-storage.md, sm1; docs/reference/behaviour-resources.md, rm.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from kubeletpy.plugins.model import PluginInfo, Stamp

FIRST_WAIT_S = 0.5
LONGEST_WAIT_S = 122.0
"""After failures in a row: doubling from the first to this. Source: docs/reference/constants.csv:
"backoff: volume operation retry"."""


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of one socket path.

    Attributes:
        registered: the plugin, while it is registered.
        busy: it is being registered or let go.
        tried: the socket file that was tried last.
        name: what the plugin called itself when it was tried last.
        failures: in a row, of that file.
        retry_at: not before that, in the loop's seconds.
        problem: why it is not registered.
    """

    registered: PluginInfo | None = None
    busy: bool = False
    tried: Stamp | None = None
    name: str = ""
    failures: int = 0
    retry_at: float = 0.0
    problem: str = ""

    def failed(self, tried: Stamp, name: str, problem: str, now: float) -> Known:
        """After a try that failed."""
        failures = self.failures + 1 if tried == self.tried else 1
        wait = min(FIRST_WAIT_S * 2 ** min(failures - 1, 16), LONGEST_WAIT_S)
        return Known(None, False, tried, name, failures, now + wait, problem)


@dataclass(frozen=True, slots=True)
class Register:
    """Register the plugin behind a socket."""

    socket: str
    stamp: Stamp
    reason: str


@dataclass(frozen=True, slots=True)
class Deregister:
    """Let a plugin go."""

    info: PluginInfo
    reason: str


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do now, and when to ask again if nothing happens (the loop's seconds)."""

    deregister: tuple[Deregister, ...]
    register: tuple[Register, ...]
    again_at: float | None
    forget: tuple[str, ...]
    """Paths of which nothing needs to be known any more."""


def plan(found: Mapping[str, Stamp], known: Mapping[str, Known], now: float) -> Plan:
    """What brings the registered plugins in line with the sockets that were found.

    A socket that was created again is another plugin: the old one is let go first, and no failure
    of the old one holds it up.
    """
    deregister, register, forget = [], [], []
    again: list[float] = []
    for path, state in known.items():
        info = state.registered
        if state.busy:
            continue
        if info is None:
            if path not in found:
                forget.append(path)
        elif path not in found:
            deregister.append(Deregister(info, "its socket is gone"))
        elif found[path] != info.stamp:
            deregister.append(Deregister(info, "its socket was created again"))
    for path, stamp in found.items():
        state = known.get(path, Known())
        if state.busy or state.registered is not None:
            continue
        if stamp == state.tried and now < state.retry_at:
            again.append(state.retry_at)
            continue
        reason = f"try {state.failures + 1}" if stamp == state.tried else "a new socket"
        register.append(Register(path, stamp, reason))
    return Plan(tuple(deregister), tuple(register), min(again, default=None), tuple(forget))


def name_is_free(known: Mapping[str, Known], name: str, now: float) -> dict[str, Known]:
    """Let those try at once that failed under the name of a plugin that was let go."""
    return {
        path: replace(state, retry_at=now) if state.name == name and not state.busy else state
        for path, state in known.items()
    }


def sockets(known: Mapping[str, Known]) -> Iterable[str]:
    """Paths of the plugins that are registered."""
    return (path for path, state in known.items() if state.registered is not None)
