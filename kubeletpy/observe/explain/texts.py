"""Durations and names in words. Pure."""

from __future__ import annotations


def duration(seconds: float) -> str:
    """A duration with two significant figures: ``0.4s``, ``12s``, ``3m12s``, ``5h3m``."""
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
    """When something happened."""
    return "now" if now - at < 0.05 else f"{duration(now - at)} ago"


def until(at: float, now: float) -> str:
    """When something will happen."""
    return "now" if at - now < 0.05 else f"in {duration(at - now)}"


def restarts(count: int) -> str:
    """The number of restarts of a container."""
    return f"{count} restart{'s' * (count != 1)}"


def milliseconds(seconds: float) -> str:
    """A span's length: ``0.6 ms``, ``12 ms``, ``340 ms``, ``12.3 s``."""
    if seconds >= 10:
        return f"{seconds:.1f} s"
    ms = seconds * 1000
    return f"{ms:.1f} ms" if ms < 9.95 else f"{ms:.0f} ms"


def one_line(text: str, limit: int = 400) -> str:
    """External text on one line, without control characters, truncated."""
    flat = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return flat if len(flat) <= limit else flat[: limit - 1] + "…"
