"""Removes secret values from what a runtime reports as an error.

A command may be built from variables, and runtimes put commands into their errors, which events and
statuses show to many. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from kubeletpy.base.api import types as api

HIDDEN = "***"
SHORTEST = 4
"""Minimum length of a value to search for: shorter ones would be found everywhere."""
MAX_CHARACTERS, MAX_PARTS = 1 << 20, 20_000
"""Maximum values to search for: each line of them costs a search of the text."""
UNSHOWN = "(not shown: the container has too much from secrets to take it out of the message)"


def hide_secrets(text: str, container: api.Container, variables: Mapping[str, str]) -> str:
    """An error's text without the values that the container's variables take from secrets."""
    values: set[str] = set()
    left = MAX_CHARACTERS
    for variable in _from_secrets(container, variables):
        left -= len(variable)
        if left < 0:
            return UNSHOWN
        values.update(_parts(variable))
        if len(values) > MAX_PARTS:
            return UNSHOWN
    for value in sorted(values, key=len, reverse=True):
        text = text.replace(value, HIDDEN)
    return text


def _parts(value: str) -> Iterator[str]:
    """A value and its lines: runtimes escape a text's line breaks."""
    yield from (part for part in (value, *value.splitlines()) if len(part) >= SHORTEST)


def _from_secrets(container: api.Container, variables: Mapping[str, str]) -> Iterator[str]:
    """Values that may come from secrets."""
    entries = container.get("env") or ()
    own = {entry.get("name") for entry in entries}
    names = {
        entry.get("name")
        for entry in entries
        if (entry.get("valueFrom") or {}).get("secretKeyRef") is not None
    }
    prefixes = tuple(
        group.get("prefix") or ""
        for group in container.get("envFrom") or ()
        if group.get("secretRef") is not None
    )
    for name, value in variables.items():
        if name in names or (name not in own and name.startswith(prefixes)):
            yield value
