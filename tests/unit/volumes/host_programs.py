"""Fake programs of a node, each of which records its calls."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from kubeletpy.volumes.intree import base


class Programs:
    """A directory of programs; ``calls`` are their command lines."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.directory = directory / "bin"
        self.directory.mkdir()
        self._log = directory / "calls"
        self._log.touch()
        monkeypatch.setattr(base, "PROGRAM_PATHS", str(self.directory))

    def add(self, name: str, body: str = "") -> None:
        """Install a program: a shell script, which may use ``$*``."""
        path, log = self.directory / name, shlex.quote(str(self._log))
        path.write_text(f'#!/bin/sh\necho "{name} $*" >>{log}\n{body}\n')
        path.chmod(0o755)

    @property
    def calls(self) -> list[str]:
        return self._log.read_text().splitlines()
