"""Prometheus' text format for series that are rebuilt at each scrape. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

Labels = str
"""``a="b",c="d"``, ready to write."""


def labels(pairs: Mapping[str, str]) -> Labels:
    """Labels in the order given, escaped."""
    return ",".join(f'{name}="{escape(value)}"' for name, value in pairs.items())


def escape(text: str) -> str:
    """A label's value or, without quotes, a help text."""
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


class Scrape:
    """Series by family, in the order in which families first appear.

    Args:
        families: name -> (type, help); no other may be added.
    """

    def __init__(self, families: Mapping[str, tuple[str, str]]) -> None:
        self._families = families
        self._lines: dict[str, list[str]] = {}

    def add(self, name: str, labels: Labels, value: float | None, at: int = 0) -> None:
        """One sample; None adds nothing. ``at`` in Unix nanoseconds, 0: without a time."""
        if value is None:
            return
        line = f"{name}{{{labels}}} {value!r}" if labels else f"{name} {value!r}"
        self._lines.setdefault(name, []).append(f"{line} {at // 1_000_000}" if at > 0 else line)

    def render(self) -> bytes:
        """The whole text."""
        return "".join(self._text()).encode("utf-8", "replace")

    def _text(self) -> Iterable[str]:
        for name, lines in self._lines.items():
            kind, text = self._families[name]
            yield f"# HELP {name} {text}\n# TYPE {name} {kind}\n"
            yield "\n".join(lines)
            yield "\n"
