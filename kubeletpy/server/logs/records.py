"""Container logs: their format, files and rotation, and the options of a request. Pure.

A file is in the CRI's format (``TIME STREAM TAG TEXT``, partial lines tagged P) or in Docker's
JSON; its first readable line decides. Unreadable lines are omitted. Source:
docs/reference/behaviour.md, t1; the CRI's logging format.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from kubeletpy.base.api import types as api
from kubeletpy.base.api.times import parse_time
from kubeletpy.base.structs import Component, Struct

MAX_LINE = 1 << 20
"""In bytes; runtimes split lines at 16 KiB, and a line longer than this is no record."""
CLOCK_STEP_S = 60.0
"""Seconds by which the clock may have been set back within a block of a log."""
_STREAMS = (b"stdout ", b"stderr ")
_TIME = re.compile(rb"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:\d\d)")

_WHOLE = re.compile(rb"^[^ \n]* std(?:out|err) F(?::[^ \n]*)?(?: |(?=\n))([^\n]*\n)", re.MULTILINE)
"""Complete lines of the CRI's format; the group is the text of a line."""


class LogLine(Struct, frozen=True):
    """A line of a file: ``time`` as written there, ``text`` with its newline unless partial."""

    time: bytes
    text: bytes
    stream: bytes


def read_cri(line: bytes) -> LogLine | None:
    """Parse a line of the CRI's format without its newline; return None for anything else."""
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
    """Parse a line of Docker's format; return None for anything else."""
    try:
        entry = json.loads(line)
        stream = entry.get("stream") or ""
        return LogLine(entry["time"].encode(), entry["log"].encode(), stream.encode())
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def nine_digits(time: bytes) -> bytes | None:
    """Return a time with all nine fractional digits, or None if it is not a time."""
    match = _TIME.fullmatch(time)
    if match is None:
        return None
    return match[1] + b"." + (match[2] or b"").ljust(9, b"0") + match[3]


def _moment(time: bytes) -> float | None:
    """Return Unix seconds, or None for a time that does not exist."""
    try:
        return parse_time(time.decode())
    except ValueError:
        return None


class Formatter(Component, kw_only=True):
    """Turns the bytes of one container's log, in pieces of any size, into the requested text.

    It is ``done`` when nothing more is requested. One formatter continues across rotations.
    """

    timestamps: bool = False
    # Unix seconds.
    since: float | None = None
    # bytes that may still be returned.
    limit: int | None = None
    # lines that may still be returned.
    records: int | None = None
    # "" for any.
    stream: str = ""

    def __post_init__(self) -> None:
        self._stream = self.stream.encode()
        self._rest = b""
        self._new_line = True
        self._read: Callable[[bytes], LogLine | None] | None = None
        self.done = self.limit == 0 or self.records == 0

    def feed(self, data: bytes) -> bytes:
        """Return the output of the complete lines so far."""
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
        """Return the output of a last line without a newline, at the end of the file."""
        rest, self._rest = self._rest, b""
        return self._show([rest])

    def _show(self, lines: list[bytes]) -> bytes:
        output: list[bytes] = []
        plain = not self.timestamps and self.since is None and not self._stream
        for line in lines:
            if self.done:
                break
            record = self._record(line)
            if record is None:
                continue
            if not plain and not self._passes(record, output):
                continue
            output.append(record.text)
            self._new_line = record.text.endswith(b"\n") or not record.text
            if self.records is not None:
                self.records -= 1
                self.done = self.records <= 0
        return self._cut(b"".join(output))

    @property
    def _is_plain(self) -> bool:
        """Returns whether it is enough to strip the parts before the text of each line."""
        return (
            self._read is read_cri
            and not self.timestamps
            and self.since is None
            and self.records is None
            and not self._stream
        )

    def _is_long_ago(self, lines: bytes) -> bool:
        """Return whether a block ends long before ``since``, so that it need not be parsed."""
        if self.since is None or self._read is not read_cri:
            return False
        record = read_cri(lines[lines.rfind(b"\n", 0, -1) + 1 : -1])
        time = nine_digits(record.time) if record is not None else None
        moment = _moment(time) if time is not None else None
        return moment is not None and moment < self.since - CLOCK_STEP_S

    def _record(self, line: bytes) -> LogLine | None:
        if self._read is None:
            for read in (read_cri, read_json):
                if (record := read(line)) is not None:
                    self._read = read
                    return record
            return None
        return self._read(line)

    def _passes(self, record: LogLine, output: list[bytes]) -> bool:
        if self._stream and record.stream != self._stream:
            return False
        time = nine_digits(record.time)
        if time is None:
            return False
        if self.since is not None:
            moment = _moment(time)
            if moment is None or moment < self.since:
                return False
        if self.timestamps and self._new_line:
            output += (time, b" ")
        return True

    def _cut(self, text: bytes) -> bytes:
        if self.limit is None:
            return text
        text = text[: self.limit]
        self.limit -= len(text)
        self.done = self.done or self.limit <= 0
        return text


