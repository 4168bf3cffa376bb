"""Queries this machine's agent over its socket. Never starts or changes anything."""

from __future__ import annotations

import http.client
import json
import os
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from kubeletpy.base.clock import Clock
from kubeletpy.observe.explain.model import WaitKind

SOCKET_NAME = "explain.sock"
DEFAULTS = (
    Path("/var/lib/kubelet") / SOCKET_NAME,
    Path("/var/lib/kubeletpy/node/kubelet") / SOCKET_NAME,
)
"""Where ``run`` and ``up`` put it by default."""
UNIX_SOCKETS = Path("/proc/net/unix")
_START = (
    "Start one: kubeletpy up (in a checkout ./up.sh) for a node with an API of its own, "
    "systemctl start kubeletpy for a node of a cluster. An agent with --root-dir DIR is queried by "
    f"--socket DIR/{SOCKET_NAME}, `up` with --state-dir DIR by --socket DIR/kubelet/{SOCKET_NAME}"
)
LISTENS = "00010000"
"""Flags of a listening socket in that table (__SO_ACCEPTCON)."""
TIMEOUT_S = 10.0
REFUSED_S = 20.0
"""Seconds after which a status that the API does not accept counts."""


class NoAgent(Exception):
    """Nobody answers; the message states what to do."""


class NoSuchPod(Exception):
    """The agent has no such pod. ``last``: how it was when it ended, if that is known."""

    def __init__(self, message: str, last: Any = None) -> None:
        super().__init__(message)
        self.last = last


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=TIMEOUT_S)
        self._path = path

    def connect(self) -> None:
        self.sock = _connect(self._path)


def _connect(path: Path) -> socket.socket:
    """A connection to a socket. Raises OSError."""
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        made.settimeout(TIMEOUT_S)
        made.connect(str(path))
    except OSError:
        made.close()
        raise
    return made


def find(
    named: str | None, candidates: Sequence[Path] = DEFAULTS, table: Path = UNIX_SOCKETS
) -> Path:
    """The agent's socket: the named one, else that of the agent that runs here.

    An agent with default directories comes first.

    Raises:
        NoAgent: there is none, or this user may not use it. The message names all candidates.
    """
    if named:
        return Path(named)
    listening = live(table)
    if alive := [path for path in candidates if path in listening]:
        return alive[0]
    if len(listening) == 1:
        return listening[0]
    if listening:
        reported = " or ".join(f"--socket {path}" for path in listening)
        raise NoAgent(f"several agents run here: use {reported}")
    refused: dict[Path, OSError] = {}
    own = [rootless_socket()] if os.geteuid() else []
    for path in (*candidates, *own):  # the table lacks sockets of other network namespaces
        try:
            _connect(path).close()
        except OSError as error:
            refused[path] = error
        else:
            return path
    raise NoAgent(no_agent(refused))


def rootless_socket() -> Path:
    """Where ``up --rootless`` puts it by default."""
    data = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(data, "kubeletpy", "node", "kubelet", SOCKET_NAME)


def no_agent(refused: Mapping[Path, OSError]) -> str:
    """Why none of the sockets can be used, and what to do. The errors are those of connecting."""
    found = ", and ".join(_refusal(path, error) for path, error in refused.items())
    if any(isinstance(error, PermissionError) for error in refused.values()):
        return f"no agent can be queried: {found}. Run this as root"
    return f"no agent runs here: {found}. {_START}"


def _refusal(path: Path, error: OSError) -> str:
    match error:
        case FileNotFoundError() | NotADirectoryError():
            return f"there is no socket {path}"
        case ConnectionRefusedError():
            return f"nobody listens on {path} any more"
        case PermissionError():
            return f"this user may not use {path}"
        case _:
            return f"{path} does not answer: {error.strerror or error}"


def live(table: Path) -> list[Path]:
    """Sockets of agents that listen on this machine, by the kernel's table."""
    try:
        rows = table.read_text(errors="replace").splitlines()[1:]
    except OSError:
        return []
    fields = [row.split(maxsplit=7) for row in rows]
    paths = {Path(row[7]) for row in fields if len(row) == 8 and row[3] == LISTENS}
    return sorted(path for path in paths if path.name == SOCKET_NAME and path.is_absolute())


def get_json(path: Path, *parts: str) -> Any:
    """GET /part/part/... as JSON.

    Raises:
        NoAgent: nobody answers.
        NoSuchPod: the agent reports that there is no such thing.
    """
    return _answer(path, "GET", parts)


def post(path: Path, body: Any, *parts: str) -> Any:
    """POST an object to /part/part/...; the answer as JSON.

    Raises:
        NoAgent: nobody answers.
        NoSuchPod: the agent can't answer that, and states why.
    """
    return _answer(path, "POST", parts, json.dumps(body).encode())


def refused_statuses(root: Path, clock: Clock, pods: Sequence[str]) -> tuple[str, ...]:
    """Those of ``pods`` whose status the API does not accept, with the agent's reason.

    Args:
        root: the agent's root directory.
        pods: as namespace/name.
    """
    found = []
    for key in pods:
        try:
            reported = get_json(root / SOCKET_NAME, "pods", *key.split("/", 1))
        except NoSuchPod:
            continue
        except NoAgent:
            return ()  # the unit and the node's lease show whether it runs
        found += [
            f"pod {key}: {each['why']}"
            for each in reported.get("waits") or ()
            if each["kind"] == WaitKind.API_WRITE
            and (each.get("since") or clock.now()) < clock.now() - REFUSED_S
        ]
    return tuple(found)


def _answer(path: Path, method: str, parts: Sequence[str], sent: bytes | None = None) -> Any:
    connection = _UnixConnection(path)
    try:
        target = "/" + "/".join(quote(part, safe="") for part in parts)
        connection.request(method, target, sent)
        answer = connection.getresponse()
        body = json.loads(answer.read())
    except (PermissionError, FileNotFoundError, ConnectionRefusedError) as error:
        raise NoAgent(no_agent({path: error})) from error
    except (OSError, http.client.HTTPException, ValueError) as error:
        why = f"{error or type(error).__name__}; see its log"
        raise NoAgent(f"the agent did not answer on {path}: {why}") from error
    finally:
        connection.close()
    if answer.status in (400, 404):
        if not isinstance(body, dict):
            raise NoSuchPod(str(body))
        raise NoSuchPod(str(body.get("error")), body.get("last"))
    if answer.status != 200:
        raise NoAgent(f"the agent answered on {path} with status {answer.status}")
    return body
