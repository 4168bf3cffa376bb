"""Asks the agent of this machine over its socket. Never starts or changes anything."""

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
"""Where ``run`` and ``up`` have it without further flags."""
TIMEOUT_S = 10.0


class NoAgent(Exception):
    """Nobody answers; the message says what to do."""


class NotFound(Exception):
    """The agent knows no such pod."""


class _Connection(http.client.HTTPConnection):
    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=TIMEOUT_S)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(TIMEOUT_S)
        self.sock.connect(str(self._path))


def find(given: str | None, candidates: Sequence[Path] = DEFAULTS) -> Path:
    """The agent's socket: the given one, or that of an agent with default directories.

    Raises:
        NoAgent: there is none, or this user may not use it.
    """
    if given:
        return Path(given)
    for path in candidates:
        try:
            if path.exists():
                return path
        except PermissionError as error:
            raise NoAgent(f"may not look into {path.parent}: run this as root") from error
    if os.geteuid() != 0:
        raise NoAgent("no agent's socket can be seen: run this as root")
    places = " or ".join(str(path) for path in candidates)
    raise NoAgent(
        f"no agent runs here: there is no socket {places}. If the agent was started with "
        f"--root-dir DIR (`up`: --state-dir), say --socket DIR/{SOCKET_NAME}"
    )


def ask(path: Path, *parts: str) -> Any:
    """GET /part/part/... as JSON.

    Raises:
        NoAgent: nobody answers.
        NotFound: the agent says that there is no such thing.
    """
    connection = _Connection(path)
    try:
        connection.request("GET", "/" + "/".join(quote(part, safe="") for part in parts))
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
    if answer.status == 404:
        raise NotFound(str(body.get("error") if isinstance(body, dict) else body))
    if answer.status != 200:
        raise NoAgent(f"the agent answered on {path} with status {answer.status}")
    return body
