"""The bounded calls to one device plugin, and its answers as data.

A plugin is an untrusted peer behind a socket: it may be slow, silent or wrong, and must not hold up
anything else. The messages are loaded with the first plugin.
Source: docs/reference/device-plugin-v1beta1.json; docs/reference/behaviour-resources.md, rn, ro.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Iterable
from itertools import islice
from typing import TYPE_CHECKING, TypeVar

from google.protobuf.message import Message

from kubeletpy.base.structs import Component
from kubeletpy.remote.plugin_calls import PluginCallFailed, PluginCalls
from kubeletpy.resources.devices.model import PluginDevice, RegistrationRefused

if TYPE_CHECKING:
    from kubeletpy.remote.generated import deviceplugin_pb2 as pb

Answer = TypeVar("Answer", bound=Message)

CONNECT_S, OPTIONS_S = 10.0, 10.0
PRE_START_S = 30.0
PREFERRED_S, ALLOCATE_S = 30.0, 300.0
"""The kubelet waits without end, and with it all pods of the node; here one pod waits."""
MAX_ANSWER = 4 << 20
"""Bytes; what gRPC in Go takes."""
MAX_DEVICES, MAX_ID = 100_000, 1024
"""Devices per resource, and characters of an id."""
MAX_ADDITIONS = 1024
"""Variables, mounts, device nodes, annotations, and CDI devices of one container, of each."""
MANY_DEVICES = 500
"""A longer list is processed in a thread."""


class PluginAnswer(Exception):
    """A plugin's answer can't be used; the text contains the reason."""


OpenPlugin = Callable[[str, str], PluginCalls]
"""Opens the calls to a plugin, by its socket's path and resource. Raises EndpointError."""


def over_socket(socket: str, resource: str) -> PluginCalls:
    """Call a plugin over its socket. Raises EndpointError."""
    from kubeletpy.remote.generated import deviceplugin_pb2 as pb

    service = pb.DESCRIPTOR.services_by_name["DevicePlugin"]
    return PluginCalls(socket, service, f"device plugin {resource}", MAX_ANSWER)


class DevicePlugin(Component):
    """A registered plugin. Two of one resource are never equal."""

    resource: str
    socket: str
    calls: PluginCalls

    def __post_init__(self) -> None:
        self.prefers = False
        """It requires a call for its preferred devices."""
        self.pre_start = False
        """It requires a call before each start of a container."""

    async def connect(self) -> None:
        """Connect and read its options. Raises PluginCallFailed, RegistrationRefused."""
        from kubeletpy.remote.generated import deviceplugin_pb2 as pb

        await self.calls.connect(CONNECT_S)
        try:
            options = await self.calls.call(
                "GetDevicePluginOptions", pb.Empty(), pb.DevicePluginOptions, OPTIONS_S
            )
        except PluginCallFailed as error:
            raise RegistrationRefused(f"failed to get device plugin options: {error}") from None
        self.prefers = options.get_preferred_allocation_available
        self.pre_start = options.pre_start_required

    async def lists(self) -> AsyncIterator[tuple[PluginDevice, ...]]:
        """Yield all of its devices each time it sends them.

        Raises PluginCallFailed, PluginAnswer.
        """
        from kubeletpy.remote.generated import deviceplugin_pb2 as pb

        stream = self.calls.stream("ListAndWatch", pb.Empty(), pb.ListAndWatchResponse)
        async for message in stream:
            if len(message.devices) <= MANY_DEVICES:
                yield read_devices(message.devices)
            else:
                yield await asyncio.to_thread(read_devices, message.devices)

    async def preferred(
        self, available: Collection[str], must_include: Collection[str], size: int
    ) -> tuple[str, ...]:
        """Return the devices that the plugin prefers. Raises PluginCallFailed."""
        from kubeletpy.remote.generated import deviceplugin_pb2 as pb

        of_container = pb.ContainerPreferredAllocationRequest(
            available_deviceIDs=sorted(available),
            must_include_deviceIDs=sorted(must_include),
            allocation_size=size,
        )
        request = pb.PreferredAllocationRequest(container_requests=[of_container])
        answer = await self.calls.call(
            "GetPreferredAllocation", request, pb.PreferredAllocationResponse, PREFERRED_S
        )
        responses = answer.container_responses
        return tuple(islice(responses[0].deviceIDs, MAX_DEVICES)) if responses else ()

    async def allocate(self, ids: Iterable[str]) -> bytes:
        """Allocate these devices and return the plugin's ContainerAllocateResponse.

        Raises PluginCallFailed, PluginAnswer.
        """
        from kubeletpy.remote.generated import deviceplugin_pb2 as pb

        of_container = pb.ContainerAllocateRequest(devices_ids=ids)
        request = pb.AllocateRequest(container_requests=[of_container])
        answer = await self.calls.call("Allocate", request, pb.AllocateResponse, ALLOCATE_S)
        if not answer.container_responses:
            raise PluginAnswer("no containers return in allocation response")
        response = answer.container_responses[0]
        for field in ("envs", "mounts", "devices", "annotations", "cdi_devices"):
            if (number := len(getattr(response, field))) > MAX_ADDITIONS:
                raise PluginAnswer(
                    f"device plugin {self.resource}: Allocate gives {number} {field}, more than "
                    f"{MAX_ADDITIONS}; the container cannot start"
                )
        return response.SerializeToString(deterministic=True)

    async def before_start(self, ids: Iterable[str]) -> None:
        """Have the plugin prepare devices for a container's start. Raises PluginCallFailed."""
        from kubeletpy.remote.generated import deviceplugin_pb2 as pb

        request = pb.PreStartContainerRequest(devices_ids=ids)
        answer = pb.PreStartContainerResponse
        await self.calls.call("PreStartContainer", request, answer, PRE_START_S)

    async def close(self) -> None:
        """Disconnect; calls in progress fail."""
        await self.calls.close()


def read_devices(listed: Collection[pb.Device]) -> tuple[PluginDevice, ...]:
    """Return the devices in a plugin's list. Raises PluginAnswer."""
    if len(listed) > MAX_DEVICES:
        raise PluginAnswer(f"it lists {len(listed)} devices, more than {MAX_DEVICES}")
    found = []
    for each in listed:
        if not each.ID or len(each.ID) > MAX_ID:
            raise PluginAnswer(f"it lists a device without an id of 1 to {MAX_ID} characters")
        nodes = sorted({node.ID for node in each.topology.nodes if 0 <= node.ID < 1024})
        found.append(PluginDevice(each.ID, each.health, tuple(nodes)))
    return tuple(found)


async def connected(open_plugin: OpenPlugin, resource: str, socket: str) -> DevicePlugin:
    """Connect to a plugin and read its options.

    Raises PluginCallFailed, EndpointError, RegistrationRefused.
    """
    plugin = DevicePlugin(resource, socket, open_plugin(socket, resource))
    try:
        await plugin.connect()
    except BaseException:
        await plugin.close()
        raise
    return plugin
