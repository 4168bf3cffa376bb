"""Run the device plugin for tests alone, until it is ended.

It registers whenever kubelet.sock is created. Its devices are in ``devices.json`` in its directory
(id -> health), read again when they change; ``calls`` there has a line for each call.
"""

from __future__ import annotations

import argparse
import json
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
from google.protobuf.message_factory import GetMessageClass

from kubeletpy.remote.generated import deviceplugin_pb2 as pb

SERVICE = pb.DESCRIPTOR.services_by_name["DevicePlugin"]
CHECK_S = 0.1


class Plugin:
    """The service DevicePlugin."""

    def __init__(self, directory: Path, resource: str, cdi: str, device: str) -> None:
        self._directory = directory
        self._resource = resource
        self._cdi = cdi
        self._device = device
        self.ended = threading.Event()

    def _note(self, call: str, ids: Any) -> None:
        with (self._directory / "calls").open("a") as calls:
            calls.write(f"{call} {','.join(sorted(ids))}\n")

    def devices(self) -> dict[str, str]:
        """Its devices, as they are now."""
        read: dict[str, str] = json.loads((self._directory / "devices.json").read_text())
        return read

    def GetDevicePluginOptions(self, request: pb.Empty, context: Any) -> pb.DevicePluginOptions:
        return pb.DevicePluginOptions(
            pre_start_required=True, get_preferred_allocation_available=True
        )

    def ListAndWatch(self, request: pb.Empty, context: Any) -> Iterator[pb.ListAndWatchResponse]:
        reported: dict[str, str] | None = None
        while context.is_active() and not self.ended.wait(CHECK_S if reported is not None else 0):
            if (now := self.devices()) != reported:
                reported = now
                topology = pb.TopologyInfo(nodes=[pb.NUMANode(ID=0)])
                listed = [pb.Device(ID=i, health=h, topology=topology) for i, h in now.items()]
                yield pb.ListAndWatchResponse(devices=listed)

    def GetPreferredAllocation(
        self, request: pb.PreferredAllocationRequest, context: Any
    ) -> pb.PreferredAllocationResponse:
        answers = []
        for each in request.container_requests:
            last = sorted(each.available_deviceIDs)[-each.allocation_size :]
            answers.append(pb.ContainerPreferredAllocationResponse(deviceIDs=last))
        return pb.PreferredAllocationResponse(container_responses=answers)

    def Allocate(self, request: pb.AllocateRequest, context: Any) -> pb.AllocateResponse:
        answers = []
        for each in request.container_requests:
            self._note("Allocate", each.devices_ids)
            ids = sorted(each.devices_ids)
            mount = pb.Mount(
                container_path="/from-plugin", host_path=str(self._directory), read_only=True
            )
            answers.append(
                pb.ContainerAllocateResponse(
                    envs={"DEVICES": ",".join(ids), "FROM": "plugin"},
                    mounts=[mount],
                    devices=[
                        pb.DeviceSpec(
                            container_path=f"/dev/{each}", host_path=self._device, permissions="rw"
                        )
                        for each in ids
                    ],
                    annotations={"devices.example/ids": ",".join(ids)},
                    cdi_devices=[pb.CDIDevice(name=self._cdi)] if self._cdi else [],
                )
            )
        return pb.AllocateResponse(container_responses=answers)

    def PreStartContainer(
        self, request: pb.PreStartContainerRequest, context: Any
    ) -> pb.PreStartContainerResponse:
        self._note("PreStartContainer", request.devices_ids)
        return pb.PreStartContainerResponse()


def serve(plugin: Plugin, socket: Path) -> grpc.Server:
    """Serve a plugin on a socket."""
    server = grpc.server(ThreadPoolExecutor(8))
    methods = {}
    for method in SERVICE.methods:
        make = grpc.unary_unary_rpc_method_handler
        if method.server_streaming:
            make = grpc.unary_stream_rpc_method_handler
        methods[method.name] = make(
            getattr(plugin, method.name),
            request_deserializer=GetMessageClass(method.input_type).FromString,
            response_serializer=GetMessageClass(method.output_type).SerializeToString,
        )
    handler = grpc.method_handlers_generic_handler(SERVICE.full_name, methods)
    server.add_generic_rpc_handlers((handler,))
    server.add_insecure_port(f"unix:{socket}")
    server.start()
    return server


def register(kubelet: Path, resource: str, endpoint: str) -> None:
    """Register with the agent. Raises grpc.RpcError."""
    with grpc.insecure_channel(f"unix:{kubelet}") as channel:
        call = channel.unary_unary(
            "/v1beta1.Registration/Register",
            request_serializer=pb.RegisterRequest.SerializeToString,
            response_deserializer=pb.Empty.FromString,
        )
        request = pb.RegisterRequest(version="v1beta1", endpoint=endpoint, resource_name=resource)
        call(request, timeout=10)


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path, help="directory of devices.json and calls")
    parser.add_argument("--sockets", type=Path, required=True, help="device-plugins of the agent")
    parser.add_argument("--resource", default="test.example/dev")
    parser.add_argument("--endpoint", default="test-plugin.sock", help="name of its socket")
    parser.add_argument("--cdi", default="", help="a CDI name that each container gets")
    parser.add_argument("--device", default="/dev/null", help="the device that each is")
    supplied = parser.parse_args()
    plugin = Plugin(supplied.directory, supplied.resource, supplied.cdi, supplied.device)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, frame: plugin.ended.set())
    kubelet, socket = supplied.sockets / "kubelet.sock", supplied.sockets / supplied.endpoint
    server: grpc.Server | None = None
    registered: tuple[int, int] | None = None
    while not plugin.ended.wait(CHECK_S):
        try:
            found = kubelet.stat()
            if registered == (found.st_ino, found.st_mtime_ns):
                continue
            if server is not None:
                server.stop(0)
            socket.unlink(missing_ok=True)
            server = serve(plugin, socket)
            register(kubelet, supplied.resource, socket.name)
            registered = (found.st_ino, found.st_mtime_ns)
        except (OSError, grpc.RpcError):
            time.sleep(CHECK_S)
    if server is not None:
        server.stop(0)
    socket.unlink(missing_ok=True)


if __name__ == "__main__":
    main()
