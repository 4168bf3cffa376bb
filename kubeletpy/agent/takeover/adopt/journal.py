"""The record of what was done with a node: one line of JSON for each entry, the oldest first.

It decides nothing. A record that can't be written never keeps the node from its kubelet.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kubeletpy.base.api.times import format_time

log = logging.getLogger(__name__)

PATH = Path("/var/lib/kubeletpy/agent/takeover/adopt.jsonl")
MAX_BYTES = 1 << 20
"""A longer record becomes FILE.old."""


class Journal:
    """The record in a file."""

    def __init__(self, path: Path = PATH) -> None:
        self.path = path

    def write(self, at: float, what: str, **details: Any) -> None:
        """Append an entry; flushed before this returns."""
        line = json.dumps({"at": format_time(at), "what": what, **details}) + "\n"
        try:
            self.path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
            if self.path.exists() and self.path.stat().st_size > MAX_BYTES:
                self.path.replace(self.path.with_name(f"{self.path.name}.old"))
            with self.path.open("a") as file:
                file.write(line)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            log.error("record not written", extra={"path": str(self.path), "error": str(error)})

    def entries(self) -> list[Mapping[str, Any]]:
        """The entries written so far; an incomplete last line is left out. Raises OSError."""
        found = []
        try:
            lines = self.path.read_text(errors="replace").splitlines()
        except FileNotFoundError:
            return []
        for line in lines:
            try:
                found.append(json.loads(line))
            except ValueError:
                continue
        return found


def entry_text(entry: Mapping[str, Any]) -> str:
    """An entry for people."""
    details = [f"{key} {value}" for key, value in entry.items() if key not in ("at", "what")]
    return f"{entry.get('at')}  {entry.get('what')}" + (f" ({', '.join(details)})" * bool(details))
