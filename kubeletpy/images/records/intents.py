"""Pulls that have begun, and pulls whose outcome is unknown. Pure.

An intent outlives its pull when the image may have arrived without a record: the agent was killed,
the pod deleted, or the runtime lost meanwhile. While it remains, the image counts as pulled here.
Must never do I/O.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from kubeletpy.base.structs import Struct, field


class Intent(Struct):
    """The pulls of one image that are under way or uncertain."""

    names: set[str] = field(default_factory=set)
    """The image's names in pods: each has a file."""
    pulls: int = 0
    """Pulls running now."""
    uncertain: bool = False
    """A pull may have brought the image without leaving a record."""

    @property
    def over(self) -> bool:
        """Whether there is no reason to keep it."""
        return not self.pulls and not self.uncertain


class Intents:
    """The intents, by full name."""

    def __init__(self) -> None:
        self._intents: dict[str, Intent] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._intents

    def __len__(self) -> int:
        return sum(len(intent.names) for intent in self._intents.values())

    def get_or_create(self, name: str) -> Intent:
        """The intent of an image, created if there is none."""
        return self._intents.setdefault(name, Intent())

    def drop(self, name: str, intent: Intent) -> None:
        """Drop an intent that is over, unless there is a newer one with that name."""
        if self._intents.get(name) is intent:
            del self._intents[name]

    def uncertain(self) -> Iterator[tuple[str, Intent]]:
        """Those that no pull is responsible for any longer, oldest first."""
        for name, intent in list(self._intents.items()):
            if intent.uncertain and not intent.pulls:
                yield name, intent

    def excess(self, limit: int, arrived: Collection[str]) -> list[tuple[str, Intent]]:
        """The oldest uncertain ones beyond a limit whose images have not arrived."""
        waiting = [each for each in self.uncertain() if each[0] not in arrived]
        return waiting[: max(0, len(waiting) - limit)]
