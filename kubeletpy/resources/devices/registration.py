"""Registers device plugins, one for each resource, and follows the devices of each to its end.

Plugins register over ``kubelet.sock``, or over sockets in plugins_registry as CSI drivers do.
:mod:`.device_manager` allocates their devices. Source: docs/reference/behaviour-resources.md, ri,
rm, rn.
"""

from __future__ import annotations

import asyncio
import logging
import stat
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path, PurePosixPath

from kubeletpy.base.host.state_file import StateFile
from kubeletpy.base.structs import Component
from kubeletpy.base.tasks import Lasting, cancel_tasks, wait_until
from kubeletpy.metrics.resources import DeviceMetrics
from kubeletpy.pods.pod import DeviceCounts
from kubeletpy.pods.runtime_status import ContainerConfigError
from kubeletpy.remote.connection import EndpointError
from kubeletpy.remote.errors import Code
from kubeletpy.remote.local_server import CallRefused, LocalServer, parsed
from kubeletpy.remote.plugin_calls import PluginCallFailed
from kubeletpy.resources.devices import model
from kubeletpy.resources.devices.model import (
    DeviceHolder,
    DeviceState,
    PluginDevice,
    RegistrationRefused,
    check_resource,
    check_version,
    compare,
)
from kubeletpy.resources.devices.plugin import (
    MANY_DEVICES,
    DevicePlugin,
    OpenPlugin,
    PluginAnswer,
    connected,
)
from kubeletpy.resources.plugins.model import PluginInfo, PluginRefused

log = logging.getLogger(__name__)

SOCKET = "kubelet.sock"
SERVICE = "v1beta1.Registration"
MAX_AT_ONCE = 64
"""Registrations in progress; more are refused, and retried by their plugins."""


def clear(directory: Path) -> bool:
    """Make the directory and remove the sockets in it, nothing else; return whether it was empty.

    Blocks. Raises OSError.
    """
    directory.mkdir(0o750, parents=True, exist_ok=True)
    entries = list(directory.iterdir())
    for entry in entries:
        if stat.S_ISSOCK(entry.lstat().st_mode):
            entry.unlink(missing_ok=True)
    return all(entry.name.startswith(".") for entry in entries)


def plugin_socket(directory: Path, endpoint: str) -> str:
    """Return the path of a plugin's socket. Raises RegistrationRefused: it is outside."""
    parts = PurePosixPath(endpoint).parts
    if not parts or endpoint.startswith("/") or ".." in parts or endpoint == SOCKET:
        raise RegistrationRefused(
            f"endpoint {endpoint!r} is not the name of a socket in {directory}"
        )
    return str(directory / endpoint)


NODE_PACE_S = 1.0
"""Device changes cause the node's status to be written no faster than this."""


class NodeReport(Component):
    """Counts the devices for the node's status, and decides when that must be written.

    Use it inside the event loop only.
    """

    state: DeviceState
    node_changed: Callable[[], None]
    """Called when the devices in the node's status have changed."""

    def __post_init__(self) -> None:
        self._to_zero: set[str] = set()
        self._zero_all = False
        self._timer: asyncio.TimerHandle | None = None
        self._reported_at = float("-inf")

    def nothing_known(self) -> None:
        """Report as 0 every extended resource of the node that has no plugin.

        It is for a node whose disk has no record of what plugins had offered.
        """
        self._zero_all = True

    def forgotten(self, resources: Iterable[str]) -> None:
        """Report resources that expired as 0."""
        self._to_zero.update(resources)
        self.node_changed()

    def counts(self, reported: Mapping[str, str]) -> DeviceCounts:
        """The devices in the node's status. ``reported``: capacity as the API has it."""
        if reported and self._zero_all:
            self._zero_all = False
            self._to_zero |= model.extended_resources(reported) - self.state.resources.keys()
        total, free = model.capacity(self.state), model.allocatable(self.state)
        self._to_zero -= total.keys()
        self._to_zero -= {name for name in self._to_zero if reported.get(name, "0") == "0"}
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
        self.node_changed()

    def close(self) -> None:
        """Cancel a report that is due."""
        if self._timer is not None:
            self._timer.cancel()


MAX_RESOURCES = 256
PACE_S = 0.1
"""A plugin's lists are read no faster than this."""
LISTEN_AGAIN_S = 30.0
"""How often to retry when kubelet.sock can't be created."""


