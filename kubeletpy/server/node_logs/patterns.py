r"""Whether a client's pattern is a regular expression, decided without compiling it. Pure.

Compiling an untrusted expression can block the event loop for a second and can't be interrupted;
journalctl, which gets the expression, is a separate process with a deadline. One pass over the text
finds syntax that the kubelet refuses (RE2 has no lookaround assertions and no backreferences).
Where the two dialects differ, journalctl decides.
"""

from __future__ import annotations

import re

_COUNT = re.compile(r"\{(\d{1,9})(,(\d{0,9}))?\}")
_GROUP = re.compile(r"\?(?:P?<[A-Za-z_][A-Za-z0-9_]*>|[imsU]*-?[imsU]*[:)])")
_MOST_REPEATS = 1000


class BadPattern(ValueError):
    """It is not a regular expression; the message contains the reason."""


def check(pattern: str) -> None:
    """Scan an expression once, from left to right. Raises BadPattern."""
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
    """The length of the part after a parenthesis that gives the kind of group."""
    found = _GROUP.match(pattern, at)
    if found is None:
        raise BadPattern(f"invalid or unsupported Perl syntax: `({pattern[at : at + 2]}`")
    return found.end() - at


def _class_end(pattern: str, at: int) -> int:
    """The index of the bracket that ends a class."""
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
    """The last character of an escape sequence, or what is beyond the end."""
    if at + 1 == len(pattern):
        raise BadPattern("trailing backslash at end of expression")
    after = pattern[at + 1]
    if after in "123456789":
        raise BadPattern(f"invalid escape sequence: `\\{after}`")
    if after == "Q":
        return pattern.find("\\E", at) + 1 or len(pattern)
    return at + 1


def _repeat_end(pattern: str, at: int, repeatable: bool) -> int:
    """The position after a repetition operator and the question mark that makes it lazy."""
    count = _COUNT.match(pattern, at)
    end = count.end() if count else at + 1
    if not repeatable:
        raise BadPattern(f"missing argument to repetition operator: `{pattern[at:end]}`")
    if count:
        least, most = int(count[1]), int(count[3] or count[1])
        if most > _MOST_REPEATS or least > most:
            raise BadPattern(f"invalid repeat count: `{count[0]}`")
    return end + pattern.startswith("?", end)
