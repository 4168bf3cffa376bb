"""The device plugins of a node, and the devices that containers get of them.

Decides nothing: :mod:`.pick` says which devices, :mod:`.state` keeps who has them, :mod:`.given`
what that means for a container. A booking is on the disk before its pod is let in; a plugin that
does not answer keeps only those waiting that want its devices. Source:
docs/reference/behaviour-resources.md, rn, ro, rp.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from kubeletpy.api import types as api
from kubeletpy.api.quantity import whole
from kubeletpy.devices import on_node
from kubeletpy.devices.checkpoint_file import CheckpointFile
from kubeletpy.devices.given import from_plugins
from kubeletpy.devices.hints import device_hints
from kubeletpy.devices.kubelet_socket import KubeletSocket, plugin_socket
from kubeletpy.devices.model import Booking, Holder, by_node
from kubeletpy.devices.names import Refused, check_resource, check_version
from kubeletpy.devices.pick import Choice, No, Nothing, Wish, by_claim, decide, pick, requests
from kubeletpy.devices.plugin import (
    DevicePlugin,
    OpenPlugin,
    PluginAnswer,
    connected,
    over_socket,
)
from kubeletpy.devices.state import DeviceState
from kubeletpy.metrics.devices import DeviceMetrics
from kubeletpy.placement.hints import Hint, Hints
from kubeletpy.placement.refusal import AllocationRefused
from kubeletpy.pods.config_errors import ContainerConfigError
from kubeletpy.pods.granted import DeviceCounts
from kubeletpy.pods.pod import Pod
from kubeletpy.pods.resources import pod_limits
from kubeletpy.remote.endpoint import EndpointError
from kubeletpy.remote.plugin_calls import PluginCallFailed
from kubeletpy.runtime_manager.additions import ContainerAdditions

if TYPE_CHECKING:
    from kubeletpy.remote.generated import deviceplugin_pb2 as pb

log = logging.getLogger(__name__)

MAX_RESOURCES = 256
PACE_S = 0.1
"""A plugin's lists are taken in no faster."""
NODE_PACE_S = 1.0
"""The node's status is written no faster for devices' sake."""


class _NotGiven(Exception):
    """A container does not get its devices; the text says why."""