# Requests for a log: options, and the container that is meant. Source: docs/reference/behaviour.md,
# t1; PodLogOptions of the core API.

_TRUE = frozenset({"1", "t", "T", "TRUE", "true", "True"})
_FALSE = frozenset({"", "0", "f", "F", "FALSE", "false", "False"})
_WAITING = {
    "ErrImagePull": "image can't be pulled",
    "ImagePullBackOff": "trying and failing to pull image",
}
_STREAM_NAMES = {"All": "", "Stdout": "stdout", "Stderr": "stderr"}


class UnreadableOptions(ValueError):
    """Raised if a value in the query is of the wrong type; answered with 400."""


class InvalidOptions(ValueError):
    """Raised if values contradict each other or their range; answered with 422."""


class NoLog(Exception):
    """Raised if there is no log to read; the text contains the reason, for the user."""


class LogOptions(Struct, frozen=True):
    """The options of a log request.

    Attributes:
        since: Unix seconds; older records are omitted. None for all.
        tail: the number of records from the end; None for all.
        limit: bytes after which the answer is truncated; None for no limit.
        stream: "stdout" or "stderr"; empty for both.
    """

    follow: bool = False
    previous: bool = False
    timestamps: bool = False
    since: float | None = None
    tail: int | None = None
    limit: int | None = None
    stream: str = ""


def read_options(
    query: Mapping[str, str], now: float, *, split_streams: bool = False
) -> LogOptions:
    """Return the options of a query; ``split_streams``: a single stream may be requested.

    Raises:
        UnreadableOptions, InvalidOptions.
    """
    tail = _number(query, "tail") if query.get("tail", "all") != "all" else None
    if "tail" not in query:
        tail = _number(query, "tailLines")
    seconds, limit = _number(query, "sinceSeconds"), _number(query, "limitBytes")
    at = query.get("sinceTime") or None
    if seconds is not None and at is not None:
        raise InvalidOptions("at most one of sinceTime or sinceSeconds may be specified")
    if tail is not None and tail < 0:
        raise InvalidOptions("tailLines: must be greater than or equal to 0")
    if limit is not None and limit < 1:
        raise InvalidOptions("limitBytes: must be greater than 0")
    if seconds is not None and seconds < 1:
        raise InvalidOptions("sinceSeconds: must be greater than 0")
    stream = _stream(query, split_streams=split_streams, tail=tail)
    since = None if seconds is None else now - seconds
    if at is not None:
        try:
            since = parse_time(at)
        except ValueError:
            raise UnreadableOptions("sinceTime is not an RFC 3339 time") from None
    return LogOptions(
        follow=_flag(query, "follow"),
        previous=_flag(query, "previous"),
        timestamps=_flag(query, "timestamps"),
        since=since,
        tail=tail,
        limit=limit,
        stream=stream,
    )


def container_id(pod: str, name: str, status: api.PodStatus, *, previous: bool) -> str:
    """Return the runtime's id of the container whose log is requested.

    Raises:
        NoLog: it has none (yet).
    """
    found = _container_status(status, name)
    if found is None:
        raise NoLog(f'container "{name}" in pod "{pod}" is not available')
    state, last = found.get("state") or {}, found.get("lastState") or {}
    ended, ended_last = state.get("terminated"), last.get("terminated")
    last_id = (ended_last or {}).get("containerID") or ""
    if previous:
        if not last_id:
            raise NoLog(f'previous terminated container "{name}" in pod "{pod}" not found')
        return _bare(last_id)
    if state.get("running") is not None:
        return _bare(found.get("containerID") or "")
    if ended is not None or ended_last is not None:
        ended_id = (ended or {}).get("containerID") or last_id
        if not ended_id:
            raise NoLog(f'container "{name}" in pod "{pod}" is terminated')
        return _bare(ended_id)
    waiting = f'container "{name}" in pod "{pod}" is waiting to start'
    reason = (state.get("waiting") or {}).get("reason")
    if state.get("waiting") is None:
        raise NoLog(f"{waiting} - no logs yet")
    raise NoLog(f"{waiting}: {_WAITING.get(reason or '', reason)}")


def _container_status(status: api.PodStatus, name: str) -> Any:
    lists: Any = status
    for field in ("containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses"):
        for entry in lists.get(field) or ():
            if entry.get("name") == name:
                return entry
    return None


def _bare(full_id: str) -> str:
    return full_id.partition("://")[2] or full_id


def _stream(query: Mapping[str, str], *, split_streams: bool, tail: int | None) -> str:
    stream = query.get("stream") or "All"
    if stream not in _STREAM_NAMES:
        raise InvalidOptions("stream: supported values: All, Stdout, Stderr")
    if stream != "All" and not split_streams:
        raise UnreadableOptions(
            f'unable to return the given log stream: "{stream}". Please enable '
            "PodLogsQuerySplitStreams feature gate in kubelet"
        )
    if stream != "All" and tail is not None:
        raise InvalidOptions("`tailLines` and specific `stream` are mutually exclusive for now")
    return _STREAM_NAMES[stream]


