"""Turns container log files into what a user sees: bytes in, bytes out. Pure.

A file is in the CRI's format (``TIME STREAM TAG TEXT``, partial lines tagged P) or in Docker's
JSON; its first readable line decides. Unreadable lines are omitted. Source:
docs/reference/behaviour.md, t1; the CRI's logging format.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable

from kubeletpy.base.api.times import parse_time
from kubeletpy.base.structs import Struct

MAX_LINE = 1 << 20
"""In bytes; runtimes split lines at 16 KiB, and a line longer than this is no record."""
CLOCK_STEP_S = 60.0
"""Seconds by which the clock may have been set back within a block of a log."""
_STREAMS = (b"stdout ", b"stderr ")
_TIME = re.compile(rb"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:\d\d)")

_WHOLE = re.compile(rb"^[^ \n]* std(?:out|err) F(?::[^ \n]*)?(?: |(?=\n))([^\n]*\n)", re.MULTILINE)
"""Complete lines of the CRI's format; the group is what is shown."""


class LogLine(Struct, frozen=True):
    """One line of a file: ``time`` as written there, ``text`` with its newline unless partial."""

    time: bytes
    text: bytes
    stream: bytes


def read_cri(line: bytes) -> LogLine | None:
    """A line of the CRI's format, without its newline; None for anything else."""
    at = line.find(b" ")
    if line[at + 1 : at + 8] not in _STREAMS:
        return None
    tag, _, text = line[at + 8 :].partition(b" ")
    first = tag.partition(b":")[0]
    stream = line[at + 1 : at + 7]
    if first == b"F":
        return LogLine(line[:at], text + b"\n", stream)
    return LogLine(line[:at], text, stream) if first == b"P" else None


def read_json(line: bytes) -> LogLine | None:
    """A line of Docker's format; None for anything else."""
    try:
        entry = json.loads(line)
        stream = entry.get("stream") or ""
        return LogLine(entry["time"].encode(), entry["log"].encode(), stream.encode())
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def nine_digits(time: bytes) -> bytes | None:
    """A time with all nine fractional digits; None if it is not a time."""
    match = _TIME.fullmatch(time)
    if match is None:
        return None
    return match[1] + b"." + (match[2] or b"").ljust(9, b"0") + match[3]


def _moment(time: bytes) -> float | None:
    """Unix seconds; None for a time that does not exist."""
    try:
        return parse_time(time.decode())
    except ValueError:
        return None


class Formatter:
    """Turns the bytes of one container's log, in pieces of any size, into what is shown.

    ``done`` when nothing more is requested. One formatter continues across rotations.
    """

    def __init__(
        self,
        *,
        timestamps: bool = False,
        since: float | None = None,
        limit: int | None = None,
        records: int | None = None,
        stream: str = "",
    ) -> None:
        """``since`` in Unix seconds, ``limit`` in bytes, ``records`` at most, "" for any stream."""
        self._timestamps = timestamps
        self._since = since
        self._left = limit
        self._records = records
        self._stream = stream.encode()
        self._rest = b""
        self._new_line = True
        self._read: Callable[[bytes], LogLine | None] | None = None
        self.done = limit == 0 or records == 0

    def feed(self, data: bytes) -> bytes:
        """The output of the complete lines so far."""
        complete, newline, rest = data.rpartition(b"\n")
        if not newline:
            self._rest += data
            complete = b""
        else:
            complete, self._rest = self._rest + complete + newline, rest
        if len(self._rest) > MAX_LINE:
            self._rest = b""
        if self._is_plain:
            texts = _WHOLE.findall(complete)
            if len(texts) == complete.count(b"\n"):  # else some are partial, or not records
                return self._cut(b"".join(texts))
        if self._is_long_ago(complete):
            return b""
        return self._show(complete.split(b"\n")[:-1])

    def finish(self) -> bytes:
        """The output of a last line without a newline: the file has ended."""
        rest, self._rest = self._rest, b""
        return self._show([rest])

    def _show(self, lines: list[bytes]) -> bytes:
        shown: list[bytes] = []
        plain = not self._timestamps and self._since is None and not self._stream
        for line in lines:
            if self.done:
                break
            record = self._record(line)
            if record is None:
                continue
            if not plain and not self._passes(record, shown):
                continue
            shown.append(record.text)
            self._new_line = record.text.endswith(b"\n") or not record.text
            if self._records is not None:
                self._records -= 1
                self.done = self._records <= 0
        return self._cut(b"".join(shown))

    @property
    def _is_plain(self) -> bool:
        """Whether it is enough to strip what precedes the text of each line."""
        return (
            self._read is read_cri
            and not self._timestamps
            and self._since is None
            and self._records is None
            and not self._stream
        )

    def _is_long_ago(self, lines: bytes) -> bool:
        """Whether a block ends long before ``since``: it is not read line by line."""
        if self._since is None or self._read is not read_cri:
            return False
        record = read_cri(lines[lines.rfind(b"\n", 0, -1) + 1 : -1])
        time = nine_digits(record.time) if record is not None else None
        moment = _moment(time) if time is not None else None
        return moment is not None and moment < self._since - CLOCK_STEP_S

    def _record(self, line: bytes) -> LogLine | None:
        if self._read is None:
            for read in (read_cri, read_json):
                if (record := read(line)) is not None:
                    self._read = read
                    return record
            return None
        return self._read(line)

    def _passes(self, record: LogLine, shown: list[bytes]) -> bool:
        if self._stream and record.stream != self._stream:
            return False
        time = nine_digits(record.time)
        if time is None:
            return False
        if self._since is not None:
            moment = _moment(time)
            if moment is None or moment < self._since:
                return False
        if self._timestamps and self._new_line:
            shown += (time, b" ")
        return True

    def _cut(self, text: bytes) -> bytes:
        if self._left is None:
            return text
        text = text[: self._left]
        self._left -= len(text)
        self.done = self.done or self._left <= 0
        return text
