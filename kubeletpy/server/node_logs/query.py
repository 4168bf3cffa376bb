"""Parses a query for the node's own logs, and builds the journalctl command for it. Pure.

Client text becomes part of a command line: one argument each, after the option's ``=``, never
through a shell. Source: docs/reference/server.csv: /logs/[{path}]; KEP-2258.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from kubeletpy.base.api.times import parse_time
from kubeletpy.base.structs import Struct
from kubeletpy.server.node_logs import patterns

MAX_SERVICES = 4
MAX_SERVICE_LENGTH = 256
MAX_LINES = 100_000
MAX_PATTERN = 1024
_SERVICE = re.compile(r"[a-zA-Z\-_.:0-9@]+")
_NUMBER = re.compile(r"[+-]?[0-9]{1,9}")


class UnreadableQuery(ValueError):
    """A value is of the wrong type: 400."""


class InvalidQuery(ValueError):
    """The values make no sense, or are not allowed: 406."""


class Range(Struct, frozen=True):
    """Which lines of a journal.

    Attributes:
        since, until: Unix seconds; None: from the first, to the last.
        tail: how many from the end; None: all.
        boot: 0: the current one, -1: the previous one; None: any.
        pattern: a PCRE2 expression; empty: all lines.
    """

    since: float | None = None
    until: float | None = None
    tail: int | None = None
    boot: int | None = None
    pattern: str = ""


class LogQuery(Struct, frozen=True):
    """A query for logs of services, or for one file below the log directory."""

    services: tuple[str, ...] = ()
    file: str = ""
    lines: Range = Range()


def read_query(query: Sequence[tuple[str, str]]) -> LogQuery | None:
    """The query of a request; None when it has none and only the path counts.

    Raises:
        UnreadableQuery, InvalidQuery.
    """
    first = dict(reversed(query))
    asked = [value for key, value in query if key == "query"]
    files = [value for value in asked if "/" in value or "\\" in value]
    services = [value for value in asked if value not in files and value.strip()]
    if asked and not files and not services:
        raise UnreadableQuery("query: query cannot be empty")
    found = LogQuery(
        tuple(services),
        files[0].replace("\\", "/") if files else "",
        Range(
            since=_time(first, "sinceTime"),
            until=_time(first, "untilTime"),
            tail=_number(first, "tailLines"),
            boot=_number(first, "boot"),
            pattern=first.get("pattern", ""),
        ),
    )
    if found == LogQuery():
        return None
    _check(found, files)
    return found


def journal_command(query: LogQuery) -> list[str]:
    """The journalctl command line, its name first."""
    lines = query.lines
    command = ["journalctl", "--utc", "--no-pager", "--output=short-precise"]
    if lines.since is not None:
        command.append(f"--since=@{lines.since:.6f}")
    if lines.until is not None:
        command.append(f"--until=@{lines.until:.6f}")
    if lines.tail is not None:
        command.append(f"--lines={lines.tail}")
    command += [f"--unit={service}" for service in query.services]
    if lines.pattern:
        command.append(f"--grep={lines.pattern}")
    if lines.boot is not None:
        command.append(f"--boot={lines.boot}")
    return command


UNITS_COMMAND = ("journalctl", "--no-pager", "--field=_SYSTEMD_UNIT")
"""Lists the units that have written to the journal."""


def in_journal(service: str, units: frozenset[str]) -> bool:
    """Whether a service writes to the journal, judging by the units that do."""
    return service in units or f"{service}.service" in units


def file_names(service: str) -> tuple[str, ...]:
    """Where a service's own file may be below the log directory, in search order."""
    return service, f"{service}.log", f"{service}/{service}.log"


def _check(query: LogQuery, files: Sequence[str]) -> None:
    services, lines = query.services, query.lines
    if not files and not services:
        raise InvalidQuery("query: cannot specify empty queries")
    if files and services:
        raise InvalidQuery("query: cannot specify a file and service")
    if len(files) > 1:
        raise InvalidQuery("query: cannot specify more than one file")
    if files and lines != Range():
        raise InvalidQuery("query: cannot specify file with options")
    if len(services) > MAX_SERVICES:
        raise InvalidQuery(f"query: must have at most {MAX_SERVICES} services")
    for service in services:
        if len(service) > MAX_SERVICE_LENGTH:
            raise InvalidQuery(f"query: length must be at most {MAX_SERVICE_LENGTH}")
        if not _SERVICE.fullmatch(service) or ".." in service:
            raise InvalidQuery("query: input contains unsupported characters")
    _check_lines(lines)


def _check_lines(lines: Range) -> None:
    if lines.since is not None and lines.until is not None and lines.since > lines.until:
        raise InvalidQuery("untilTime: must be after `sinceTime`")
    if lines.boot is not None and lines.boot > 0:
        raise InvalidQuery("boot: must be less than 1")
    if lines.tail is not None and not 0 <= lines.tail <= MAX_LINES:
        raise InvalidQuery(f"tailLines: must be between 0 and {MAX_LINES}, inclusive")
    if len(lines.pattern) > MAX_PATTERN or "\0" in lines.pattern:
        raise InvalidQuery(f"pattern: must have at most {MAX_PATTERN} characters and no NUL")
    try:
        patterns.check(lines.pattern)
    except patterns.BadPattern as error:
        raise InvalidQuery(f"pattern: {error}") from None


def _time(query: dict[str, str], name: str) -> float | None:
    value = query.get(name)
    if not value:
        return None
    try:
        return parse_time(value)
    except ValueError:
        raise UnreadableQuery(f"{name}: invalid time format") from None


def _number(query: dict[str, str], name: str) -> int | None:
    value = query.get(name)
    if not value:
        return None
    if not _NUMBER.fullmatch(value):
        raise UnreadableQuery(f"{name}: not a number")
    return int(value)
