"""Which container's log a request means, and its options. Pure.

Source: docs/reference/behaviour.md, t1; PodLogOptions of the core API.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kubeletpy.base.api import types as api
from kubeletpy.base.api.times import parse_time
from kubeletpy.base.structs import Struct

_TRUE = frozenset({"1", "t", "T", "TRUE", "true", "True"})
_FALSE = frozenset({"", "0", "f", "F", "FALSE", "false", "False"})
_WAITING = {
    "ErrImagePull": "image can't be pulled",
    "ImagePullBackOff": "trying and failing to pull image",
}
_STREAMS = {"All": "", "Stdout": "stdout", "Stderr": "stderr"}


class UnreadableOptions(ValueError):
    """A value in the query is of the wrong type: 400."""


class InvalidOptions(ValueError):
    """The values make no sense: 422."""


class NoLog(Exception):
    """There is no log to read; the text contains the reason, for the user."""


class LogOptions(Struct, frozen=True):
    """The options of a log request.

    Attributes:
        since: Unix seconds; older records are omitted. None: all.
        tail: how many records from the end; None: all.
        limit: bytes after which the answer is truncated; None: no limit.
        stream: "stdout" or "stderr"; empty: both.
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
    """The options of a query; ``split_streams``: a single stream may be requested.

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
    """The runtime's id of the container whose log is requested.

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
        ours = (ended or {}).get("containerID") or last_id
        if not ours:
            raise NoLog(f'container "{name}" in pod "{pod}" is terminated')
        return _bare(ours)
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
    wanted = query.get("stream") or "All"
    if wanted not in _STREAMS:
        raise InvalidOptions("stream: supported values: All, Stdout, Stderr")
    if wanted != "All" and not split_streams:
        raise UnreadableOptions(
            f'unable to return the given log stream: "{wanted}". Please enable '
            "PodLogsQuerySplitStreams feature gate in kubelet"
        )
    if wanted != "All" and tail is not None:
        raise InvalidOptions("`tailLines` and specific `stream` are mutually exclusive for now")
    return _STREAMS[wanted]


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
