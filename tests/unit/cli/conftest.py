"""Commands set up the logs of the whole process: each test gives them back as they were."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def _keep_logging() -> Iterator[None]:
    root, ours = logging.getLogger(), logging.getLogger("kubeletpy")
    before = (root.handlers[:], root.level, ours.level)
    yield
    root.handlers[:] = before[0]
    root.setLevel(before[1])
    ours.setLevel(before[2])
