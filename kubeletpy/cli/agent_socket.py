"""Queries this machine's agent over its socket. Never starts or changes anything."""

from __future__ import annotations

import http.client
import json
import os
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

SOCKET_NAME = "explain.sock"
DEFAULTS = (
    Path("/var/lib/kubelet") / SOCKET_NAME,
    Path("/var/lib/kubeletpy/node/kubelet") / SOCKET_NAME,
)
"""Where ``run`` and ``up`` put it by default."""
UNIX_SOCKETS = Path("/proc/net/unix")
LISTENS = "00010000"
"""Flags of a listening socket in that table (__SO_ACCEPTCON)."""
TIMEOUT_S = 10.0


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
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(TIMEOUT_S)
        self.sock.connect(str(self._path))


def find(
    given: str | None, candidates: Sequence[Path] = DEFAULTS, table: Path = UNIX_SOCKETS
) -> Path:
    """The agent's socket: the given one, else that of the agent that runs here.

    An agent with default directories comes first. A socket of one that has ended is only taken when
    none is alive, so that the error names it.

    Raises:
        NoAgent: there is none, or this user may not use it.
    """
    if given:
        return Path(given)
    found = []
    for path in candidates:
        try:
            if path.exists():
                found.append(path)
        except PermissionError as error:
            raise NoAgent(f"{path.parent} is not readable: run this as root") from error
    listening = live(table)
    if alive := [path for path in found if path in listening]:
        return alive[0]
    if len(listening) == 1:
        return listening[0]
    if listening:
        shown = " or ".join(f"--socket {path}" for path in listening)
        raise NoAgent(f"several agents run here: use {shown}")
    if found:
        return found[0]
    if os.geteuid() != 0:
        raise NoAgent("no agent's socket can be seen: run this as root")
    places = " or ".join(str(path) for path in candidates)
    raise NoAgent(
        f"no agent runs here: there is no socket {places}. If the agent was started with "
        f"--root-dir DIR (`up`: --state-dir), use --socket DIR/{SOCKET_NAME}"
    )


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
        NotFound: the agent reports that there is no such thing.
    """
    return _answer(path, "GET", parts)


def post(path: Path, body: Any, *parts: str) -> Any:
    """POST an object to /part/part/...; the answer as JSON.

    Raises:
        NoAgent: nobody answers.
        NotFound: the agent can't answer that, and states why.
    """
    return _answer(path, "POST", parts, json.dumps(body).encode())


def _answer(path: Path, method: str, parts: Sequence[str], sent: bytes | None = None) -> Any:
    connection = _UnixConnection(path)
    try:
        target = "/" + "/".join(quote(part, safe="") for part in parts)
        connection.request(method, target, sent)
        answer = connection.getresponse()
        body = json.loads(answer.read())
    except PermissionError as error:
        raise NoAgent(f"may not use {path}: run this as root") from error
    except FileNotFoundError as error:
        raise NoAgent(f"no agent runs here: there is no socket {path}") from error
    except ConnectionRefusedError as error:
        raise NoAgent(f"no agent runs here: nobody listens on {path} any more") from error
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise NoAgent(f"the agent did not answer on {path}: {error}") from error
    finally:
        connection.close()
    if answer.status in (400, 404):
        if not isinstance(body, dict):
            raise NoSuchPod(str(body))
        raise NoSuchPod(str(body.get("error")), body.get("last"))
    if answer.status != 200:
        raise NoAgent(f"the agent answered on {path} with status {answer.status}")
    return body
