"""The outcome of querying a container. Data only. Pure."""

from __future__ import annotations

from enum import StrEnum

from kubeletpy.base.structs import Struct

KEPT_OUTPUT = 10 * 1024
"""Bytes of a body or of a command's output that are kept.

Source: docs/reference/constants.csv: body kept, exec output kept.
"""


class HandlerResult(StrEnum):
    """The three possible answers; without an answer, HandlerError is raised instead."""

    SUCCESS = "success"
    WARNING = "warning"
    """Works, but not as intended: a redirect to another host."""
    FAILURE = "failure"


class Reply(Struct, frozen=True):
    """An answer and its text: at most KEPT_OUTPUT bytes from the container, untrusted."""

    answer: HandlerResult
    output: str = ""
    exit_code: int | None = None
    """Exit code of a command that ended."""


class HandlerError(Exception):
    """The container could not be queried, so its health is unknown."""


def go_seconds(seconds: float) -> str:
    """A duration of whole seconds as the kubelet writes it: ``90s`` is ``1m30s``."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}h{minutes}m{rest}s"
    return f"{minutes}m{rest}s" if minutes else f"{rest}s"
