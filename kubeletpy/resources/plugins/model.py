"""Plugins of the node, their handlers, and the plan of the next registrations. Pure.

Plugins are CSI drivers, device plugins and DRA drivers. A handler is chosen by type and is
independent of sockets and handshakes; the plugin manager does not depend on a plugin's purpose.
Source: docs/reference/behaviour-storage.md, sm1; docs/reference/behaviour-resources.md, rm.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from kubeletpy.base.structs import Struct, replace

Stamp = tuple[int, int]
"""Distinguishes successive socket files at the same path: inode and creation time."""

CSI, DEVICE, DRA = "CSIPlugin", "DevicePlugin", "DRAPlugin"


class PluginInfo(Struct, frozen=True):
    """A plugin's report about itself.

    Attributes:
        type: ``CSIPlugin``, ``DevicePlugin``, ``DRAPlugin``, or anything else.
        endpoint: path of the service socket; the registration socket if it named none.
        socket: path of the registration socket.
        stamp: identifies the socket file; the info of a restarted plugin compares unequal.
    """

    type: str
    name: str
    endpoint: str
    versions: tuple[str, ...]
    socket: str
    stamp: Stamp


# The interfaces to handlers, and to plugins' registration services.


class PluginRefused(Exception):
    """A plugin cannot be registered (now); the text is sent to the plugin and logged."""


class PluginHandler(Protocol):
    """Handles the plugins of one type."""

    def validate(self, info: PluginInfo) -> None:
        """Raise PluginRefused if this plugin cannot be used."""

    async def register(self, info: PluginInfo) -> None:
        """Start using a plugin. Raises PluginRefused; then the handler has forgotten the plugin."""

    async def deregister(self, info: PluginInfo) -> None:
        """Stop using a plugin, unless another has taken its name meanwhile (``info`` differs)."""


class Conversation(Protocol):
    """The registration service of one plugin. Each call raises PluginRefused when it fails."""

    async def info(self) -> PluginInfo:
        """Query the plugin's report about itself."""

    async def notify(self, *, registered: bool, error: str = "") -> None:
        """Notify the plugin of the result of its registration."""


class Registrations(Protocol):
    """The registration services of plugins: behind sockets, or simulated."""

    def open(self, socket: str, stamp: Stamp) -> AbstractAsyncContextManager[Conversation]:
        """Connect to the service behind a socket. Raises PluginRefused."""


class PluginCounts(Protocol):
    """Receives the socket counts."""

    def show(self, desired: Sequence[str], registered: Sequence[str]) -> None:
        """Count the sockets that exist (``desired``), and those of registered plugins."""


Handlers = Mapping[str, PluginHandler]
"""Handlers by plugin type."""


# The plan of the next registrations, from the sockets that exist.

FIRST_WAIT_MS = 500
LONGEST_WAIT_MS = 122_000
"""Retry delay after consecutive failures: doubles from the first value to the second. Source:
docs/reference/constants.csv: "backoff: volume operation retry".
"""


class Known(Struct, frozen=True):
    """State of one socket path.

    Attributes:
        registered: the plugin, while it is registered.
        busy: it is being registered or deregistered.
        tried: the socket file of the last attempt.
        name: the plugin's name at the last attempt.
        failures: consecutive failures of that file.
        retry_at: no attempt before this, in event-loop time.
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
        """Return the state after a failed attempt."""
        failures = self.failures + 1 if tried == self.tried else 1
        wait = min(FIRST_WAIT_MS << (failures - 1), LONGEST_WAIT_MS) / 1000
        return Known(None, False, tried, name, failures, now + wait, problem)


class Register(Struct, frozen=True):
    """Register the plugin behind a socket."""

    socket: str
    stamp: Stamp
    reason: str


class Deregister(Struct, frozen=True):
    """Deregister the plugin behind a socket."""

    info: PluginInfo
    reason: str


class PluginPlan(Struct, frozen=True):
    """The next calls, and when to plan again if nothing changes (event-loop time)."""

    deregister: tuple[Deregister, ...]
    register: tuple[Register, ...]
    again_at: float | None
    forget: tuple[str, ...]
    """Paths whose state can be forgotten."""


def plan(found: Mapping[str, Stamp], known: Mapping[str, Known], now: float) -> PluginPlan:
    """Plan the steps that bring the registered plugins in line with the sockets found.

    A recreated socket is another plugin: the old one is deregistered first, and none of its
    failures delays the new one.
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
            deregister.append(Deregister(info, "its socket was removed"))
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
    return PluginPlan(tuple(deregister), tuple(register), min(again, default=None), tuple(forget))


def name_is_free(known: Mapping[str, Known], name: str, now: float) -> dict[str, Known]:
    """Let plugins that failed under the name of a deregistered plugin retry at once."""
    return {
        path: replace(state, retry_at=now) if state.name == name and not state.busy else state
        for path, state in known.items()
    }
