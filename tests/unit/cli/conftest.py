"""Commands configure logging, the allocator and garbage collection for the whole process.

These fixtures restore the settings of the test process.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def _keep_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    for command in ("run", "up"):
        monkeypatch.setattr(f"kubeletpy.cli.{command}.keep_little_freed_memory", lambda: None)
    monkeypatch.setattr("kubeletpy.cli.process.importing", contextlib.nullcontext)


@pytest.fixture(autouse=True)
def _keep_logging() -> Iterator[None]:
    root, ours = logging.getLogger(), logging.getLogger("kubeletpy")
    before = (root.handlers[:], root.level, ours.level)
    yield
    root.handlers[:] = before[0]
    root.setLevel(before[1])
    ours.setLevel(before[2])
