"""Structured logs to stderr: klog's text or JSON, one record a line.

A record's fields come from ``extra={...}``; secrets must never be passed. Writing happens on a
thread behind a bounded queue, so that a stuck reader of our stderr never stops the agent: what does
not fit is counted and dropped.
"""

from __future__ import annotations

import logging
import os
import queue
import sys
import threading
from fnmatch import fnmatchcase
from typing import TextIO

from kubeletpy.cli.log_formats import DEBUG_VERBOSITY, OURS, formatter, journal_lines, split
from kubeletpy.config.settings import Logging, VModule

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
        wanted = logging.DEBUG if level >= DEBUG_VERBOSITY else logging.INFO
        self._verbosity.level = wanted
        libraries = level >= LIBRARIES_VERBOSITY
        logging.getLogger().setLevel(logging.DEBUG if libraries else logging.WARNING)
        logging.getLogger(OURS).setLevel(logging.DEBUG if self._vmodule else wanted)

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
