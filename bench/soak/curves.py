"""Curves of a soak: resources that the agent holds, and how long pods take to start and to end.

A row every so often: memory, descriptors, threads, CPU, pods, and the medians of the latencies
since the row before. :func:`write` makes a CSV file of them, :mod:`.picture` a picture.
"""

from __future__ import annotations

import asyncio
import csv
import os
import statistics
import time
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path

from bench.stand import Stand
from bench.usage import cpu_seconds, memory
from kubeletpy.base.api.types import JSON


@dataclass(frozen=True, slots=True)
class Row:
    """One measurement. None marks a value that is missing: agent down, or no pod became Ready.

    Attributes:
        seconds: since the start of the curves.
        rss: bytes of resident memory.
        files: open descriptors.
        threads: of the process.
        cpu: seconds of CPU since the process started.
        pods: in the API.
        ready: median seconds from a pod's creation to Ready, of steady pods.
        gone: median seconds from the deletion of a pod to its removal.
    """

    seconds: float
    rss: int | None
    files: int | None
    threads: int | None
    cpu: float | None
    pods: int
    ready: float | None
    removed: float | None


@dataclass(slots=True)
class _Times:
    created: float
    deleted: float | None = None
    ready: bool = False


@dataclass(slots=True)
class Curves:
    """Run :meth:`run` as a task, and give every change of a pod to :meth:`take`."""

    stand: Stand
    every: float
    rows: list[Row] = field(default_factory=list)
    _begun: float = field(default_factory=time.monotonic)
    _pods: dict[str, _Times] = field(default_factory=dict)
    _ready: list[float] = field(default_factory=list)
    _absent: list[float] = field(default_factory=list)

    async def run(self) -> None:
        """Add a row every ``every`` seconds, until cancelled."""
        while True:
            await asyncio.sleep(self.every)
            self.rows.append(self._row())

    def take(self, kind: str, obj: JSON) -> None:
        """One event of a watch."""
        meta, now = obj["metadata"], time.monotonic()
        if kind == "DELETED":
            times = self._pods.pop(meta["uid"], None)
            if times is not None and times.deleted is not None:
                self._absent.append(now - times.deleted)
            return
        times = self._pods.setdefault(meta["uid"], _Times(now))
        conditions = (obj.get("status") or {}).get("conditions") or ()
        if not times.ready and any(
            c["type"] == "Ready" and c["status"] == "True" for c in conditions
        ):
            times.ready = True
            self._ready.append(now - times.created)
        if meta.get("deletionTimestamp") and times.deleted is None:
            times.deleted = now

    def _row(self) -> Row:
        ready, removed = (
            statistics.median(each) if each else None for each in (self._ready, self._absent)
        )
        self._ready.clear()
        self._absent.clear()
        held: tuple[int | None, int | None, int | None, float | None] = (None, None, None, None)
        try:
            pid = self.stand.agent_pid
            held = (memory(pid).rss, _count(pid, "fd"), _count(pid, "task"), cpu_seconds(pid))
        except (RuntimeError, OSError, KeyError):
            pass  # it was killed: it has exited, or is a zombie without memory
        seconds = time.monotonic() - self._begun
        return Row(seconds, *held, len(self.stand.pods.latest), ready, removed)


def _count(pid: int, what: str) -> int:
    return len(os.listdir(f"/proc/{pid}/{what}"))  # noqa: PTH208


def write(rows: list[Row], file: Path) -> None:
    """Write the rows as CSV, with a header; an empty cell is None."""
    with file.open("w", newline="") as opened:
        writer = csv.DictWriter(opened, [each.name for each in fields(Row)])
        writer.writeheader()
        writer.writerows(asdict(row) for row in rows)
