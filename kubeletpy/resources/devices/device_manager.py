"""The devices that containers get from the device plugins of a node.

Decides nothing: :mod:`.registration` has the plugins, :mod:`.pick` states which devices,
:mod:`.allocator` requests them, :mod:`.state` has which container holds them, :mod:`.given` what
that means for it. A booking is on the disk
before its pod is admitted; a plugin that does not answer delays only pods that request its devices.
Source: docs/reference/behaviour-resources.md, rn, ro, rp.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path

from kubeletpy.base.api import types as api
from kubeletpy.base.api.quantity import whole
from kubeletpy.base.structs import replace
from kubeletpy.metrics.resources import DeviceMetrics
from kubeletpy.pods.pod import DeviceCounts, HeldResource, Pod
from kubeletpy.pods.resources import pod_limits
from kubeletpy.pods.runtime_status import ContainerConfigError
from kubeletpy.remote.plugin_calls import PluginCallFailed
from kubeletpy.resources.devices import model
from kubeletpy.resources.devices import model as devices_model
from kubeletpy.resources.devices import pick as devices_pick
from kubeletpy.resources.devices.checkpoint_file import CheckpointFile
from kubeletpy.resources.devices.plugin import DevicePlugin, OpenPlugin, PluginAnswer, over_socket
from kubeletpy.resources.devices.registration import DevicePlugins, NodeReport
from kubeletpy.resources.placement.hints import AllocationRefused, Hint, Hints
from kubeletpy.runtime_manager.protocol import ContainerAdditions

# Allocates devices to containers: reserve, call the plugin, write to the disk.
#
# :mod:`.pick` decides which devices. Reserving takes no time, so that no other pod is given what
# admission promises a pod; the rest takes as long as the plugin. Must never keep anything for a
# container that was refused. Source: docs/reference/behaviour-resources.md, ro.

log = logging.getLogger(__name__)


class NotSupplied(Exception):
    """A container does not get its devices; the text contains the reason."""

    def __init__(self, why: str, container: str) -> None:
        super().__init__(why)
        self.container = container


class Allocator:
    """Use it inside the event loop only."""

    def __init__(
        self,
        state: devices_model.DeviceState,
        plugins: Mapping[str, DevicePlugin],
        file: CheckpointFile,
        metrics: DeviceMetrics,
    ) -> None:
        """``plugins``: the current ones, by resource."""
        self._state = state
        self._plugins = plugins
        self._file = file
        self._metrics = metrics

    def reserve(self, pod: Pod, wishes: Iterable[devices_model.Wish], *, pod_runs: bool) -> bool:
        """Reserve what a container requests, all or nothing; whether a plugin is to be called.

        Args:
            pod_runs: something of the pod runs.

        Raises:
            NotGiven: it is not available.
        """
        made: dict[devices_model.DeviceHolder, devices_model.Reservation] = {}
        for wish in wishes:
            match devices_pick.decide(pod, wish, self._state, pod_runs=pod_runs):
                case devices_pick.DeviceChoice() as choice:
                    made[wish.holder] = devices_model.Reservation(
                        wish, frozenset(devices_pick.pick(choice))
                    )
                case devices_pick.No(message):
                    raise NotSupplied(message, wish.holder.container)
                case devices_pick.Nothing():
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
            raise NotSupplied(why, holders[0].container if holders else "") from None
        finally:
            if not agreed:
                self._take_back(holders)

    def _take_back(self, holders: Collection[devices_model.DeviceHolder]) -> None:
        for holder in holders:
            self._state.reserved.pop(holder, None)
            self._state.bookings.pop(holder, None)
        self._file.write_soon()

    async def _call_plugin(self, pod: Pod, holder: devices_model.DeviceHolder) -> None:
        """Raises NotGiven."""
        plugin = self._plugins.get(holder.resource)
        choice = self._chosen(pod, holder)
        if plugin is not None and plugin.prefers and choice.preferred_request:
            try:
                liked = await plugin.preferred(*choice.preferred_request, choice.desired)
            except PluginCallFailed as error:
                text = f"device plugin GetPreferredAllocation rpc failed with err: {error}"
                raise NotSupplied(text, holder.container) from None
            choice = self._chosen(pod, holder, liked)
        await self._allocate(holder, sorted(self._state.reserved[holder].ids), choice.taken)

    def _chosen(
        self, pod: Pod, holder: devices_model.DeviceHolder, liked: Collection[str] = ()
    ) -> devices_pick.DeviceChoice:
        """Choose again: devices may have been added, removed or changed meanwhile.

        Later containers of the pod, which may reuse the same devices, are chosen for again too.
        Raises NotGiven.
        """
        reserved = self._state.reserved
        if holder not in reserved:
            raise NotSupplied("its pod does not use the node any more", holder.container)
        same = [h for h in reserved if (h.uid, h.resource) == (holder.uid, holder.resource)]
        wishes = [reserved.pop(each).wish for each in same]
        first: devices_pick.DeviceChoice | None = None
        for wish in wishes:
            match devices_pick.decide(pod, wish, self._state):
                case devices_pick.DeviceChoice() as choice:
                    mine = wish.holder == holder
                    ids = frozenset(devices_pick.pick(choice, liked if mine else ()))
                    reserved[wish.holder] = devices_model.Reservation(wish, ids)
                    first = choice if mine else first
                case devices_pick.No(message) | devices_pick.Nothing(message):
                    raise NotSupplied(message, wish.holder.container)
        assert first is not None, "it was among them"
        return first

    async def _allocate(
        self, holder: devices_model.DeviceHolder, ids: list[str], again: Collection[str]
    ) -> None:
        resource = holder.resource
        plugin = self._plugins.get(resource)
        if plugin is None:
            raise NotSupplied(f"unknown Device Plugin {resource}", holder.container)
        listed = self._state.resources[resource].listed
        devices = [listed[each] for each in ids]
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            response = await plugin.allocate(ids)
        except (PluginCallFailed, PluginAnswer) as error:
            raise NotSupplied(str(error), holder.container) from None
        finally:
            self._metrics.allocations.labels(resource).observe(loop.time() - began)
        if self._state.reserved.pop(holder, None) is None:
            raise NotSupplied("its pod does not use the node any more", holder.container)
        self._state.bookings[holder] = devices_model.Booking(
            devices_model.by_node(devices), response
        )
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


RETURNS_WITHIN_S = 120.0
"""Seconds from the agent's start within which pods wait for device plugins that an earlier agent
had. After a reboot agent and plugins start in any order, and a refused pod stays refused; a plugin
runs in a pod itself, which takes its time to start."""


class DeviceManager:
    """A :class:`~kubeletpy.resources.placement.hints.ResourceProvider` and a provider of
    containers' config. Make it inside a running event loop.
    """

    name = "devices"

    def __init__(
        self,
        directory: Path,
        metrics: DeviceMetrics,
        *,
        nodes: Sequence[int],
        pod_runs: Callable[[str], bool],
        is_active: Callable[[str], bool],
        node_changed: Callable[[], None],
        pod_changed: Callable[[str], None],
        open_plugin: OpenPlugin = over_socket,
        listen: bool = True,
    ) -> None:
        """Args:
        directory: holds the plugins' sockets and the checkpoint.
        nodes: ids of the machine's NUMA nodes.
        pod_runs: whether a container of a pod runs.
        is_active: whether a pod uses the node.
        node_changed: the devices in the node's status have changed.
        pod_changed: the devices in a pod's status have changed.
        listen: False: no plugin can register over kubelet.sock.
        """
        self.state = devices_model.DeviceState()
        self._pod_runs = pod_runs
        self._is_active = is_active
        self._nodes = nodes
        self._file = CheckpointFile(directory, self.state)
        self._report = NodeReport(self.state, node_changed)
        self._listed = asyncio.Event()
        self._returns_until = float("-inf")
        self.plugins = DevicePlugins(
            directory,
            self.state,
            self._file,
            self._report,
            metrics,
            pod_changed=pod_changed,
            listed=self._listed.set,
            open_plugin=open_plugin,
            listen=listen,
        )
        self._allocator = Allocator(self.state, self.plugins.current, self._file, metrics)

    async def start(self) -> None:
        """Read which container has what, then let plugins register."""
        now = asyncio.get_running_loop().time()
        await self._file.restore(now)
        self._returns_until = now + RETURNS_WITHIN_S
        await self.plugins.listen()

    async def close(self) -> None:
        """Disconnect from the plugins; pods keep what they have."""
        self._report.close()
        await self.plugins.close()
        await self._file.close()

    # -- the node ------------------------------------------------------------------------------

    def counts(self, reported: Mapping[str, str]) -> DeviceCounts:
        """The devices in the node's status. ``reported``: capacity as the API has it."""
        return self._report.counts(reported)

    def resources_status(self, uid: str) -> Mapping[str, list[api.ResourceStatus]]:
        """allocatedResourcesStatus of each container of a pod that has devices."""
        return model.resources_status(self.state, uid)

    def held_counts(self, uid: str) -> dict[str, int]:
        """How many devices are taken, by resource, if this pod has any.

        For such a pod the node counts as having at least that many.
        """
        if not any(holder.uid == uid for holder in self.state.bookings):
            return {}
        names = {holder.resource for holder in self.state.bookings}
        return {name: len(self.state.held_ids(name)) for name in names}

    def by_container(self) -> dict[tuple[str, str], dict[str, dict[str, tuple[int, ...]]]]:
        """Pod uid and container name -> devices by resource, each with the NUMA nodes near it."""
        found: dict[tuple[str, str], dict[str, dict[str, tuple[int, ...]]]] = {}
        for holder, booking in self.state.bookings.items():
            of_container = found.setdefault((holder.uid, holder.container), {})
            of_container[holder.resource] = model.near(booking)
        return found

    def held_by(self, pod: Pod) -> list[HeldResource]:
        """The devices of each container of a pod."""
        found = []
        for holder, booking in sorted(self.state.bookings.items(), key=lambda item: item[0]):
            if holder.uid == pod.uid:
                nodes = tuple(
                    sorted(each for each in booking.by_node if each != devices_model.NO_NODE)
                )
                what = ", ".join(sorted(booking.ids))
                found.append(HeldResource(holder.container, holder.resource, what, nodes))
        return found

    def healthy_devices(self) -> dict[str, dict[str, tuple[int, ...]]]:
        """Devices that are or can be allocated, by resource."""
        return model.healthy(self.state)

    # -- plugins that come back ----------------------------------------------------------------

    def awaited(self, pod: Pod) -> devices_model.AwaitedPlugins | None:
        """The plugins that a pod has to wait for; None: none. A running pod waits for none."""
        if asyncio.get_running_loop().time() >= self._returns_until or self._pod_runs(pod.uid):
            return None
        try:
            names = {
                name
                for _, container in pod.all_containers()
                for name, number in devices_pick.requests(container, self.state).items()
                if number > 0
                and self.state.returning(name)
                and not devices_pick.by_claim(pod, container["name"], name)
            }
        except ValueError:  # placement refuses the pod for it
            return None
        return (
            devices_model.AwaitedPlugins(tuple(sorted(names)), self._returns_until)
            if names
            else None
        )

    def returned(self, pod: Pod) -> Awaitable[None] | None:
        """Something to await until a pod's plugins are back, or have had their time; None: now."""
        return None if self.awaited(pod) is None else self._returned(pod)

    async def _returned(self, pod: Pod) -> None:
        while (awaited := self.awaited(pod)) is not None:
            self._listed.clear()
            try:
                async with asyncio.timeout_at(awaited.until):
                    await self._listed.wait()
            except TimeoutError:
                log.warning(
                    "device plugins have not come back: the pod is judged without them",
                    extra={
                        "pod": pod.key,
                        "resources": list(awaited.resources),
                        "waited_s": RETURNS_WITHIN_S,
                    },
                )
                return

    # -- placement -----------------------------------------------------------------------------

    def is_requested_by(self, pod: Pod) -> bool:
        """See ResourceProvider."""
        return any(
            devices_pick.requests(container, self.state) for _, container in pod.all_containers()
        )

    def hints(self, pod: Pod, container: api.Container | None) -> Hints:
        """See ResourceProvider. None for a running pod: its devices are in use where they are."""
        if self._pod_runs(pod.uid):
            return {}
        if container is not None:
            name, desired = container["name"], devices_pick.requests(container, self.state)
            desired = {
                each: n for each, n in desired.items() if not devices_pick.by_claim(pod, name, each)
            }
            return devices_pick.device_hints(pod, name, desired, self.state, self._nodes)
        totals = pod_limits(pod, overhead=False)
        desired = {each: whole(n) for each, n in totals.items() if self.state.concerns(each)}
        return devices_pick.device_hints(pod, None, desired, self.state, self._nodes)

    def book(self, pod: Pod, container: api.Container, hint: Hint) -> bool:
        """See ResourceProvider."""
        desired = devices_pick.requests(container, self.state)
        if not desired:
            return False
        wishes = _wishes(pod, container["name"], desired, hint.mask)
        try:
            return self._allocator.reserve(pod, wishes, pod_runs=self._pod_runs(pod.uid))
        except NotSupplied as error:
            raise _refused(error) from None

    async def settle(self, pod: Pod) -> None:
        """See ResourceProvider. Takes as long as the plugins."""
        try:
            await self._allocator.call_plugins(pod)
        except NotSupplied as error:
            raise _refused(error) from None

    def release(self, uids: Collection[str]) -> None:
        """Take back what all other pods have."""
        before = len(self.state.bookings)
        self.state.release_others(uids)
        if len(self.state.bookings) != before:
            self._file.write_soon()

    # -- containers ----------------------------------------------------------------------------

    async def provide(
        self,
        pod: Pod,
        container: api.Container,
        pod_ips: tuple[str, ...],
        supplied: ContainerAdditions,
    ) -> ContainerAdditions:
        """Everything that a container that is about to be created gets with its devices.

        Raises:
            ContainerConfigError: a plugin refuses or does not answer, or its devices are not known.
        """
        name = container["name"]
        try:
            desired = {
                each: n for each, n in devices_pick.requests(container, self.state).items() if n > 0
            }
            desired = {
                each: n for each, n in desired.items() if not devices_pick.by_claim(pod, name, each)
            }
        except ValueError as error:
            raise ContainerConfigError(str(error)) from None
        have = self.state.of_container(pod.uid, name)
        missing = {each: number for each, number in desired.items() if each not in have}
        if missing and self._is_active(pod.uid):
            try:
                if self._allocator.reserve(pod, _wishes(pod, name, missing), pod_runs=False):
                    await self._allocator.call_plugins(pod, name)
            except NotSupplied as error:
                raise ContainerConfigError(str(error)) from None
        for resource in desired:
            await self.plugins.before_start(devices_model.DeviceHolder(pod.uid, name, resource))
        more = devices_pick.from_plugins(self.state.of_container(pod.uid, name))
        return replace(
            supplied,
            envs=(*more.envs, *supplied.envs),
            mounts=(*more.mounts, *supplied.mounts),
            devices=(*more.devices, *supplied.devices),
            annotations={**more.annotations, **supplied.annotations},
            cdi_devices=tuple(dict.fromkeys((*supplied.cdi_devices, *more.cdi_devices))),
        )


def _wishes(
    pod: Pod, container: str, desired: Mapping[str, int], mask: int | None = None
) -> list[devices_model.Wish]:
    return [
        devices_model.Wish(devices_model.DeviceHolder(pod.uid, container, resource), number, mask)
        for resource, number in desired.items()
    ]


def _refused(error: NotSupplied) -> AllocationRefused:
    text = f"Allocate failed due to {error}, which is unexpected"
    return AllocationRefused(text, container=error.container)
