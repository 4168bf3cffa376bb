"""The runtime's status of itself. Pure."""

from __future__ import annotations

from kubeletpy.base.structs import Struct


class RuntimeHealth(Struct, frozen=True):
    """The runtime's status of itself (CRI Status), or why it could not be queried."""

    runtime_ready: bool
    network_ready: bool
    message: str = ""
    """Why it is not ready; empty when it is."""
    network_message: str = ""
