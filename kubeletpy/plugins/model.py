"""What a plugin of the node is. Pure."""

from __future__ import annotations

from dataclasses import dataclass

Stamp = tuple[int, int]
"""Distinguishes one socket file from the next at the same path: inode, and when it was made."""

CSI, DEVICE, DRA = "CSIPlugin", "DevicePlugin", "DRAPlugin"


@dataclass(frozen=True, slots=True)
class PluginInfo:
    """What a plugin says of itself.

    Attributes:
        type: ``CSIPlugin``, ``DevicePlugin``, ``DRAPlugin``, or anything else.
        endpoint: path of the socket that serves; the registration socket when it named none.
        socket: path of the registration socket.
        stamp: which socket file it is; an info of a plugin that restarted is not equal.
    """

    type: str
    name: str
    endpoint: str
    versions: tuple[str, ...]
    socket: str
    stamp: Stamp
