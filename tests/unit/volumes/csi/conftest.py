"""Directories with names short enough for sockets."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def short() -> Iterator[Path]:
    """A directory whose sockets' paths fit into a unix address."""
    with tempfile.TemporaryDirectory(prefix="csi") as made:
        yield Path(made)
