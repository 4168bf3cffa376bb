"""Runs the programs that build a release."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path


class ReleaseError(Exception):
    """A step failed; the message names the command and shows the end of its output."""


def run(*command: str | Path, cwd: Path, env: Mapping[str, str] | None = None) -> str:
    """Run a command; returns its standard output.

    Raises:
        ReleaseError: the command exited with an error.
    """
    done = subprocess.run(
        command,
        cwd=cwd,
        env={**os.environ, **(env or {})},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        reported = " ".join(map(str, command[:6]))
        output = (done.stdout + done.stderr)[-3000:]
        raise ReleaseError(f"`{reported}` exited with {done.returncode}:\n{output}")
    return done.stdout
