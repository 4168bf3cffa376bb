"""Lines of an agent's log that a soak reports as violations."""

from __future__ import annotations

import logging
import sys

import pytest

from bench.soak.leftovers import log_lines
from kubeletpy.cli.logs import formatter
from kubeletpy.config import default_settings


def _logged(error: Exception | None, level: int = logging.ERROR) -> str:
    try:
        if error is not None:
            raise error
        caught = None
    except (OSError, ValueError):
        caught = sys.exc_info()
    record = logging.LogRecord("kubeletpy", level, "x.py", 1, "it failed", (), caught)
    return formatter(default_settings().logging).format(record)


@pytest.mark.parametrize(
    ("text", "bad"),
    [
        (_logged(None), 1),
        (_logged(None, logging.CRITICAL), 1),
        (_logged(None, logging.WARNING), 0),
        (_logged(ValueError("a bug")), 2),
        (_logged(ValueError("a bug"), logging.WARNING), 1),
        (_logged(OSError(24, "Too many open files")), 0),
        (_logged(OSError(28, "No space left on device")), 0),
        (_logged(OSError(5, "Input/output error")), 2),
        ("Traceback (most recent call last):\n  x\nOSError: Too many open files\n", 1),
        ("Task exception was never retrieved\n", 1),
        ("RuntimeWarning: coroutine 'x' was never awaited\n", 1),
    ],
    ids=range(11),
)
def test_lines_of_the_log(text: str, bad: int) -> None:
    assert len(log_lines(text)) == bad
