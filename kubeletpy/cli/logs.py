"""Structured logs to stderr: klog's text or JSON, one record a line.

Collectors that understand a kubelet's log understand this one. A record's fields come from
``extra={...}``; secrets must never be passed. Writing happens on a thread behind a bounded queue,
so that a stuck reader of our stderr never stops the agent. Records that do not fit are counted and
dropped. Source: docs/reference/config.csv: logging.format; the headers of klog and the keys of
Kubernetes' JSON format.
"""

from __future__ import annotations

import json
import logging
import os
import queue
import sys
import threading
import time
from fnmatch import fnmatchcase
from typing import Any, TextIO

from kubeletpy.base.host.errors import exhausted
from kubeletpy.config.settings import Logging, VModule

DEBUG_VERBOSITY = 4
"""The verbosity of our debug records: they are shown at this level and above."""
OURS = "kubeletpy"
_STANDARD = frozenset(
    {*vars(logging.LogRecord("", 0, "", 0, "", None, None)), "message", "asctime", "taskName"}
)


def fields_of(record: logging.LogRecord) -> dict[str, Any]:
    """The fields that the caller passed as ``extra``."""
    return {key: value for key, value in vars(record).items() if key not in _STANDARD}


def _quoted(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int | float) else json.dumps(str(value))


class TextFormatter(logging.Formatter):
    """``Lmmdd hh:mm:ss.uuuuuu PID file:line] "message" key="value"``, as klog.

    L is I, W, E or F, and the time is the machine's local time. External values cannot break the
    line. A traceback follows on separate lines, unless the machine has run out of something.
    """

    def format(self, record: logging.LogRecord) -> str:
        moment = time.localtime(record.created)
        letter = "F" if record.levelno >= logging.CRITICAL else record.levelname[0]
        letter = "I" if letter == "D" else letter
        micro = int(record.created % 1 * 1_000_000)
        line = (
            f"{letter}{time.strftime('%m%d %H:%M:%S', moment)}.{micro:06d} {record.process:>7}"
            f" {record.filename}:{record.lineno}] {json.dumps(record.getMessage())}"
        )
        for key, value in fields_of(record).items():
            line += f" {key}={_quoted(value)}"
        if record.exc_info and (cause := exhausted(record.exc_info[1])):
            line += f" why={_quoted(cause)}"
        elif record.exc_info:
            line += "\n" + self.formatException(record.exc_info)
        return line


class JSONFormatter(logging.Formatter):
    """One JSON object per line: ts (Unix milliseconds), caller, msg, v (unless an error), fields.

    It also has ``level`` and ``logger``, which the kubelet's lines lack.
    """

    def format(self, record: logging.LogRecord) -> str:
        entry: dict[str, Any] = {
            **fields_of(record),
            "ts": round(record.created * 1000, 4),
            "level": record.levelname.lower(),
            "logger": record.name.removeprefix(f"{OURS}."),
            "caller": f"{record.filename}:{record.lineno}",
            "msg": record.getMessage(),
        }
        if record.levelno < logging.ERROR:
            entry["v"] = DEBUG_VERBOSITY if record.levelno < logging.INFO else 0
        if record.exc_info and (cause := exhausted(record.exc_info[1])):
            entry["why"] = str(cause)
        elif record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return json.dumps(entry, default=str)


_PRIORITIES = ((logging.CRITICAL, 2), (logging.ERROR, 3), (logging.WARNING, 4), (logging.INFO, 6))
"""Lowest level of a record -> syslog priority; below all of them it is 7 (debug)."""


def journal_lines(text: str, level: int) -> str:
    """The lines of a record with their priority, as systemd's journal reads it (sd-daemon(3))."""
    priority = next((number for least, number in _PRIORITIES if level >= least), 7)
    return "\n".join(f"<{priority}>{line}" for line in text.split("\n"))


def formatter(settings: Logging) -> logging.Formatter:
    """The formatter that ``logging.format`` selects."""
    return JSONFormatter() if settings.format == "json" else TextFormatter()


def split(settings: Logging) -> bool:
    """Whether errors go to stderr and the rest to stdout (``splitStream`` of the format in use)."""
    options = settings.options
    chosen = options.json if settings.format == "json" else options.text
    return chosen.split_stream


QUEUE_SIZE = 10_000
LIBRARIES_VERBOSITY = 8


