"""Allocates the devices of a node's device plugins to containers.

:mod:`.registration` follows the plugins, :mod:`.pick` decides which devices a container gets and
what it gets with them, and :mod:`.model` keeps who holds them. A booking is on the disk before its
pod is admitted. A plugin that does not answer delays only pods that request its devices. Source:
docs/reference/behaviour-resources.md, rn, ro, rp.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path

from kubeletpy.base.api import types as api
from kubeletpy.base.api.quantity import whole
from kubeletpy.base.host.errors import Cause, CausedError
from kubeletpy.base.host.state_file import StateFile, read_state
from kubeletpy.base.structs import Component, replace
from kubeletpy.base.tasks import wait_until
from kubeletpy.metrics.resources import DeviceMetrics
from kubeletpy.pods.pod import DeviceCounts, HeldResource, Pod
from kubeletpy.pods.resources import pod_limits
from kubeletpy.pods.runtime_status import ContainerConfigError
from kubeletpy.remote.plugin_calls import PluginCallFailed
from kubeletpy.resources.devices import checkpoint, model, pick
from kubeletpy.resources.devices.plugin import DevicePlugin, OpenPlugin, PluginAnswer, over_socket
from kubeletpy.resources.devices.registration import DevicePlugins, NodeReport
from kubeletpy.resources.placement.model import AllocationRefused, Hint, Hints
from kubeletpy.runtime_manager.protocol import ContainerAdditions

log = logging.getLogger(__name__)


class NotAllocated(CausedError):
    """A container does not get its devices; the text contains the reason."""

    def __init__(self, why: str, container: str, cause: Cause | None = None) -> None:
        super().__init__(why, cause)
        self.container = container


class Allocator(Component):
    """Allocates in three steps: reserve devices, call their plugin, write to the disk.

    Reserving takes no time, so that no other pod gets what admission promises a pod; the rest takes
    as long as the plugin. Nothing is kept for a container that was refused. Use it inside the event
    loop only.
    """

    state: model.DeviceState
    plugins: Mapping[str, DevicePlugin]
    file: StateFile
    metrics: DeviceMetrics

    def reserve(self, pod: Pod, requests: Iterable[model.DeviceRequest], *, pod_runs: bool) -> bool:
        """Reserve what a container requests, all or nothing; return whether to call a plugin.

        Args:
            pod_runs: something of the pod runs.

        Raises:
            NotAllocated: it is not available.
        """
        made: dict[model.DeviceHolder, model.Reservation] = {}
        for request in requests:
            match pick.decide(pod, request, self.state, pod_runs=pod_runs):
                case pick.DeviceChoice() as choice:
                    made[request.holder] = model.Reservation(request, frozenset(pick.pick(choice)))
                case pick.Unallocatable(message, cause):
                    raise NotAllocated(message, request.holder.container, cause)
                case pick.NothingToAllocate():
                    pass
        self.state.reserved.update(made)
        return bool(made)

    async def call_plugins(self, pod: Pod, container: str | None = None) -> None:
        """Have the plugins agree to what is reserved for a pod or one of its containers.

        Then it is written to the disk.

        Raises:
            NotAllocated: a plugin does not agree, or the write failed; all of it is free again.
        """
        holders = [
            each
            for each in self.state.reserved
            if each.uid == pod.uid and container in (None, each.container)
        ]
        agreed = False
        try:
            for holder in holders:
                await self._call_plugin(pod, holder)
            await self.file.write()
            agreed = True
        except OSError as error:
            why = f"failed to write checkpoint file: {error}"
            raise NotAllocated(why, holders[0].container if holders else "") from None
        finally:
            if not agreed:
                self._take_back(holders)

    def _take_back(self, holders: Collection[model.DeviceHolder]) -> None:
        for holder in holders:
            self.state.reserved.pop(holder, None)
            self.state.bookings.pop(holder, None)
        self.file.write_soon()

    async def _call_plugin(self, pod: Pod, holder: model.DeviceHolder) -> None:
        """Call the plugin of a holder's resource. Raises NotAllocated."""
        plugin = self.plugins.get(holder.resource)
        choice = self._chosen(pod, holder)
        if plugin is not None and plugin.prefers and choice.preferred_request:
            try:
                liked = await plugin.preferred(*choice.preferred_request, choice.desired)
            except PluginCallFailed as error:
                text = f"device plugin GetPreferredAllocation rpc failed with err: {error}"
                raise NotAllocated(text, holder.container) from None
            choice = self._chosen(pod, holder, liked)
        await self._allocate(holder, sorted(self.state.reserved[holder].ids), choice.taken)

    def _chosen(
        self, pod: Pod, holder: model.DeviceHolder, liked: Collection[str] = ()
    ) -> pick.DeviceChoice:
        """Choose again: devices may have been added, removed or changed meanwhile.

        Later containers of the pod, which may reuse the same devices, are chosen for again too.
        Raises NotAllocated.
        """
        reserved = self.state.reserved
        if holder not in reserved:
            raise NotAllocated("its pod does not use the node any more", holder.container)
        same = [h for h in reserved if (h.uid, h.resource) == (holder.uid, holder.resource)]
        requests = [reserved.pop(each).request for each in same]
        first: pick.DeviceChoice | None = None
        for request in requests:
            match pick.decide(pod, request, self.state):
                case pick.DeviceChoice() as choice:
                    mine = request.holder == holder
                    ids = frozenset(pick.pick(choice, liked if mine else ()))
                    reserved[request.holder] = model.Reservation(request, ids)
                    first = choice if mine else first
                case pick.Unallocatable(message, cause):
                    raise NotAllocated(message, request.holder.container, cause)
                case pick.NothingToAllocate(message):
                    raise NotAllocated(message, request.holder.container)
        assert first is not None, "it was among them"
        return first

    async def _allocate(
        self, holder: model.DeviceHolder, ids: list[str], again: Collection[str]
    ) -> None:
        resource = holder.resource
        plugin = self.plugins.get(resource)
        if plugin is None:
            raise NotAllocated(f"unknown Device Plugin {resource}", holder.container)
        listed = self.state.resources[resource].listed
        devices = [listed[each] for each in ids]
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            response = await plugin.allocate(ids)
        except (PluginCallFailed, PluginAnswer) as error:
            raise NotAllocated(str(error), holder.container) from None
        finally:
            self.metrics.allocations.labels(resource).observe(loop.time() - began)
        if self.state.reserved.pop(holder, None) is None:
            raise NotAllocated("its pod does not use the node any more", holder.container)
        self.state.bookings[holder] = model.Booking(model.by_node(devices), response)
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
"""Seconds from the agent's start within which pods wait for an earlier agent's device plugins.

After a reboot agent and plugins start in any order, and a refused pod stays refused; a plugin
runs in a pod itself, which takes its time to start."""


