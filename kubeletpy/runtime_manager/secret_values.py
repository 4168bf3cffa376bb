"""Takes values of secrets out of what a runtime says went wrong.

A command may be made of variables, and runtimes put commands into their errors, which events and
statuses show to many. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from kubeletpy.api import types as api

HIDDEN = "***"
SHORTEST = 4
"""Characters of a value that is looked for: shorter ones are found everywhere."""


def hide_secrets(text: str, container: api.Container, variables: Mapping[str, str]) -> str:
    """An error's text without the values that the container's variables have from secrets."""
    for value in sorted(_values(container, variables), key=len, reverse=True):
        text = text.replace(value, HIDDEN)
    return text


def _values(container: api.Container, variables: Mapping[str, str]) -> Iterator[str]:
    """Values that may come from secrets, and their lines: runtimes quote a text's line breaks."""
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
            yield from (part for part in (value, *value.splitlines()) if len(part) >= SHORTEST)
