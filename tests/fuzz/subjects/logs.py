"""Logs of containers, and their termination messages."""

from __future__ import annotations

from typing import Any

from kubeletpy.runtime_manager.read.status_source import last_log_text
from kubeletpy.server.logs.records import Formatter, nine_digits
from tests.fuzz.target import pieces, target

LINE = b"2024-01-02T03:04:05.678901234Z stdout F hello\n"
PART = b"2024-01-02T03:04:05.6Z stderr P hel"
DOCKER = b'{"log":"hello\\n","stream":"stdout","time":"2024-01-02T03:04:05.678901234Z"}\n'
OPTIONS: tuple[dict[str, Any], ...] = (
    {},
    {"timestamps": True},
    {"since": 1704164645.5},
    {"limit": 7},
    {"records": 2},
    {"stream": "stderr"},
    {"timestamps": True, "since": 1.0, "limit": 1000, "records": 9, "stream": "stdout"},
)


def _reported(options: dict[str, Any], parts: list[bytes]) -> bytes:
    formatter = Formatter(**options)
    reported = b"".join([formatter.feed(part) for part in parts])
    return reported + (b"" if formatter.done else formatter.finish())


@target(
    seeds=(b"\0\0" + LINE * 3, b"\1\1" + PART + b"\n" + LINE, b"\2\2" + DOCKER * 2),
    parts=(LINE, PART, DOCKER, b" stdout F ", b" stderr P ", b" stdout F:x ", b"\n", b"Z "),
)
def log_records(data: bytes) -> None:
    """The same is shown however a log is cut into pieces."""
    if not data:
        return
    options = OPTIONS[data[0] % len(OPTIONS)]
    parts = list(pieces(data))
    found, whole = _reported(options, parts), _reported(options, [b"".join(parts)])
    # with a beginning, a block whose last record is long before it is passed over as a whole
    assert found == whole or "since" in options


@target(parts=(b"T", b"Z", b"+23:59", b"2024-01-02T03:04:05"))
def log_times(data: bytes) -> None:
    """A time of a log has nine digits or none."""
    found = nine_digits(data)
    assert found is None or found.rstrip(b"Z")[-10:-9] in (b".", b"") or b"." in found


@target(seeds=(LINE * 3,), parts=(LINE, PART, DOCKER))
def last_words(data: bytes) -> None:
    """The last lines of a log, as a termination message."""
    last_log_text(data)
