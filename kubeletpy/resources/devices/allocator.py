"""Allocates devices to containers: reserve, call the plugin, write to the disk.

:mod:`.pick` decides which devices. Reserving takes no time, so that no other pod is given what
admission promises a pod; the rest takes as long as the plugin. Must never keep anything for a
container that was refused. Source: docs/reference/behaviour-resources.md, ro.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Iterable, Mapping

from kubeletpy.metrics.resources import DeviceMetrics
from kubeletpy.pods.pod import Pod
from kubeletpy.remote.plugin_calls import PluginCallFailed
from kubeletpy.resources.devices.checkpoint_file import CheckpointFile
from kubeletpy.resources.devices.model import Booking, DeviceHolder, Reservation, Wish, by_node
from kubeletpy.resources.devices.pick import DeviceChoice, No, Nothing, decide, pick
from kubeletpy.resources.devices.plugin import DevicePlugin, PluginAnswer
from kubeletpy.resources.devices.state import DeviceState

log = logging.getLogger(__name__)


class NotGiven(Exception):
    """A container does not get its devices; the text contains the reason."""

    def __init__(self, why: str, container: str) -> None:
        super().__init__(why)
        self.container = container


class Allocator:
    """Use it inside the event loop only."""

    def __init__(
        self,
        state: DeviceState,
        plugins: Mapping[str, DevicePlugin],
        file: CheckpointFile,
        metrics: DeviceMetrics,
    ) -> None:
        """``plugins``: the current ones, by resource."""
        self._state = state
        self._plugins = plugins
        self._file = file
        self._metrics = metrics

    def reserve(self, pod: Pod, wishes: Iterable[Wish], *, pod_runs: bool) -> bool:
        """Reserve what a container requests, all or nothing; whether a plugin is to be called.

        Args:
            pod_runs: something of the pod runs.

        Raises:
            NotGiven: it is not available.
        """
        made: dict[DeviceHolder, Reservation] = {}
        for wish in wishes:
            match decide(pod, wish, self._state, pod_runs=pod_runs):
                case DeviceChoice() as choice:
                    made[wish.holder] = Reservation(wish, frozenset(pick(choice)))
                case No(message):
                    raise NotGiven(message, wish.holder.container)
                case Nothing():
                    pass
        self._state.reserved.update(made)
        return bool(made)

    async def call_plugins(self, pod: Pod, container: str | None = None) -> None:
        """Have the plugins agree to what is reserved for a pod, or for one container of it, and
        write it to the disk.

        Raises:
            NotGiven: a plugin does not agree, or the write failed; all of it is free again.
        """
        holders = [
            each
            for each in self._state.reserved
            if each.uid == pod.uid and container in (None, each.container)
        ]
        agreed = False
        try:
            for holder in holders:
                await self._call_plugin(pod, holder)
            await self._file.write()
            agreed = True
        except OSError as error:
            why = f"failed to write checkpoint file: {error}"
            raise NotGiven(why, holders[0].container if holders else "") from None
        finally:
            if not agreed:
                self._take_back(holders)

    def _take_back(self, holders: Collection[DeviceHolder]) -> None:
        for holder in holders:
            self._state.reserved.pop(holder, None)
            self._state.bookings.pop(holder, None)
        self._file.write_soon()

    async def _call_plugin(self, pod: Pod, holder: DeviceHolder) -> None:
        """Raises NotGiven."""
        plugin = self._plugins.get(holder.resource)
        choice = self._chosen(pod, holder)
        if plugin is not None and plugin.prefers and choice.preferred_request:
            try:
                liked = await plugin.preferred(*choice.preferred_request, choice.wanted)
            except PluginCallFailed as error:
                text = f"device plugin GetPreferredAllocation rpc failed with err: {error}"
                raise NotGiven(text, holder.container) from None
            choice = self._chosen(pod, holder, liked)
        await self._allocate(holder, sorted(self._state.reserved[holder].ids), choice.taken)

    def _chosen(self, pod: Pod, holder: DeviceHolder, liked: Collection[str] = ()) -> DeviceChoice:
        """Choose again: devices may have been added, removed or changed meanwhile.

        Later containers of the pod, which may reuse the same devices, are chosen for again too.
        Raises NotGiven.
        """
        reserved = self._state.reserved
        if holder not in reserved:
            raise NotGiven("its pod does not use the node any more", holder.container)
        same = [h for h in reserved if (h.uid, h.resource) == (holder.uid, holder.resource)]
        wishes = [reserved.pop(each).wish for each in same]
        first: DeviceChoice | None = None
        for wish in wishes:
            match decide(pod, wish, self._state):
                case DeviceChoice() as choice:
                    mine = wish.holder == holder
                    ids = frozenset(pick(choice, liked if mine else ()))
                    reserved[wish.holder] = Reservation(wish, ids)
                    first = choice if mine else first
                case No(message) | Nothing(message):
                    raise NotGiven(message, wish.holder.container)
        assert first is not None, "it was among them"
        return first

    async def _allocate(self, holder: DeviceHolder, ids: list[str], again: Collection[str]) -> None:
        resource = holder.resource
        plugin = self._plugins.get(resource)
        if plugin is None:
            raise NotGiven(f"unknown Device Plugin {resource}", holder.container)
        listed = self._state.resources[resource].listed
        devices = [listed[each] for each in ids]
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            response = await plugin.allocate(ids)
        except (PluginCallFailed, PluginAnswer) as error:
            raise NotGiven(str(error), holder.container) from None
        finally:
            self._metrics.allocations.labels(resource).observe(loop.time() - began)
        if self._state.reserved.pop(holder, None) is None:
            raise NotGiven("its pod does not use the node any more", holder.container)
        self._state.bookings[holder] = Booking(by_node(devices), response)
        log.info(
            "devices allocated",
            extra={
                "resource": resource,
                "pod_uid": holder.uid,
                "container": holder.container,
                "devices": len(ids),
                "of_init_containers": len(again),
            },
        )
