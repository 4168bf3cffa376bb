"""Parses a query for the node's own logs, and builds the journalctl command for it. Pure.

Client text becomes part of a command line: one argument each, after the option's ``=``, never
through a shell. Source: docs/reference/server.csv: /logs/[{path}]; KEP-2258.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from kubeletpy.base.api.times import parse_time
from kubeletpy.base.structs import Struct

MAX_SERVICES = 4
MAX_SERVICE_LENGTH = 256
MAX_LINES = 100_000
MAX_PATTERN = 1024
_SERVICE = re.compile(r"[a-zA-Z\-_.:0-9@]+")
_NUMBER = re.compile(r"[+-]?[0-9]{1,9}")


class UnreadableQuery(ValueError):
    """Raised if a value is of the wrong type; answered with 400."""


class InvalidQuery(ValueError):
    """Raised if values make no sense or are not allowed; answered with 406."""


class Range(Struct, frozen=True):
    """The requested lines of a journal.

    Attributes:
        since, until: Unix seconds; None for the first and the last.
        tail: the number of lines from the end; None for all.
        boot: 0 for the current one, -1 for the previous one; None for any.
        pattern: a PCRE2 expression; empty for all lines.
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
    """Return the query of a request, or None if it has none and only the path counts.

    Raises:
        UnreadableQuery, InvalidQuery.
    """
    first = dict(reversed(query))
    requested = [value for key, value in query if key == "query"]
    files = [value for value in requested if "/" in value or "\\" in value]
    services = [value for value in requested if value not in files and value.strip()]
    if requested and not files and not services:
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
    """Return the command line of journalctl, its name first."""
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
    """Return whether a service writes to the journal, by the units that do."""
    return service in units or f"{service}.service" in units


def file_names(service: str) -> tuple[str, ...]:
    """Return the paths of a service's own file below the log directory, in search order."""
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
        check(lines.pattern)
    except BadPattern as error:
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


# Patterns are checked without compiling them. Compiling an untrusted expression can block the event
# loop for a second and can't be interrupted; journalctl, which gets the expression, is a separate
# process with a deadline. One pass over the text finds syntax that the kubelet refuses (RE2 has no
# lookaround assertions and no backreferences). Where the two dialects differ, journalctl decides.

_COUNT = re.compile(r"\{(\d{1,9})(,(\d{0,9}))?\}")
_GROUP = re.compile(r"\?(?:P?<[A-Za-z_][A-Za-z0-9_]*>|[imsU]*-?[imsU]*[:)])")
_MOST_REPEATS = 1000


class BadPattern(ValueError):
    """Raised if a pattern is no regular expression; the message contains the reason."""


def check(pattern: str) -> None:
    """Check that a client's pattern is a regular expression, in one pass. Raises BadPattern."""
    at = depth = 0
    repeatable = False
    while at < len(pattern):
        char = pattern[at]
        if char == "(":
            flags = 0
            if pattern.startswith("?", at + 1):
                flags = _group(pattern, at + 1)
            if pattern[at + flags] == ")":
                at += flags + 1
                continue
            depth, repeatable = depth + 1, False
            at += flags
        elif char == ")":
            depth, repeatable = depth - 1, True
            if depth < 0:
                raise BadPattern(f"unexpected ): `{pattern}`")
        elif char == "|":
            repeatable = False
        elif char == "[":
            at, repeatable = _class_end(pattern, at), True
        elif char == "\\":
            at, repeatable = _escape_end(pattern, at), True
        elif char in "*+?" or _COUNT.match(pattern, at):
            end = _repeat_end(pattern, at, repeatable)
            again = end < len(pattern) and (pattern[end] in "*+?" or _COUNT.match(pattern, end))
            if again:
                raise BadPattern(f"invalid nested repetition operator: `{pattern[at : end + 1]}`")
            at = end - 1
        else:
            repeatable = True
        at += 1
    if depth:
        raise BadPattern(f"missing closing ): `{pattern}`")


def _group(pattern: str, at: int) -> int:
    """Return the length of the part after a parenthesis that has the kind of group."""
    found = _GROUP.match(pattern, at)
    if found is None:
        raise BadPattern(f"invalid or unsupported Perl syntax: `({pattern[at : at + 2]}`")
    return found.end() - at


def _class_end(pattern: str, at: int) -> int:
    """Return the index of the bracket that ends a class."""
    here = at + 1 + pattern.startswith("^", at + 1)
    first = here
    while here < len(pattern):
        if pattern[here] == "]" and here > first:
            return here
        if pattern.startswith("[:", here) and (end := pattern.find(":]", here + 2)) >= 0:
            here = end + 1
        elif pattern[here] == "\\":
            here += 1
        here += 1
    raise BadPattern(f"missing closing ]: `{pattern[at:]}`")


def _escape_end(pattern: str, at: int) -> int:
    """Return the index of the last character of an escape sequence, or the text's length."""
    if at + 1 == len(pattern):
        raise BadPattern("trailing backslash at end of expression")
    after = pattern[at + 1]
    if after in "123456789":
        raise BadPattern(f"invalid escape sequence: `\\{after}`")
    if after == "Q":
        return pattern.find("\\E", at) + 1 or len(pattern)
    return at + 1


def _repeat_end(pattern: str, at: int, repeatable: bool) -> int:
    """Return the index after a repetition operator and a question mark that makes it lazy."""
    count = _COUNT.match(pattern, at)
    end = count.end() if count else at + 1
    if not repeatable:
        raise BadPattern(f"missing argument to repetition operator: `{pattern[at:end]}`")
    if count:
        least, most = int(count[1]), int(count[3] or count[1])
        if most > _MOST_REPEATS or least > most:
            raise BadPattern(f"invalid repeat count: `{count[0]}`")
    return end + pattern.startswith("?", end)
