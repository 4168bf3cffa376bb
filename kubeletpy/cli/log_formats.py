"""Log records as lines: klog's text, or JSON as the kubelet writes it; one record a line.

Collectors that understand a kubelet's log understand this one. Source: docs/reference/config.csv:
logging.format; the headers of klog and the keys of Kubernetes' JSON format.
"""

from __future__ import annotations

import json
import logging
import time
from typing import Any

from kubeletpy.base.host.errors import exhausted
from kubeletpy.config.settings import Logging

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
