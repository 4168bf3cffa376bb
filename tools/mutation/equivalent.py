"""The list of mutations that change nothing anybody could observe, with the reason for each."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tools.mutation.mutations import Mutation


@dataclass(frozen=True, slots=True)
class Key:
    """What names a mutation although lines above it change."""

    path: str
    function: str
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class Equivalents:
    """Mutations shown to be equivalent."""

    reasons: Mapping[Key, str]

    @classmethod
    def read(cls, file: Path) -> Equivalents:
        """Raises KeyError and ValueError for an entry without one of its five fields."""
        entries = tomllib.loads(file.read_text()).get("equivalent", [])
        reasons = {}
        for entry in entries:
            key = Key(entry["path"], entry["function"], entry["before"], entry["after"])
            if not entry["reason"]:
                raise ValueError(f"{key} has no reason")
            reasons[key] = entry["reason"]
        return cls(reasons)

    def has(self, mutation: Mutation, source: str) -> bool:
        """Whether this mutation of a module's text is on the list."""
        return _key(mutation, source) in self.reasons

    def unknown(self, mutations: Iterable[Mutation], sources: Mapping[str, str]) -> list[Key]:
        """Entries that name none of the mutations there are."""
        there = {_key(m, sources[m.path]) for m in mutations}
        return [key for key in self.reasons if key not in there]


def _key(mutation: Mutation, source: str) -> Key:
    return Key(mutation.path, mutation.function, *mutation.lines(source))