class DevicePlugins(Component):
    """The plugins by resource. Make it inside a running event loop."""

    directory: Path
    """Holds the plugins' sockets."""
    state: DeviceState
    file: StateFile
    """Is written when there are other devices."""
    report: NodeReport
    metrics: DeviceMetrics
    pod_changed: Callable[[str], None]
    """Called when the devices in a pod's status have changed."""
    listed: Callable[[], None]
    """Called when a plugin has listed its devices."""
    open_plugin: OpenPlugin
    listens: bool
    """False: no plugin can register over kubelet.sock."""

    def __post_init__(self) -> None:
        self.current: dict[str, DevicePlugin] = {}
        self._lasting = Lasting()
        self._watches: dict[DevicePlugin, asyncio.Task[None]] = {}
        self._server: LocalServer | None = None
        self._ends = asyncio.Event()
        self._listen_error = ""
        self._problems: dict[str, str] = {}
        self._newest: dict[str, object] = {}
        self._prepares: dict[str, bool] = {}
        """Whether a resource's last plugin requires a call before containers start."""

    async def listen(self) -> None:
        """Let plugins register over kubelet.sock; they do so again when it is recreated.

        Where they can't, that is logged and retried: the node works without, and plugins of
        plugins_registry need no kubelet.sock.
        """
        if not self.listens:
            return
        socket = self.directory / SOCKET
        try:
            was_empty = await asyncio.to_thread(clear, self.directory)
            server = LocalServer(socket, MAX_AT_ONCE, {SERVICE: {"Register": self._register}})
            await server.start()
        except OSError as error:
            if self._listen_error != (why := str(error)):
                self._listen_error = why
                extra = {"socket": str(socket), "why": why}
                log.error("device plugins can't register; trying again", extra=extra)
        else:
            self._server, self._listen_error = server, ""
            if was_empty:
                self.report.nothing_known()

    def problem(self) -> str:
        """Return why no device plugin can register over kubelet.sock; empty if they can."""
        if not self._listen_error:
            return ""
        return f"device plugins can't register over {self.directory / SOCKET}: {self._listen_error}"

    async def run(self) -> None:
        """Forget resources whose plugins were removed permanently, until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            self._ends.clear()
            at = self.state.expires_at()
            if self._listen_error:
                again = loop.time() + LISTEN_AGAIN_S
                at = again if at is None else min(at, again)
            if not await wait_until(self._ends, at):
                if self._listen_error:
                    await self.listen()
                removed = self.state.expire(loop.time())
                if not removed:
                    continue
                log.info(
                    "resources of device plugins forgotten", extra={"resources": list(removed)}
                )
                for name in removed:
                    if not self.state.concerns(name):
                        self._problems.pop(name, None)
                        self._prepares.pop(name, None)
                self.file.write_soon()
                self.report.forgotten(removed)

    async def close(self) -> None:
        """Disconnect from the plugins; pods keep what they have."""
        if self._server is not None:
            await self._server.close()
        await cancel_tasks(self._watches.values())
        await self._lasting.close()
        for plugin in self.current.values():
            await plugin.close()

    async def _register(self, data: bytes) -> bytes:
        """Answer a RegisterRequest."""
        from kubeletpy.remote.generated import deviceplugin_pb2 as pb

        request = parsed(pb.RegisterRequest, data)
        resource = request.resource_name
        try:
            check_version([request.version])
            check_resource(resource)
            self._check_resource_limit(resource)
            self.metrics.registrations.labels(resource).inc()
            await self.register(resource, plugin_socket(self.directory, request.endpoint))
        except RegistrationRefused as error:
            log.warning(
                "device plugin not registered",
                extra={"resource": resource[:320], "why": str(error)},
            )
            raise CallRefused(Code.UNKNOWN, str(error)) from None
        return b""  # the message Empty

    async def register(self, resource: str, socket: str) -> None:
        """Use this plugin, and no other, for its resource. Raises RegistrationRefused."""
        check_resource(resource)
        self._check_resource_limit(resource)
        mine = self._newest[resource] = object()
        try:
            plugin = await connected(self.open_plugin, resource, socket)
        except (PluginCallFailed, EndpointError) as error:
            raise RegistrationRefused(str(error)) from None
        finally:
            newest = self._newest.get(resource) is mine
            if newest:
                del self._newest[resource]
        if not newest:
            await plugin.close()
            raise RegistrationRefused(
                f"another device plugin of {resource} has registered meanwhile"
            )
        before = self.current.get(resource)
        self.current[resource] = plugin
        self._prepares[resource] = plugin.pre_start
        self._problems.pop(resource, None)
        self.state.started(resource)
        self._ends.set()
        log.info("device plugin registered", extra={"resource": resource, "socket": socket})
        self._watches[plugin] = asyncio.create_task(
            self._watch(plugin), name=f"device plugin {resource}"
        )
        if before is not None:
            await self._stop_watching(before)

    def _check_resource_limit(self, resource: str) -> None:
        """Raise RegistrationRefused when the node has too many resources for another one.

        Those of plugins that have stopped count until they are forgotten: the node shows them.
        """
        known = self.current.keys() | self.state.resources.keys() | self._newest.keys()
        if resource not in known and len(known) >= MAX_RESOURCES:
            raise RegistrationRefused(
                f"this node has device plugins of {MAX_RESOURCES} resources already, those that "
                "stopped in the last five minutes included; none is added"
            )

    async def deregister(self, resource: str, socket: str) -> None:
        """Stop following the plugin at this socket, unless another has its resource."""
        plugin = self.current.get(resource)
        if plugin is not None and plugin.socket == socket:
            await self._stop_watching(plugin)

    async def _stop_watching(self, plugin: DevicePlugin) -> None:
        await cancel_tasks((self._watches.get(plugin),))

    async def _watch(self, plugin: DevicePlugin) -> None:
        """Follow a plugin's devices to its end."""
        loop = asyncio.get_running_loop()
        why = "it has ended the stream of its devices"
        try:
            async for devices in plugin.lists():
                if self.current.get(plugin.resource) is not plugin:
                    break
                taken_in = loop.time()
                if not await self._take_in(plugin, devices):
                    break
                await asyncio.sleep(max(0.0, taken_in + PACE_S - loop.time()))
        except (PluginCallFailed, PluginAnswer) as error:
            why = str(error)
        except asyncio.CancelledError:
            why = "it was let go"
            raise
        except Exception:  # a plugin's fault must not leave its devices on offer
            log.exception(
                "unexpected answer of a device plugin", extra={"resource": plugin.resource}
            )
            why = "internal error"
        finally:
            del self._watches[plugin]
            if self.current.get(plugin.resource) is plugin:
                del self.current[plugin.resource]
                self.state.stopped(plugin.resource, loop.time())
                self._problems[plugin.resource] = why
                self._ends.set()
                log.warning(
                    "device plugin has stopped: none of its devices can be given",
                    extra={"resource": plugin.resource, "why": why},
                )
                self.report.report_soon()
            await self._lasting.finish(plugin.close())

    async def _take_in(self, plugin: DevicePlugin, devices: tuple[PluginDevice, ...]) -> bool:
        """Take in a plugin's list, a long one in a thread.

        Returns False if another plugin has its resource.
        """
        name = plugin.resource
        known = self.state.resources.get(name)
        many = len(devices) > MANY_DEVICES or (known and len(known.listed) > MANY_DEVICES)
        if many:
            listing = await asyncio.to_thread(compare, known, devices)
            if self.current.get(name) is not plugin:
                return False
        else:
            listing = compare(known, devices)
        owners = self.state.take_in(name, listing)
        self.listed()
        for uid in owners:
            self.pod_changed(uid)
        if listing.changed:
            self.file.write_soon()
            self.report.report_soon()
        if many:  # nobody else has the old list, and to free it takes time, too
            await asyncio.to_thread(listing.before.clear)
        return True

    async def before_start(self, holder: DeviceHolder) -> None:
        """Have the plugin prepare the devices of a container, if it requires that.

        Raises:
            ContainerConfigError: it can't.
        """
        plugin = self.current.get(holder.resource)
        booking = self.state.bookings.get(holder)
        if booking is None or not self._prepares.get(holder.resource):
            return
        if plugin is None:
            raise ContainerConfigError(
                f"device plugin of {holder.resource} requires a call before a container starts, "
                f"but it has stopped: {self._problems.get(holder.resource, '')}"
            )
        try:
            await plugin.before_start(sorted(booking.ids))
        except PluginCallFailed as error:
            raise ContainerConfigError(
                f"device plugin PreStartContainer rpc failed with err: {error}"
            ) from None


class DevicePluginHandler(Component):
    """Handles plugins of type DevicePlugin, whose sockets are in plugins_registry."""

    devices: DevicePlugins

    def validate(self, info: PluginInfo) -> None:
        """Raise PluginRefused when this plugin cannot be used."""
        try:
            check_version(info.versions)
            check_resource(info.name)
        except RegistrationRefused as error:
            raise PluginRefused(f"device plugin {info.name}: {error}") from None

    async def register(self, info: PluginInfo) -> None:
        """Offer a plugin's devices from now on. Raises PluginRefused."""
        await self.devices.register(info.name, info.endpoint)

    async def deregister(self, info: PluginInfo) -> None:
        """Stop offering a plugin's devices, unless another one has the resource."""
        await self.devices.deregister(info.name, info.endpoint)
