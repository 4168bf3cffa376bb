"""Durations as people know them from the kubelet's messages: ``95ms``, ``1.234s``, ``1m2.5s``."""

from __future__ import annotations


def format_duration(seconds: float) -> str:
    """Write a duration, cut to whole milliseconds, the way Go prints one."""
    milliseconds = max(0, int(seconds * 1000 + 1e-6))
    if milliseconds == 0:
        return "0s"
    if milliseconds < 1000:
        return f"{milliseconds}ms"
    minutes, rest = divmod(milliseconds, 60_000)
    text = f"{rest / 1000:.3f}".rstrip("0").rstrip(".") + "s"
    if minutes:
        hours, minutes = divmod(minutes, 60)
        text = f"{minutes}m{text}"
        if hours:
            text = f"{hours}h{text}"
    return text
