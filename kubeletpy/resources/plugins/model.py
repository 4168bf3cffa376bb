"""The identity of a plugin of the node. Pure."""

from __future__ import annotations

from kubeletpy.base.structs import Struct

Stamp = tuple[int, int]
"""Distinguishes successive socket files at the same path: inode and creation time."""

CSI, DEVICE, DRA = "CSIPlugin", "DevicePlugin", "DRAPlugin"


class PluginInfo(Struct, frozen=True):
    """A plugin's report about itself.

    Attributes:
        type: ``CSIPlugin``, ``DevicePlugin``, ``DRAPlugin``, or anything else.
        endpoint: path of the service socket; the registration socket if it named none.
        socket: path of the registration socket.
        stamp: identifies the socket file; the info of a restarted plugin compares unequal.
    """

    type: str
    name: str
    endpoint: str
    versions: tuple[str, ...]
    socket: str
    stamp: Stamp
