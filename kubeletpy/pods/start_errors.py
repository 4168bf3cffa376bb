"""What may be shown of a runtime's reason why a container never ran.

Runtimes put the command into it, and a command may be made of variables that come from secrets. The
runtime keeps the text, so an agent that was started since does not know the values: what is quoted
is hidden. Pure.
"""

from __future__ import annotations

import re

from kubeletpy.api import types as api

HIDDEN = "***"
MOST_QUOTED = 64
"""A reason that quotes more than that is hidden as a whole: each is looked for everywhere."""
_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)(?:"|\\?\Z)', re.DOTALL)
"""The end of the text ends a quote too: it may be cut there, and nothing is read twice."""


def shown_reason(message: str, container: api.Container) -> str:
    """The text, without what it quotes if the container has variables from secrets."""
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