class _Verbosity(logging.Filter):
    """Passes debug records of modules that ``vmodule`` names, or of all modules."""

    def __init__(self, vmodule: tuple[VModule, ...]) -> None:
        super().__init__()
        self.level = logging.INFO
        self._loud = [each.file_pattern for each in vmodule if each.verbosity >= DEBUG_VERBOSITY]

    def filter(self, record: logging.LogRecord) -> bool:
        return record.levelno >= self.level or any(
            fnmatchcase(record.module, pattern) for pattern in self._loud
        )


class QueuedHandler(logging.Handler):
    """Formats immediately, writes later on its own thread.

    Attributes:
        dropped: records that did not fit into the queue.
    """

    def __init__(
        self,
        stream: TextIO,
        vmodule: tuple[VModule, ...] = (),
        *,
        errors: TextIO | None = None,
        journal: bool = False,
    ) -> None:
        """Start the thread.

        Args:
            errors: where errors go; None: to the same stream as the rest.
            journal: systemd's journal reads both streams: it gets each line's priority.
        """
        super().__init__()
        self._journal = journal
        self._stream = stream
        self._errors = stream if errors is None else errors
        self._vmodule = vmodule
        self._verbosity = _Verbosity(vmodule)
        self.addFilter(self._verbosity)
        self._lines: queue.Queue[tuple[TextIO, str] | None] = queue.Queue(QUEUE_SIZE)
        self.dropped = 0
        self._thread = threading.Thread(target=self._write, name="logs", daemon=True)
        self._thread.start()

    def emit(self, record: logging.LogRecord) -> None:
        try:
            stream = self._errors if record.levelno >= logging.ERROR else self._stream
            text = self.format(record)
            if self._journal:
                text = journal_lines(text, record.levelno)
            self._lines.put_nowait((stream, text + "\n"))
        except queue.Full:
            self.dropped += 1
        except (TypeError, ValueError, RecursionError):
            self.handleError(record)

    def set_verbosity(self, level: int) -> None:
        """0 to 3: INFO and above; 4 and more: also DEBUG; 8 and more: also DEBUG of libraries."""
        desired = logging.DEBUG if level >= DEBUG_VERBOSITY else logging.INFO
        self._verbosity.level = desired
        libraries = level >= LIBRARIES_VERBOSITY
        logging.getLogger().setLevel(logging.DEBUG if libraries else logging.WARNING)
        logging.getLogger(OURS).setLevel(logging.DEBUG if self._vmodule else desired)

    def problem(self) -> str:
        """Why lines are not written: nobody reads them, or their thread has ended."""
        if not self._thread.is_alive():
            return "the thread that writes logs has ended"
        return "nobody reads the logs: lines are dropped" if self._lines.full() else ""

    def _write(self) -> None:
        while (entry := self._lines.get()) is not None:
            stream, line = entry
            try:
                stream.write(line)
                if self._lines.empty():
                    self._stream.flush()
                    self._errors.flush()
            except (OSError, ValueError):
                self.dropped += 1

    def close(self) -> None:
        """Write what is left, taking at most a second."""
        if self._thread.is_alive():
            try:
                self._lines.put(None, timeout=1.0)
            except queue.Full:
                self.dropped += 1
            self._thread.join(timeout=1.0)
        super().close()


def set_up(
    settings: Logging, stream: TextIO | None = None, *, out: TextIO | None = None
) -> QueuedHandler:
    """Send all logs to a stream (stderr), as configured in ``logging``.

    With ``splitStream`` only errors go there, everything else to ``out`` (stdout). Verbosity 0 to 3
    shows INFO and above, 4 and more also DEBUG, 8 and more also DEBUG of libraries. Close the
    result to write what is left.
    """
    errors = stream or sys.stderr
    most = (out or sys.stdout) if split(settings) else errors
    journal = all(_is_journal(each) for each in (most, errors))
    handler = QueuedHandler(most, settings.vmodule, errors=errors, journal=journal)
    handler.setFormatter(formatter(settings))
    root = logging.getLogger()
    for old in root.handlers[:]:
        root.removeHandler(old)
    root.addHandler(handler)
    handler.set_verbosity(settings.verbosity)
    return handler


def _is_journal(stream: TextIO) -> bool:
    """Whether systemd's journal reads a stream: its device and inode are in JOURNAL_STREAM."""
    try:
        found = os.fstat(stream.fileno())
    except (OSError, ValueError):
        return False
    return os.environ.get("JOURNAL_STREAM") == f"{found.st_dev}:{found.st_ino}"
