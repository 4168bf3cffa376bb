"""Facts about the program for /flagz and /statusz. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from kubeletpy.base.structs import Struct


class RunningProgram(Struct, frozen=True):
    """The running program.

    Attributes:
        flags: by name without dashes; possible credentials are masked.
        started_at: Unix seconds.
        version: of the kubelet that this agent stands in for, ``v1.37.0+kubeletpy.0.1.0``.
    """

    flags: Mapping[str, str]
    started_at: float
    version: str
