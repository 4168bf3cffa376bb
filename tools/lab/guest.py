"""Runs inside a virtual node: answers requests, a JSON object a line, on a serial line.

Nothing but the standard library: the guest's own Python executes this file. A request is
``{"run": ["ls"], "timeout": 60}``.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tty
from collections.abc import Iterable, Iterator
from typing import Any

READY = {"ready": True}
TAKEN = {"taken": True}
"""The answer to a piece of a long request."""


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """The answer to a request; an ``error`` where it could not be carried out."""
    try:
        return _run(request["run"], request["timeout"])
    except (OSError, KeyError, TypeError, ValueError) as error:
        return {"error": f"{type(error).__name__}: {error}"}


def _run(command: list[str], timeout: float) -> dict[str, Any]:
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=timeout,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        output = (error.output or b"").decode(errors="replace")
        return {"error": f"{command[0]} was still running after {timeout} s: {output}"}
    return {"status": done.returncode, "output": done.stdout.decode(errors="replace")}


def answers(lines: Iterable[bytes]) -> Iterator[dict[str, Any]]:
    """An answer for each line: a request, or a piece of one, as ``{"more": "…", "last": true}``."""
    text = ""
    for line in lines:
        value = json.loads(line)
        if "more" in value:
            text += value["more"]
            if not value["last"]:
                yield TAKEN
                continue
            value, text = json.loads(text), ""
        yield answer(value)


def serve(device: str) -> None:
    """Answer requests until the machine goes off."""
    descriptor = os.open(device, os.O_RDWR | os.O_NOCTTY)
    tty.setraw(descriptor)
    with os.fdopen(descriptor, "rb", closefd=False) as lines:
        _write(descriptor, READY)
        for value in answers(lines):
            _write(descriptor, value)


def _write(descriptor: int, value: dict[str, Any]) -> None:
    data = json.dumps(value).encode() + b"\n"
    while data:
        data = data[os.write(descriptor, data) :]


if __name__ == "__main__":
    serve(sys.argv[1])
