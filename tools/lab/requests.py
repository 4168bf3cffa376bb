"""Requests to a virtual node and their answers, as lines (pure)."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

PIECE = 1500
"""Characters of a request that are sent at once.

A user-mode Linux takes no more from a serial line that has 3,968 unread bytes. It does not begin
again when they are read: in arch/um/drivers/line.c, unthrottling enables no interrupt.
"""


class GuestError(Exception):
    """The node could not carry out a request; the text has the reason."""


@dataclass(frozen=True)
class Done:
    """A command that has ended, with its standard output and error together."""

    status: int
    output: str


def run_request(command: Sequence[str], timeout: float) -> bytes:
    """Run a command for at most ``timeout`` seconds."""
    return _line({"run": list(command), "timeout": timeout})


def pieces(request: bytes) -> list[bytes]:
    """The lines to send one by one, each after the answer to the one before."""
    text = request.decode().rstrip("\n")
    if len(text) <= PIECE:
        return [request]
    starts = range(0, len(text), PIECE)
    return [_line({"more": text[at : at + PIECE], "last": at == starts[-1]}) for at in starts]


def shell_line(line: str, state: str = "/run/lab-shell") -> str:
    """A line of a shell as a script that has the directory and variables of the line before.

    ``state`` is the file in the node that keeps them.
    """
    keep = f"{{ declare -px; printf 'cd %q\\n' \"$PWD\"; }} > {state}"
    return f"[ ! -e {state} ] || . {state}; trap {shlex.quote(keep)} EXIT\n{line}"


def parse_answer(line: bytes) -> dict[str, Any]:
    """An answer's fields. Raises GuestError: it is none, or the request failed."""
    try:
        found = json.loads(line)
    except ValueError as error:
        raise GuestError(f"the node answered {line[:200]!r}") from error
    if not isinstance(found, dict):
        raise GuestError(f"the node answered {line[:200]!r}")
    if "error" in found:
        raise GuestError(str(found["error"]))
    return found


def parse_done(line: bytes) -> Done:
    """The end of a command. Raises GuestError."""
    found = parse_answer(line)
    return Done(int(found["status"]), str(found["output"]))


def _line(request: dict[str, Any]) -> bytes:
    return json.dumps(request).encode() + b"\n"
