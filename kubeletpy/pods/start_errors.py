"""Hides quoted parts of the runtime's reason for a container that never ran.

Runtimes include the command, and a command may contain variables from secrets. The runtime keeps
the text, but a restarted agent does not have the values, so it hides every quotation. Pure.
"""

from __future__ import annotations

import re

from kubeletpy.base.api import types as api

HIDDEN = "***"
MOST_QUOTED = 64
"""A reason with more quotes is hidden entirely: each quote is searched for everywhere."""
_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)(?:"|\\?\Z)', re.DOTALL)
"""The end of the text also ends a quote: it may be cut there, and nothing is read twice."""


def shown_reason(message: str, container: api.Container) -> str:
    """The text, without its quoted parts if the container has variables from secrets."""
    if not _has_secrets(container):
        return message
    quoted = set(_QUOTED.findall(message)) - {""}
    if len(quoted) > MOST_QUOTED:
        return HIDDEN
    for each in sorted(quoted, key=len, reverse=True):
        message = message.replace(each, HIDDEN)
    return message


def _has_secrets(container: api.Container) -> bool:
    return any(
        (entry.get("valueFrom") or {}).get("secretKeyRef") is not None
        for entry in container.get("env") or ()
    ) or any(group.get("secretRef") is not None for group in container.get("envFrom") or ())
