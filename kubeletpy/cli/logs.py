"""Structured logs to stderr: ``key=value`` text or JSON, one record a line.

A record's fields come from ``extra={...}``; what is secret must never be passed. Writing happens on
a thread behind a bounded queue, so that a stuck reader of our stderr never stops the agent: what
does not fit is counted and dropped.
"""

from __future__ import annotations

import json
import logging
import queue
import re
import sys
import threading
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from typing import Any, TextIO

from kubeletpy.config.settings import Logging, VModule

QUEUE_SIZE = 10_000
DEBUG_VERBOSITY = 4
LIBRARIES_VERBOSITY = 8
_OURS = "kubeletpy"
_STANDARD = frozenset(
    {*vars(logging.LogRecord("", 0, "", 0, "", None, None)), "message", "asctime", "taskName"}
)
_PLAIN = re.compile(r"[A-Za-z0-9_.:/@+-]+")


def fields_of(record: logging.LogRecord) -> dict[str, Any]:
    """What the caller passed as ``extra``."""
    return {key: value for key, value in vars(record).items() if key not in _STANDARD}


def _time(record: logging.LogRecord) -> str:
    moment = datetime.fromtimestamp(record.created, UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{moment.microsecond // 1000:03d}Z"


def _one_line(text: str) -> str:
    return text if text.isprintable() else json.dumps(text)[1:-1].replace('\\"', '"')


class TextFormatter(logging.Formatter):
    """``TIME LEVEL logger: message key=value``; values from outside cannot break the line."""

    def format(self, record: logging.LogRecord) -> str:
        name = record.name.removeprefix(f"{_OURS}.")
        line = f"{_time(record)} {record.levelname} {name}: {_one_line(record.getMessage())}"
        for key, value in fields_of(record).items():
            text = str(value)
            line += f" {key}={text if _PLAIN.fullmatch(text) else json.dumps(text)}"
        if record.exc_info:
            line += "\n" + self.formatException(record.exc_info)
        return line


class JSONFormatter(logging.Formatter):
    """One JSON object a line: ts, level, logger, msg and the fields."""

    def format(self, record: logging.LogRecord) -> str:
        entry: dict[str, Any] = {
            **fields_of(record),
            "ts": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name.removeprefix(f"{_OURS}."),
            "msg": record.getMessage(),
        }
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return json.dumps(entry, default=str)


class _Verbosity(logging.Filter):
    """Lets debug records through for modules that ``vmodule`` names, or for all."""

    def __init__(self, vmodule: tuple[VModule, ...]) -> None:
        super().__init__()
        self.level = logging.INFO
        self._loud = [each.file_pattern for each in vmodule if each.verbosity >= DEBUG_VERBOSITY]

    def filter(self, record: logging.LogRecord) -> bool:
        return record.levelno >= self.level or any(
            fnmatchcase(record.module, pattern) for pattern in self._loud
        )


class QueuedHandler(logging.Handler):
    """Formats at once, writes later on its own thread.

    Attributes:
        dropped: records that did not fit into the queue.
    """

    def __init__(self, stream: TextIO, vmodule: tuple[VModule, ...] = ()) -> None:
        super().__init__()
        self._stream = stream
        self._vmodule = vmodule
        self._verbosity = _Verbosity(vmodule)
        self.addFilter(self._verbosity)
        self._lines: queue.Queue[str | None] = queue.Queue(QUEUE_SIZE)
        self.dropped = 0
        self._thread = threading.Thread(target=self._write, name="logs", daemon=True)
        self._thread.start()

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._lines.put_nowait(self.format(record) + "\n")
        except queue.Full:
            self.dropped += 1
        except (TypeError, ValueError, RecursionError):
            self.handleError(record)

    def set_verbosity(self, level: int) -> None:
        """0 to 3: INFO and worse; 4 and more: DEBUG; 8 and more: DEBUG of libraries too."""
        wanted = logging.DEBUG if level >= DEBUG_VERBOSITY else logging.INFO
        self._verbosity.level = wanted
        libraries = level >= LIBRARIES_VERBOSITY
        logging.getLogger().setLevel(logging.DEBUG if libraries else logging.WARNING)
        logging.getLogger(_OURS).setLevel(logging.DEBUG if self._vmodule else wanted)

    def problem(self) -> str:
        """Why lines are not written: nobody takes them, or their thread is gone."""
        if not self._thread.is_alive():
            return "the thread that writes logs has ended"
        return "nobody reads the logs: lines are dropped" if self._lines.full() else ""

    def _write(self) -> None:
        while (line := self._lines.get()) is not None:
            try:
                self._stream.write(line)
                if self._lines.empty():
                    self._stream.flush()
            except (OSError, ValueError):
                self.dropped += 1

    def close(self) -> None:
        """Write what is left, for at most a second."""
        if self._thread.is_alive():
            try:
                self._lines.put(None, timeout=1.0)
            except queue.Full:
                self.dropped += 1
            self._thread.join(timeout=1.0)
        super().close()


def set_up(settings: Logging, stream: TextIO | None = None) -> QueuedHandler:
    """Send all logs to a stream (stderr), as the configuration's ``logging`` says.

    Verbosity 0 to 3 shows INFO and worse, 4 and more DEBUG, 8 and more DEBUG of libraries too.
    Close the result to write what is left.
    """
    handler = QueuedHandler(stream or sys.stderr, settings.vmodule)
    handler.setFormatter(JSONFormatter() if settings.format == "json" else TextFormatter())
    root = logging.getLogger()
    for old in root.handlers[:]:
        root.removeHandler(old)
    root.addHandler(handler)
    handler.set_verbosity(settings.verbosity)
    return handler
