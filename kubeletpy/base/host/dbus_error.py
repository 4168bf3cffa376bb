"""The error of D-Bus calls, importable where the D-Bus library is not loaded. Pure."""

from __future__ import annotations


class DBusError(Exception):
    """The bus or the called service refused, or the answer was not D-Bus.

    ``name`` is the error's D-Bus name, such as ``org.freedesktop.systemd1.UnitExists``; empty
    when the error is not a reply.
    """

    def __init__(self, message: str, name: str = "") -> None:
        super().__init__(message)
        self.name = name
