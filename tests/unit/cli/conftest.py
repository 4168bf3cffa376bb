"""Commands set up the logs and the allocator of the whole process: that of the tests stays as it
is."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def _keep_allocator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kubeletpy.cli.run.keep_little_freed_memory", lambda: None)


@pytest.fixture(autouse=True)
def _keep_logging() -> Iterator[None]:
    root, ours = logging.getLogger(), logging.getLogger("kubeletpy")
    before = (root.handlers[:], root.level, ours.level)
    yield
    root.handlers[:] = before[0]
    root.setLevel(before[1])
    ours.setLevel(before[2])
