"""The devices in the node's status, and when it must be written.

Source: docs/reference/behaviour-resources.md, ri.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping

from kubeletpy.pods.pod import DeviceCounts
from kubeletpy.resources.devices import on_node
from kubeletpy.resources.devices.state import DeviceState

NODE_PACE_S = 1.0
"""Device changes cause the node's status to be written no faster than this."""


class NodeReport:
    """The devices in the node's status. Use it inside the event loop only."""

    def __init__(self, state: DeviceState, node_changed: Callable[[], None]) -> None:
        """``node_changed``: the devices in the node's status have changed."""
        self._state = state
        self._node_changed = node_changed
        self._to_zero: set[str] = set()
        self._zero_all = False
        self._timer: asyncio.TimerHandle | None = None
        self._reported_at = float("-inf")

    def nothing_known(self) -> None:
        """The node may show resources that are not there any more: there was nothing on the disk
        of what plugins had offered."""
        self._zero_all = True

    def forgotten(self, resources: Iterable[str]) -> None:
        """These resources are not there any more."""
        self._to_zero.update(resources)
        self._node_changed()

    def counts(self, shown: Mapping[str, str]) -> DeviceCounts:
        """The devices in the node's status. ``shown``: capacity as the API has it."""
        if shown and self._zero_all:
            self._zero_all = False
            self._to_zero |= on_node.extended(shown) - self._state.resources.keys()
        total, free = on_node.capacity(self._state), on_node.allocatable(self._state)
        self._to_zero -= total.keys()
        self._to_zero -= {name for name in self._to_zero if shown.get(name, "0") == "0"}
        zero = dict.fromkeys(self._to_zero, 0)
        return DeviceCounts({**zero, **total}, {**zero, **free})

    def report_soon(self) -> None:
        """Report to the node, at most once every NODE_PACE_S seconds."""
        loop = asyncio.get_running_loop()
        if self._timer is None:
            at = max(loop.time(), self._reported_at + NODE_PACE_S)
            self._timer = loop.call_at(at, self._report_to_node)

    def _report_to_node(self) -> None:
        self._timer = None
        self._reported_at = asyncio.get_running_loop().time()
        self._node_changed()

    def close(self) -> None:
        """Stop reporting."""
        if self._timer is not None:
            self._timer.cancel()