class DeviceManager:
    """A :class:`~kubeletpy.placement.provider.ResourceProvider` and a provider of containers'
    config. Make it inside a running event loop.
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
        directory: of the sockets of plugins, and of the checkpoint.
        nodes: ids of the machine's NUMA nodes.
        pod_runs: whether a container of a pod runs.
        is_active: whether a pod uses the node.
        node_changed: what the node's status says of devices has changed.
        pod_changed: what a pod's status says of devices has changed.
        listen: False: no plugin can register over kubelet.sock.
        """
        self.state = DeviceState()
        self._directory = directory
        self._metrics = metrics
        self._nodes = nodes
        self._pod_runs = pod_runs
        self._is_active = is_active
        self._node_changed = node_changed
        self._pod_changed = pod_changed
        self._open_plugin = open_plugin
        self._plugins: dict[str, DevicePlugin] = {}
        self._watches: dict[DevicePlugin, asyncio.Task[None]] = {}
        self._file = CheckpointFile(directory, self.state)
        self._socket = KubeletSocket(directory, self._register) if listen else None
        self._to_zero: set[str] = set()
        self._zero_all = False
        self._ends = asyncio.Event()
        self._tell_node: asyncio.TimerHandle | None = None
        self._told_at = float("-inf")
        self._problems: dict[str, str] = {}
        self._newest: dict[str, object] = {}
        self._prepares: dict[str, bool] = {}
        """Resources whose last plugin wants to be called before containers start, or does not."""

    # -- beginning and end ---------------------------------------------------------------------

    async def start(self) -> None:
        """Read who has what, then let plugins register. Raises OSError."""
        await self._file.read(asyncio.get_running_loop().time())
        if self._socket is not None:
            self._zero_all = await self._socket.start()

    async def run(self) -> None:
        """Forget resources whose plugins have gone for good, until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            self._ends.clear()
            at = self.state.expires_at()
            try:
                async with asyncio.timeout_at(at):
                    await self._ends.wait()
            except TimeoutError:
                gone = self.state.expire(loop.time())
                log.info("resources of device plugins forgotten", extra={"resources": list(gone)})
                self._to_zero.update(gone)
                self._file.write_soon()
                self._node_changed()

    async def close(self) -> None:
        """Let go of the plugins; what pods have stays theirs."""
        if self._socket is not None:
            await self._socket.close()
        if self._tell_node is not None:
            self._tell_node.cancel()
        watches = list(self._watches.values())
        for watch in watches:
            watch.cancel()
        await asyncio.gather(*watches, return_exceptions=True)
        for plugin in self._plugins.values():
            await plugin.close()
        await self._file.close()

    # -- plugins -------------------------------------------------------------------------------

    async def _register(self, request: pb.RegisterRequest) -> None:
        """A plugin wants its devices to be the node's. Raises Refused."""
        check_version([request.version])
        check_resource(request.resource_name)
        self._metrics.registrations.labels(request.resource_name).inc()
        await self.register(request.resource_name, plugin_socket(self._directory, request.endpoint))

    async def register(self, resource: str, socket: str) -> None:
        """Take the devices of a plugin, and of no other for this resource. Raises Refused."""
        check_resource(resource)
        if resource not in self._plugins and len(self._plugins) >= MAX_RESOURCES:
            raise Refused(f"this node has device plugins of {MAX_RESOURCES} resources already")
        mine = self._newest[resource] = object()
        try:
            plugin = await connected(self._open_plugin, resource, socket)
        except (PluginCallFailed, EndpointError) as error:
            raise Refused(str(error)) from None
        finally:
            newest = self._newest.get(resource) is mine
            if newest:
                del self._newest[resource]
        if not newest:
            await plugin.close()
            raise Refused(f"another device plugin of {resource} has registered meanwhile")
        before = self._plugins.get(resource)
        self._plugins[resource] = plugin
        self._prepares[resource] = plugin.pre_start
        self._problems.pop(resource, None)
        self.state.started(resource)
        self._ends.set()
        log.info("device plugin registered", extra={"resource": resource, "socket": socket})
        self._watches[plugin] = asyncio.create_task(
            self._watch(plugin), name=f"device plugin {resource}"
        )
        if before is not None:
            await self._let_go(before)

    async def deregister(self, resource: str, socket: str) -> None:
        """The plugin at this socket has gone, unless another has its resource."""
        plugin = self._plugins.get(resource)
        if plugin is not None and plugin.socket == socket:
            await self._let_go(plugin)

    async def _let_go(self, plugin: DevicePlugin) -> None:
        watch = self._watches.get(plugin)
        if watch is not None:
            watch.cancel()
            await asyncio.wait([watch])

    async def _watch(self, plugin: DevicePlugin) -> None:
        """Follow a plugin's devices to its end."""
        loop = asyncio.get_running_loop()
        why = "it has ended the stream of its devices"
        try:
            async for devices in plugin.lists():
                if self._plugins.get(plugin.resource) is not plugin:
                    break
                taken_in = loop.time()
                before = self._counts(plugin.resource)
                owners = self.state.listed(plugin.resource, devices)
                for uid in owners:
                    self._pod_changed(uid)
                if self._counts(plugin.resource) != before:
                    self._file.write_soon()
                    self._tell_soon()
                await asyncio.sleep(max(0.0, taken_in + PACE_S - loop.time()))
        except (PluginCallFailed, PluginAnswer) as error:
            why = str(error)
        except asyncio.CancelledError:
            why = "it was let go"
            raise
        except Exception:  # a plugin's fault must not leave its devices on offer
            log.exception("device plugin not understood", extra={"resource": plugin.resource})
            why = "internal error"
        finally:
            del self._watches[plugin]
            if self._plugins.get(plugin.resource) is plugin:
                del self._plugins[plugin.resource]
                self.state.stopped(plugin.resource, loop.time())
                self._problems[plugin.resource] = why
                self._ends.set()
                log.warning(
                    "device plugin has stopped: none of its devices can be given",
                    extra={"resource": plugin.resource, "why": why},
                )
                self._tell_soon()
            await asyncio.shield(plugin.close())

    def _counts(self, resource: str) -> tuple[frozenset[str], frozenset[str]] | None:
        known = self.state.resources.get(resource)
        return None if known is None else (known.healthy, known.unhealthy)

    def _tell_soon(self) -> None:
        loop = asyncio.get_running_loop()
        if self._tell_node is None:
            at = max(loop.time(), self._told_at + NODE_PACE_S)
            self._tell_node = loop.call_at(at, self._tell)

    def _tell(self) -> None:
        self._tell_node = None
        self._told_at = asyncio.get_running_loop().time()
        self._node_changed()

    # -- the node ------------------------------------------------------------------------------

    def counts(self, shown: Mapping[str, str]) -> DeviceCounts:
        """What the node's status says of devices. ``shown``: capacity as the API has it."""
        if shown and self._zero_all:
            self._zero_all = False
            self._to_zero |= on_node.extended(shown) - self.state.resources.keys()
        total, free = on_node.capacity(self.state), on_node.allocatable(self.state)
        self._to_zero -= total.keys()
        self._to_zero -= {name for name in self._to_zero if shown.get(name, "0") == "0"}
        zero = dict.fromkeys(self._to_zero, 0)
        return DeviceCounts({**zero, **total}, {**zero, **free})

    def resources_status(self, uid: str) -> Mapping[str, list[api.ResourceStatus]]:
        """allocatedResourcesStatus of each container of a pod that has devices."""
        return on_node.resources_status(self.state, uid)

    def held(self, uid: str) -> dict[str, int]:
        """How many devices are taken, by resource, if a pod is one of those that have some.

        The node is no smaller than that for such a pod.
        """
        if not any(holder.uid == uid for holder in self.state.bookings):
            return {}
        names = {holder.resource for holder in self.state.bookings}
        return {name: len(self.state.taken(name)) for name in names}

    def devices_of(self, uid: str, container: str) -> dict[str, dict[str, tuple[int, ...]]]:
        """Devices of a container by resource, and the NUMA nodes that each is near to."""
        held = self.state.of_container(uid, container)
        return {name: on_node.near(booking) for name, booking in held.items()}

    def all_devices_of(self, uid: str) -> dict[str, dict[str, dict[str, tuple[int, ...]]]]:
        """The same of all containers of a pod."""
        names = {holder.container for holder in self.state.bookings if holder.uid == uid}
        return {name: self.devices_of(uid, name) for name in names}

    def healthy_devices(self) -> dict[str, dict[str, tuple[int, ...]]]:
        """Devices that can be given or are, by resource."""
        return on_node.healthy(self.state)

    # -- placement -----------------------------------------------------------------------------

    def wants(self, pod: Pod) -> bool:
        """Whether a pod asks for devices of plugins. Raises ValueError."""
        return any(requests(container, self.state) for _, container in pod.all_containers())

    def hints(self, pod: Pod, container: api.Container | None) -> Hints:
        """Near which NUMA nodes the devices could be had that are asked for."""
        if container is not None:
            name, wanted = container["name"], requests(container, self.state)
            wanted = {each: n for each, n in wanted.items() if not by_claim(pod, name, each)}
            return device_hints(pod, name, wanted, self.state, self._nodes)
        totals = pod_limits(pod, overhead=False)
        wanted = {each: whole(n) for each, n in totals.items() if self.state.concerns(each)}
        return device_hints(pod, None, wanted, self.state, self._nodes)

    async def allocate(self, pod: Pod, container: api.Container, hint: Hint) -> None:
        """Book the devices that a container asks for.

        Raises AllocationRefused, ValueError: a quantity that is none.
        """
        wanted = requests(container, self.state)
        runs = self._pod_runs(pod.uid)
        try:
            await self._book_all(pod, container["name"], wanted, hint.mask, pod_runs=runs)
        except _NotGiven as error:
            text = f"Allocate failed due to {error}, which is unexpected"
            raise AllocationRefused(text) from None

    async def _book_all(
        self,
        pod: Pod,
        container: str,
        wanted: Mapping[str, int],
        mask: int | None,
        *,
        pod_runs: bool,
    ) -> None:
        """All of it, on the disk, or nothing. Raises _NotGiven."""
        booked: list[Holder] = []
        written = False
        try:
            for resource, number in wanted.items():
                wish = Wish(Holder(pod.uid, container, resource), number, mask)
                if await self._book(pod, wish, pod_runs=pod_runs):
                    booked.append(wish.holder)
            if booked:
                await self._file.write()
            written = True
        except OSError as error:
            text = f"failed to write checkpoint file in {self._directory}: {error}"
            raise _NotGiven(text) from None
        finally:
            if booked and not written:
                for holder in booked:
                    self.state.bookings.pop(holder, None)
                self._file.write_soon()

    async def _book(self, pod: Pod, wish: Wish, *, pod_runs: bool) -> bool:
        """Whether there is something new. Raises _NotGiven."""
        holder = wish.holder
        answer = decide(pod, wish, self.state, pod_runs=pod_runs)
        liked: Collection[str] = ()
        plugin = self._plugins.get(holder.resource)
        if isinstance(answer, Choice) and plugin is not None and plugin.prefers and answer.ask:
            try:
                liked = await plugin.preferred(*answer.ask, answer.wanted)
            except PluginCallFailed as error:
                text = f"device plugin GetPreferredAllocation rpc failed with err: {error}"
                raise _NotGiven(text) from None
            # others may have taken some meanwhile
            answer = decide(pod, wish, self.state, pod_runs=pod_runs)
        match answer:
            case Nothing():
                return False
            case No(message):
                raise _NotGiven(message)
            case Choice():
                await self._allocate(holder, pick(answer, liked), answer.taken)
                return True

    async def _allocate(self, holder: Holder, ids: Sequence[str], again: Collection[str]) -> None:
        resource = holder.resource
        plugin = self._plugins.get(resource)
        if plugin is None:
            raise _NotGiven(f"unknown Device Plugin {resource}")
        listed = self.state.resources[resource].listed
        devices = [listed[each] for each in ids]
        loop = asyncio.get_running_loop()
        began = loop.time()
        self.state.reserve(resource, ids)
        try:
            response = await plugin.allocate(ids)
        except (PluginCallFailed, PluginAnswer) as error:
            raise _NotGiven(str(error)) from None
        finally:
            self.state.let_go(resource, ids)
            self._metrics.allocations.labels(resource).observe(loop.time() - began)
        self.state.bookings[holder] = Booking(by_node(devices), response)
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

    def release(self, uids: Collection[str]) -> None:
        """Take back what all other pods have."""
        before = len(self.state.bookings)
        self.state.keep(uids)
        if len(self.state.bookings) != before:
            self._file.write_soon()

    # -- containers ----------------------------------------------------------------------------

    async def provide(
        self,
        pod: Pod,
        container: api.Container,
        pod_ips: tuple[str, ...],
        given: ContainerAdditions,
    ) -> ContainerAdditions:
        """What a container that is about to be made gets with its devices.

        Raises:
            ContainerConfigError: a plugin says no, or says nothing; or its devices are not known.
        """
        name = container["name"]
        try:
            wanted = {each: n for each, n in requests(container, self.state).items() if n > 0}
            wanted = {each: n for each, n in wanted.items() if not by_claim(pod, name, each)}
        except ValueError as error:
            raise ContainerConfigError(str(error)) from None
        have = self.state.of_container(pod.uid, name)
        missing = {each: number for each, number in wanted.items() if each not in have}
        if missing and self._is_active(pod.uid):
            try:
                await self._book_all(pod, name, missing, None, pod_runs=False)
            except _NotGiven as error:
                raise ContainerConfigError(str(error)) from None
        for resource in wanted:
            await self._before_start(Holder(pod.uid, name, resource))
        more = from_plugins(self.state.of_container(pod.uid, name))
        return replace(
            given,
            envs=(*more.envs, *given.envs),
            mounts=(*more.mounts, *given.mounts),
            devices=(*more.devices, *given.devices),
            annotations={**more.annotations, **given.annotations},
            cdi_devices=tuple(dict.fromkeys((*given.cdi_devices, *more.cdi_devices))),
        )

    async def _before_start(self, holder: Holder) -> None:
        """Have the plugin prepare the devices, if it wants to."""
        plugin = self._plugins.get(holder.resource)
        booking = self.state.bookings.get(holder)
        if booking is None or not self._prepares.get(holder.resource):
            return
        if plugin is None:
            raise ContainerConfigError(
                f"device plugin of {holder.resource} wants to be called before a container starts, "
                f"but it has stopped: {self._problems.get(holder.resource, '')}"
            )
        try:
            await plugin.before_start(sorted(booking.ids))
        except PluginCallFailed as error:
            raise ContainerConfigError(
                f"device plugin PreStartContainer rpc failed with err: {error}"
            ) from None