class DeviceManager(Component):
    """Provides devices to pods that are placed, and to the config of containers.

    It is a :class:`~kubeletpy.resources.placement.model.ResourceProvider` and a
    :class:`~kubeletpy.runtime_manager.protocol.ContainerProvider`. Make it inside a running event
    loop.
    """

    name = "devices"

    directory: Path
    """Holds the plugins' sockets and the checkpoint."""
    metrics: DeviceMetrics
    nodes: Sequence[int]
    """Ids of the machine's NUMA nodes."""
    pod_runs: Callable[[str], bool]
    """Whether a container of a pod runs."""
    is_active: Callable[[str], bool]
    """Whether a pod uses the node."""
    node_changed: Callable[[], None]
    """Called when the devices in the node's status have changed."""
    pod_changed: Callable[[str], None]
    """Called when the devices in a pod's status have changed."""
    open_plugin: OpenPlugin = over_socket
    listen: bool = True
    """False: no plugin can register over kubelet.sock."""

    def __post_init__(self) -> None:
        self.state = model.DeviceState()
        self._file = StateFile(
            self.directory / checkpoint.FILE,
            self._capture,
            "the device checkpoint can't be written; trying again",
            soon_s=0.5,
        )
        self._report = NodeReport(self.state, self.node_changed)
        self._listed = asyncio.Event()
        self._returns_until = float("-inf")
        self.plugins = DevicePlugins(
            self.directory,
            self.state,
            self._file,
            self._report,
            self.metrics,
            pod_changed=self.pod_changed,
            listed=self._listed.set,
            open_plugin=self.open_plugin,
            listens=self.listen,
        )
        self._allocator = Allocator(self.state, self.plugins.current, self._file, self.metrics)

    async def start(self) -> None:
        """Read the containers' devices from the checkpoint, then let plugins register."""
        now = asyncio.get_running_loop().time()
        await self._restore(now)
        self._returns_until = now + RETURNS_WITHIN_S
        await self.plugins.listen()

    async def close(self) -> None:
        """Disconnect from the plugins; pods keep what they have."""
        self._report.close()
        await self.plugins.close()
        await self._file.close()

    async def _restore(self, now: float) -> None:
        """Restore the state. An unusable file is reported and ignored."""
        try:
            text = await asyncio.to_thread(read_state, self._file.path)
            bookings, resources = await asyncio.to_thread(checkpoint.parse_checkpoint, text)
        except FileNotFoundError:
            return
        except (OSError, ValueError) as error:
            log.error(
                "which devices pods have can't be read: their containers keep them, but they may "
                "be given again; drain the node, then remove the file",
                extra={"file": str(self._file.path), "why": str(error)},
            )
            return
        self.state.restored(resources, bookings, now)

    def _capture(self) -> Callable[[], str]:
        bookings = dict(self.state.bookings)
        healthy = {name: each.healthy for name, each in self.state.resources.items()}
        return lambda: checkpoint.render(
            bookings, {name: sorted(ids) for name, ids in healthy.items()}
        )

    # -- the node ------------------------------------------------------------------------------

    def counts(self, reported: Mapping[str, str]) -> DeviceCounts:
        """Count the devices for the node's status. ``reported``: capacity as the API has it."""
        self.metrics.show(model.capacity(self.state), model.allocatable(self.state))
        return self._report.counts(reported)

    def resources_status(self, uid: str) -> Mapping[str, list[api.ResourceStatus]]:
        """Return allocatedResourcesStatus of each container of a pod that has devices."""
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
            of_container[holder.resource] = model.nodes_by_device(booking)
        return found

    def held_by(self, pod: Pod) -> list[HeldResource]:
        """The devices of each container of a pod."""
        found = []
        for holder, booking in sorted(self.state.bookings.items(), key=lambda item: item[0]):
            if holder.uid == pod.uid:
                nodes = tuple(sorted(each for each in booking.by_node if each != model.NO_NODE))
                what = ", ".join(sorted(booking.ids))
                found.append(HeldResource(holder.container, holder.resource, what, nodes))
        return found

    def healthy_devices(self) -> dict[str, dict[str, tuple[int, ...]]]:
        """Devices that are or can be allocated, by resource."""
        return model.healthy_devices(self.state)

    # -- plugins that come back ----------------------------------------------------------------

    def awaited(self, pod: Pod) -> model.AwaitedPlugins | None:
        """The plugins that a pod has to wait for; None: none. A running pod waits for none."""
        if asyncio.get_running_loop().time() >= self._returns_until or self.pod_runs(pod.uid):
            return None
        try:
            names = {
                name
                for _, container in pod.all_containers()
                for name, number in pick.requests(container, self.state).items()
                if number > 0
                and self.state.returning(name)
                and not pick.by_claim(pod, container["name"], name)
            }
        except ValueError:  # placement refuses the pod for it
            return None
        return model.AwaitedPlugins(tuple(sorted(names)), self._returns_until) if names else None

    def returned(self, pod: Pod) -> Awaitable[None] | None:
        """Return an awaitable until a pod's plugins are back or have had their time, or None."""
        return None if self.awaited(pod) is None else self._returned(pod)

    async def _returned(self, pod: Pod) -> None:
        while (awaited := self.awaited(pod)) is not None:
            self._listed.clear()
            if not await wait_until(self._listed, awaited.until):
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
        """Whether any container of a pod requests devices."""
        return any(pick.requests(container, self.state) for _, container in pod.all_containers())

    def hints(self, pod: Pod, container: api.Container | None) -> Hints:
        """Return where devices could be allocated, by resource.

        A running pod has no hints: its devices are in use where they are.
        """
        if self.pod_runs(pod.uid):
            return {}
        if container is not None:
            name, desired = container["name"], pick.requests(container, self.state)
            desired = {each: n for each, n in desired.items() if not pick.by_claim(pod, name, each)}
            return pick.device_hints(pod, name, desired, self.state, self.nodes)
        totals = pod_limits(pod, overhead=False)
        desired = {each: whole(n) for each, n in totals.items() if self.state.concerns(each)}
        return pick.device_hints(pod, None, desired, self.state, self.nodes)

    def book(self, pod: Pod, container: api.Container, hint: Hint) -> bool:
        """Reserve the devices that a container requests. Raises AllocationRefused."""
        desired = pick.requests(container, self.state)
        if not desired:
            return False
        requests = _device_requests(pod, container["name"], desired, hint.mask)
        try:
            return self._allocator.reserve(pod, requests, pod_runs=self.pod_runs(pod.uid))
        except NotAllocated as error:
            raise _refused(error) from None

    async def settle(self, pod: Pod) -> None:
        """Call the plugins of a pod's reserved devices. Raises AllocationRefused."""
        try:
            await self._allocator.call_plugins(pod)
        except NotAllocated as error:
            raise _refused(error) from None

    def release(self, uids: Collection[str]) -> None:
        """Take back what all other pods have."""
        before = len(self.state.bookings)
        self.state.release_others(uids)
        if len(self.state.bookings) != before:
            self._file.write_soon()

    # -- containers ----------------------------------------------------------------------------

    async def provide(
        self, pod: Pod, container: api.Container, supplied: ContainerAdditions
    ) -> ContainerAdditions:
        """Add everything that a container gets with its devices to its config.

        Raises:
            ContainerConfigError: a plugin refuses or does not answer, or its devices are not known.
        """
        name = container["name"]
        try:
            desired = {each: n for each, n in pick.requests(container, self.state).items() if n > 0}
            desired = {each: n for each, n in desired.items() if not pick.by_claim(pod, name, each)}
        except ValueError as error:
            raise ContainerConfigError(str(error)) from None
        have = self.state.of_container(pod.uid, name)
        missing = {each: number for each, number in desired.items() if each not in have}
        if missing and self.is_active(pod.uid):
            try:
                if self._allocator.reserve(
                    pod, _device_requests(pod, name, missing), pod_runs=False
                ):
                    await self._allocator.call_plugins(pod, name)
            except NotAllocated as error:
                raise ContainerConfigError(str(error)) from None
        for resource in desired:
            await self.plugins.before_start(model.DeviceHolder(pod.uid, name, resource))
        more = pick.plugin_additions(self.state.of_container(pod.uid, name))
        return replace(
            supplied,
            envs=(*more.envs, *supplied.envs),
            mounts=(*more.mounts, *supplied.mounts),
            devices=(*more.devices, *supplied.devices),
            annotations={**more.annotations, **supplied.annotations},
            cdi_devices=tuple(dict.fromkeys((*supplied.cdi_devices, *more.cdi_devices))),
        )


def _device_requests(
    pod: Pod, container: str, desired: Mapping[str, int], mask: int | None = None
) -> list[model.DeviceRequest]:
    return [
        model.DeviceRequest(model.DeviceHolder(pod.uid, container, resource), number, mask)
        for resource, number in desired.items()
    ]


def _refused(error: NotAllocated) -> AllocationRefused:
    text = f"Allocate failed due to {error}, which is unexpected"
    return AllocationRefused(text, container=error.container, cause=error.cause)
