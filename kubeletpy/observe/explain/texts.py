"""Durations, moments, amounts and causes as readable text. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from math import floor, log10

from kubeletpy.base.api.times import parse_time
from kubeletpy.kubeapi.watch_state import FailingWatch


def duration(seconds: float) -> str:
    """Format a duration with two significant figures: ``0.4s``, ``12s``, ``3m12s``, ``5h3m``."""
    seconds = max(seconds, 0.0)
    if seconds < 9.95:
        text = f"{seconds:.1f}".removesuffix(".0")
        return f"{text}s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole}s"
    minutes, rest = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes}m{rest}s" if rest else f"{minutes}m"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours}h{minutes}m" if minutes else f"{hours}h"
    return f"{hours // 24}d"


def ago(at: float, now: float) -> str:
    """Format the time since something happened: ``now``, ``12s ago``."""
    return "now" if now - at < 0.05 else f"{duration(now - at)} ago"


def until(at: float, now: float) -> str:
    """Format the time until something happens: ``now``, ``in 12s``."""
    return "now" if at - now < 0.05 else f"in {duration(at - now)}"


def restarts(count: int) -> str:
    """Format a number of restarts: ``1 restart``, ``2 restarts``."""
    return f"{count} restart{'s' * (count != 1)}"


def milliseconds(seconds: float) -> str:
    """Format the length of a span: ``0.6 ms``, ``12 ms``, ``340 ms``, ``12.3 s``."""
    if seconds >= 10:
        return f"{seconds:.1f} s"
    ms = seconds * 1000
    return f"{ms:.1f} ms" if ms < 9.95 else f"{ms:.0f} ms"


def one_line(text: str, limit: int = 400) -> str:
    """Return external text on one line, without control characters, truncated."""
    if not text.isprintable():
        text = "".join(c if c.isprintable() else " " for c in text)
    flat = " ".join(text.split())
    return flat if len(flat) <= limit else flat[: limit - 1] + "…"


def api_time(text: str | None) -> float | None:
    """Return Unix seconds of an API time, or None if the text is no time, or stands for "never".

    Statuses carry the epoch as the start of a run that never began, and Go clients write the year
    1 for a time that is not set.
    """
    try:
        found = parse_time(text) if text else None
    except (ValueError, OverflowError):
        return None
    return None if found is None or found <= 0 else found


def clock_time(at: float, now: float) -> str:
    """Format a local time of day, ``17:04:05``, with its date if that is not the date of now."""
    then, today = (datetime.fromtimestamp(each).astimezone() for each in (at, now))
    return then.strftime("%H:%M:%S" if then.date() == today.date() else "%Y-%m-%d %H:%M:%S")


def since(at: float, now: float) -> str:
    """Format the moment at which something began: ``17:04:05 (3m12s ago)``."""
    return f"{clock_time(at, now)} ({ago(at, now)})"


# Amounts: those of one line have the same unit, so that they can be compared at a glance.

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
_STEP = 1024
MAX_DECIMALS = 6


def amounts(signal: str, *values: int) -> list[str]:
    """Format amounts of an eviction signal: sizes, or plain counts of inodes and processes."""
    return list(map(str, values)) if is_count(signal) else sizes(*values)


def is_count(signal: str) -> bool:
    """Return whether an eviction signal counts things instead of bytes."""
    return signal == "pid.available" or signal.endswith("inodesFree")


def sizes(*values: int) -> list[str]:
    """Format sizes in bytes: ``["69.5 GiB", "252.0 GiB"]``.

    All have the unit of the largest, except those below a tenth of it: ``100.0 MiB``. Sizes that
    differ have different texts, as far as six decimals show the difference.
    """
    power = _power(max(map(abs, values), default=0))
    tenth = _STEP**power / 10
    powers = [_power(abs(each)) if 0 < abs(each) < tenth else power for each in values]
    pairs = list(zip(values, powers, strict=True))
    for decimals in range(1, MAX_DECIMALS + 1):
        found = [_size(*each, decimals) for each in pairs]
        if len(set(found)) == len(set(values)):
            return found
    return [_size(*each, 1) for each in pairs]


def _power(value: int) -> int:
    return min(max(value.bit_length() - 1, 0) // 10, len(_UNITS) - 1)  # units are of 2**10


def _size(value: int, power: int, decimals: int) -> str:
    return f"{_number(value / _STEP**power, decimals) if power else value} {_UNITS[power]}"


def _number(value: float, decimals: int) -> str:
    """Format a number, with at least two significant digits if it is below 1."""
    if not value:
        return "0"
    if 0 < abs(value) < 1:
        decimals = max(decimals, 1 - floor(log10(abs(value))))
    return f"{value:.{decimals}f}"


# Causes: a runtime wraps a cause in the steps that led to it, and each step names the image or the
# container again. The reader needs only the end.

LONGEST = 800
"""Maximum characters of a cause. A longer one keeps its end."""
READ = 16 * 1024
"""Characters that are read."""
_QUOTED = r'"(?:[^"\\]|\\.){0,1000}"'
_WRAPPERS = re.compile(
    "|".join(
        (
            r"rpc error: code = \w+ desc = ",
            r"failed to StartContainer for \S+ with \w+: ",
            rf"Back-off pulling image {_QUOTED}: ",
            r"ErrImagePull: ",
            rf"failed to pull and unpack image {_QUOTED}: ",
            rf"failed to resolve (?:image|reference {_QUOTED}): ",
            r"failed to do request: ",
            r"failed to create (?:containerd task|shim task|task for container): ",
            r"Error response from daemon: ",
            r"container create failed: ",
            r"image pull failed for \S+ because the registry is unavailable: ",
            r"unable to pull image(?: or OCI artifact: pull image err)?: ",
            r"initializing source docker://\S+: ",
            r"OCI runtime create failed: ",
            r"runc create failed: ",
            r"unable to start container process: ",
            r"error during container init: ",
            r"Unable to attach or mount volumes: unmounted volumes=\[[^\]]{0,1000}\]: ",
            r"Pod was rejected: ",
            r"failed to CreatePodSandbox for \S+ with (?:Create|Config)PodSandboxError: ",
            rf"Failed to (?:create sandbox|generate sandbox config) for pod {_QUOTED}: ",
            r"Predicate \w+ failed: ",
            r"Exec lifecycle hook \(\[.{0,1000}?\]\) for Container .{0,400}? failed - error: ",
        )
    )
)
_LOG_LINE = re.compile(rf'time="[^"]{{0,64}}" level=\w{{1,16}} msg=({_QUOTED})')
"""The message in a log line of runc; CRI-O puts such lines into its errors."""
_ESCAPED = re.compile(r'\\(["\\])')
_BACK_OFF = re.compile(r"back-off (\S+) restarting failed container=\S+ pod=\S+?\([0-9a-f-]+\)")
_POD_AND_CONTAINER = re.compile(r' \(pod: "[^"]{0,400}", container: [^)\s]{1,64}\)')
_POD_UID = re.compile(r"\(([0-9a-f]{8})-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\)")
_LONG_ID = re.compile(r"\b([0-9a-f]{12})[0-9a-f]{52}\b")


def cause(text: str) -> str:
    """Return the informative part of an error: its cause without wrappers, uids and long ids.

    It is on one line; a cause that is still too long keeps its end.
    """
    text = _LOG_LINE.sub(lambda line: _ESCAPED.sub(r"\1", line[1][1:-1]), text[-READ:])
    text = _WRAPPERS.sub("", text)
    text = _BACK_OFF.sub(r"back-off \1", text)
    text = _POD_AND_CONTAINER.sub("", text)
    text = _LONG_ID.sub(r"\1", _POD_UID.sub("", text))
    text = one_line(text, READ)
    return text if len(text) <= LONGEST else "…" + text[1 - LONGEST :]


MAX_NAMED = 3
"""Watches failing for the same reason that are named; the rest is counted."""


def failing_watches(found: Sequence[FailingWatch], now: float) -> list[str]:
    """Return a sentence for each reason for which watches keep failing.

    Args:
        now: on the event loop's clock.
    """
    by_reason: dict[str, list[FailingWatch]] = {}
    for each in found:
        by_reason.setdefault(each.reason, []).append(each)
    return [_failing_sentence(why, rows, now) for why, rows in by_reason.items()]


def _failing_sentence(why: str, rows: Sequence[FailingWatch], now: float) -> str:
    named = ", ".join(each.target for each in rows[:MAX_NAMED])
    more = f" and {len(rows) - MAX_NAMED} more" if len(rows) > MAX_NAMED else ""
    lasts = duration(now - min(each.since for each in rows))
    failures = max(each.failures for each in rows)
    begun = f"the watch of {named}{more} has failed for {lasts} ({failures} times in a row)"
    return one_line(f"{begun}: {why}; changes there are not seen", 1000)
