"""An event sink that keeps what it gets; apart, because every package records events."""

from __future__ import annotations

from typing import Any


class Recorder:
    """Keeps events in the order of their arrival, in place of the API's recorder."""

    def __init__(self) -> None:
        self.events: list[tuple[str, str]] = []
        """Reason and message of each."""
        self.seen: list[str] = []
        """Each as ``type reason: message``."""
        self.paths: list[str] = []
        """The field of its object that each is about."""

    def event(self, ref: Any, kind: str, reason: str, text: str, annotations: Any = None) -> None:
        self.events.append((reason, text))
        self.seen.append(f"{kind} {reason}: {text}")
        self.paths.append(ref.get("fieldPath", ""))

    @property
    def reasons(self) -> list[str]:
        return [reason for reason, _ in self.events]

    @property
    def texts(self) -> list[str]:
        return [text for _, text in self.events]
