"""Faults of a driver for tests.

Faults are set in the process, or written to a file that is read before each call, for a driver
that runs alone.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import grpc.aio


@dataclass(slots=True)
class Fault:
    """Fault of a call.

    Attributes:
        code: gRPC's name of the status that it ends with (``INTERNAL``); empty: it succeeds.
        message: the message of that status.
        before: seconds before anything is done.
        after: seconds before the answer, when all is done.
        done: with ``code``: the work is done anyway.
        skip: it works, and nothing is done.
        die: the process ends after the work (only of a driver that runs alone).
        answer: this instead of the driver's own answer, as it goes over the wire.
        times: how many calls; 0: all.
    """

    code: str = ""
    message: str = "a fault that was requested"
    before: float = 0.0
    after: float = 0.0
    done: bool = False
    skip: bool = False
    die: bool = False
    answer: bytes | None = None
    times: int = 0


@dataclass(slots=True)
class Faults:
    """The faults by method, and the calls so far."""

    file: Path | None = None
    by_method: dict[str, Fault] = field(default_factory=dict)
    calls: list[tuple[str, Any]] = field(default_factory=list)
    """Method and request, the oldest first."""
    _read_at: int = 0

    def names(self, *among: str) -> list[str]:
        """The methods that were called; only those of ``among`` when given."""
        return [method for method, _ in self.calls if not among or method in among]

    def last(self, method: str) -> Any:
        """The last request of a method."""
        return next(request for name, request in reversed(self.calls) if name == method)

    def take(self, method: str, request: Any) -> Fault:
        """Note a call; what goes wrong in it."""
        self.calls.append((method, request))
        if self.file is not None:
            with self.file.with_name("calls").open("a") as calls:
                calls.write(f"{method} {getattr(request, 'volume_id', '')}\n")
        self._read()
        fault = self.by_method.get(method)
        if fault is None:
            return Fault()
        if fault.times:
            fault.times -= 1
            if not fault.times:
                del self.by_method[method]
        return fault

    def _read(self) -> None:
        if self.file is None or not self.file.exists():
            return
        changed = self.file.stat().st_mtime_ns
        if changed != self._read_at:
            self._read_at = changed
            found: Mapping[str, Any] = json.loads(self.file.read_text())
            self.by_method = {method: Fault(**options) for method, options in found.items()}


async def end(fault: Fault, context: grpc.aio.ServicerContext[Any, Any]) -> None:
    """End a call as its fault requires."""
    if fault.after:
        await asyncio.sleep(fault.after)
    if fault.die:
        os._exit(1)
    if fault.code:
        await context.abort(grpc.StatusCode[fault.code], fault.message)