def _flag(query: Mapping[str, str], name: str) -> bool:
    value = query.get(name, "")
    if value in _TRUE:
        return True
    if value in _FALSE:
        return False
    raise UnreadableOptions(f"{name}: not true or false")


def _number(query: Mapping[str, str], name: str) -> int | None:
    value = query.get(name)
    if not value:
        return None
    digits = value.removeprefix("-")
    if not (digits.isascii() and digits.isdigit()) or len(digits) > 18:
        raise UnreadableOptions(f"{name}: not a number")
    return int(value)


# Rotation. Names: the log ``{n}.log``, its rotations ``{n}.log.{time}`` and, compressed,
# ``{n}.log.{time}.gz``. Source: docs/reference/behaviour.md, t1; docs/reference/constants.csv:
# logs; KEP-589.

COMPRESSED = ".gz"
UNFINISHED = ".tmp"
_FORMAT = "%Y%m%d-%H%M%S"


class RotationPlan(Struct, frozen=True):
    """The names of the files to remove, then of those to compress."""

    remove: tuple[str, ...]
    compress: tuple[str, ...]


def plan_rotation(log: str, names: Iterable[str], max_files: int) -> RotationPlan:
    """Plan the removals and compressions before the renaming of ``log``.

    At most ``max_files`` (at least 2) remain after it. The newest rotation is left alone: the
    runtime may still write to it, and readers follow it.
    """
    ours = sorted(name for name in names if name.startswith(f"{log}."))
    finished = {name for name in ours if name.endswith(COMPRESSED)}
    remove = [name for name in ours if name.endswith(UNFINISHED)]
    kept = []
    for name in ours:
        if name in remove:
            continue
        if name + COMPRESSED in finished:
            remove.append(name)
        else:
            kept.append(name)
    # the log itself and the rotation to come are two of the files
    excess = max(len(kept) - (max_files - 2), 0)
    remove += kept[:excess]
    rest = kept[excess:]
    return RotationPlan(tuple(remove), tuple(name for name in rest if name not in finished))


def rotated_name(log: str, now: float) -> str:
    """Return the name of a rotation made at a time (Unix seconds); names sort by time."""
    return f"{log}.{datetime.fromtimestamp(now, UTC).strftime(_FORMAT)}"


# The files of a log in their order. A reader may be several rotations behind: then the next file
# is not the log itself but one of its rotations, perhaps compressed by now. Files are identified by
# inode, a compressed one by the time of its last line, which compression keeps. No file may be
# returned twice, nor one of another log.


class LogFileEntry(Struct, frozen=True):
    """A file in a log's directory: (device, inode), and time of the last write in nanoseconds."""

    name: str
    identity: tuple[int, int]
    modified: int
    size: int


def next_entry(
    log: str, entries: Iterable[LogFileEntry], identity: tuple[int, int], modified: int
) -> LogFileEntry | None:
    """Return the file after the one with that identity and time, or None if there is none. Pure.

    ``log`` is the name being written to; it does not count while empty, because until then the
    runtime may still write to the previous file.
    """
    files = _in_order(log, entries)
    after = _index(files, identity, modified) + 1
    if after >= len(files) or (files[after].name == log and not files[after].size):
        return None
    return files[after]


def earlier_entries(
    log: str,
    entries: Iterable[LogFileEntry],
    identity: tuple[int, int],
    modified: int,
    since: float | None,
) -> list[LogFileEntry]:
    """Return the rotations before a file, oldest first, without those that end before ``since``.

    Pure. ``since`` in Unix seconds, or None for all; a clock may have been set back in between.
    """
    files = _in_order(log, entries)
    oldest = 0 if since is None else int((since - CLOCK_STEP_S) * 1e9)
    before = files[: max(_index(files, identity, modified), 0)]
    return [entry for entry in before if entry.modified >= oldest]


def _in_order(log: str, entries: Iterable[LogFileEntry]) -> list[LogFileEntry]:
    by_stem: dict[str, LogFileEntry] = {}
    entries = list(entries)
    for entry in sorted(entries, key=lambda each: each.name, reverse=True):
        if entry.name == log:
            continue
        if entry.name.startswith(f"{log}.") and not entry.name.endswith(UNFINISHED):
            # while a file is being compressed both exist: the plain one, sorted last, counts
            by_stem[entry.name.removesuffix(COMPRESSED)] = entry
    files = [by_stem[stem] for stem in sorted(by_stem)]
    return files + [entry for entry in entries if entry.name == log]


def _index(files: list[LogFileEntry], identity: tuple[int, int], modified: int) -> int:
    for at, entry in reversed(list(enumerate(files))):
        if entry.identity == identity:  # by its last name: while being renamed it has two
            return at
    for at, entry in enumerate(files):
        if entry.name.endswith(COMPRESSED) and entry.modified == modified:
            return at
    older = [at for at, entry in enumerate(files) if entry.modified < modified]
    return older[-1] if older else -1
