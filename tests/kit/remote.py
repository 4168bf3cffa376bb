"""A small CRI runtime on a Unix socket, and each call of the client with impossible answers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
from google.protobuf.descriptor import FieldDescriptor, MethodDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from kubeletpy.remote.client import RemoteRuntime
from kubeletpy.remote.generated import api_pb2 as cri
from kubeletpy.remote.generated import snapshots_pb2, task_events_pb2

RUNTIME = "RuntimeService"
IMAGES = "ImageService"
EVENTS = "Events"
"""containerd's task events."""
SNAPSHOTS = "Snapshots"
_OTHERS = {EVENTS: task_events_pb2, SNAPSHOTS: snapshots_pb2}


def version(_request: Any, _context: Any) -> cri.VersionResponse:
    """A runtime that speaks CRI v1."""
    return cri.VersionResponse(
        version="0.1.0", runtime_name="fake", runtime_version="1.2.3", runtime_api_version="v1"
    )


class FakeServer:
    """Serves ``answers`` (method name -> handler(request, context), plain, async or generator)."""

    def __init__(
        self, socket: Path, answers: dict[str, Callable[..., Any]], services: tuple[str, ...]
    ) -> None:
        self.socket = socket
        self.endpoint = f"unix://{socket}"
        self.requests: list[tuple[str, Any]] = []
        self.contexts: list[Any] = []
        self.answers = answers
        self._services = services
        self._server: Any = None

    async def start(self) -> FakeServer:
        """Listen; may be called again after ``stop``."""
        self._server = grpc.aio.server()
        for name in self._services:
            service = _OTHERS.get(name, cri).DESCRIPTOR.services_by_name[name]
            handlers = {m.name: self._handler(m) for m in service.methods if self._has(m.name)}
            generic = grpc.method_handlers_generic_handler(service.full_name, handlers)
            self._server.add_generic_rpc_handlers((generic,))
        self._server.add_insecure_port(self.endpoint)
        await self._server.start()
        return self

    async def stop(self) -> None:
        """Vanish, at once."""
        await self._server.stop(None)

    def _has(self, method: str) -> bool:
        return method in self.answers

    def _handler(self, method: Any) -> grpc.RpcMethodHandler[Any, Any]:
        answer = self.answers[method.name]

        async def unary(request: Any, context: Any) -> Any:
            self.requests.append((method.name, request))
            self.contexts.append(context)
            result = answer(request, context)
            return await result if hasattr(result, "__await__") else result

        async def stream(request: Any, context: Any) -> Any:
            self.requests.append((method.name, request))
            async for item in answer(request, context):
                yield item

        make = grpc.unary_unary_rpc_method_handler
        if method.server_streaming:
            make = grpc.unary_stream_rpc_method_handler
        return make(
            stream if method.server_streaming else unary,
            request_deserializer=GetMessageClass(method.input_type).FromString,
            response_serializer=_serialized,
        )


def _serialized(answer: Message | bytes) -> bytes:
    """The bytes to send: of a message, or as the test wrote them."""
    return answer if isinstance(answer, bytes) else answer.SerializeToString()


Call = Callable[[RemoteRuntime], Awaitable[Any] | AsyncIterator[Any]]

_IMAGE = cri.ImageSpec(image="registry.example/app:1")
_POD = cri.PodSandboxConfig(metadata=cri.PodSandboxMetadata(name="web", namespace="shop"))
_MAIN = cri.ContainerConfig(metadata=cri.ContainerMetadata(name="main"))

CALLS: dict[str, Call] = {
    "Version": lambda r: r.version(),
    "RunPodSandbox": lambda r: r.run_pod_sandbox(_POD, ""),
    "StopPodSandbox": lambda r: r.stop_pod_sandbox("s"),
    "RemovePodSandbox": lambda r: r.remove_pod_sandbox("s"),
    "PodSandboxStatus": lambda r: r.pod_sandbox_status("s"),
    "ListPodSandbox": lambda r: r.list_pod_sandbox(),
    "StreamPodSandboxes": lambda r: r.stream_pod_sandboxes(),
    "CreateContainer": lambda r: r.create_container("s", _MAIN, _POD),
    "StartContainer": lambda r: r.start_container("c"),
    "StopContainer": lambda r: r.stop_container("c", 1),
    "RemoveContainer": lambda r: r.remove_container("c"),
    "ListContainers": lambda r: r.list_containers(),
    "StreamContainers": lambda r: r.stream_containers(),
    "ContainerStatus": lambda r: r.container_status("c"),
    "UpdateContainerResources": lambda r: r.update_container_resources(
        "c", cri.LinuxContainerResources()
    ),
    "ReopenContainerLog": lambda r: r.reopen_container_log("c"),
    "ExecSync": lambda r: r.exec_sync("c", ["true"], 1),
    "Exec": lambda r: r.exec(cri.ExecRequest(container_id="c")),
    "Attach": lambda r: r.attach(cri.AttachRequest(container_id="c")),
    "PortForward": lambda r: r.port_forward(cri.PortForwardRequest(pod_sandbox_id="s")),
    "ContainerStats": lambda r: r.container_stats("c"),
    "ListContainerStats": lambda r: r.list_container_stats(),
    "StreamContainerStats": lambda r: r.stream_container_stats(),
    "PodSandboxStats": lambda r: r.pod_sandbox_stats("s"),
    "ListPodSandboxStats": lambda r: r.list_pod_sandbox_stats(),
    "StreamPodSandboxStats": lambda r: r.stream_pod_sandbox_stats(),
    "UpdateRuntimeConfig": lambda r: r.update_runtime_config(cri.RuntimeConfig()),
    "Status": lambda r: r.status(),
    "CheckpointContainer": lambda r: r.checkpoint_container("c", "/tmp/x"),
    "GetContainerEvents": lambda r: r.get_container_events(),
    "ListMetricDescriptors": lambda r: r.list_metric_descriptors(),
    "ListPodSandboxMetrics": lambda r: r.list_pod_sandbox_metrics(),
    "StreamPodSandboxMetrics": lambda r: r.stream_pod_sandbox_metrics(),
    "RuntimeConfig": lambda r: r.runtime_config(),
    "UpdatePodSandboxResources": lambda r: r.update_pod_sandbox_resources("s", None, None),
    "ListImages": lambda r: r.list_images(),
    "StreamImages": lambda r: r.stream_images(),
    "ImageStatus": lambda r: r.image_status(_IMAGE),
    "PullImage": lambda r: r.pull_image(_IMAGE),
    "RemoveImage": lambda r: r.remove_image(_IMAGE),
    "ImageFsInfo": lambda r: r.image_fs_info(),
}


NEVER_CALLED = frozenset(
    {
        "CheckpointPod",
        "RestorePod",
        "PullSecurityProfile",
        "ListSecurityProfiles",
        "RemoveSecurityProfile",
    }
)
"""Calls of the CRI of 1.37 that no kubelet makes yet, and those of 1.38.0-beta.0."""


def methods() -> dict[str, MethodDescriptor]:
    """The methods of both services of the CRI that a kubelet calls, by name."""
    services = cri.DESCRIPTOR.services_by_name.values()
    found = {method.name: method for service in services for method in service.methods}
    return {name: method for name, method in found.items() if name not in NEVER_CALLED}


async def outcome(call: Awaitable[Any] | AsyncIterator[Any]) -> Any:
    """The answer of a call, or the list of answers of a stream."""
    if isinstance(call, Awaitable):
        return await call
    return [each async for each in call]


_EXTREMES: dict[int, tuple[Any, Any]] = {
    FieldDescriptor.CPPTYPE_INT32: (-(2**31), 2**31 - 1),
    FieldDescriptor.CPPTYPE_INT64: (-(2**63), 2**63 - 1),
    FieldDescriptor.CPPTYPE_UINT32: (0, 2**32 - 1),
    FieldDescriptor.CPPTYPE_UINT64: (0, 2**64 - 1),
    FieldDescriptor.CPPTYPE_DOUBLE: (float("-inf"), float("nan")),
    FieldDescriptor.CPPTYPE_FLOAT: (float("-inf"), float("nan")),
    FieldDescriptor.CPPTYPE_BOOL: (False, True),
    FieldDescriptor.CPPTYPE_ENUM: (-(2**31), 2**31 - 1),
    FieldDescriptor.CPPTYPE_STRING: ("", "\x00\x1b[2J\u202e" + "x" * 70_000),
}


def _sub(message: Message, field: Any) -> Any:
    """An empty value of a field that is a message or a list of them."""
    value = getattr(type(message)(), field.name)
    return value.add() if field.is_repeated else value


def extreme(kind: type[Message], high: bool, depth: int = 0) -> Any:
    """A message with every field at the end of its range; lists have one item twice."""
    made = kind()
    for field in made.DESCRIPTOR.fields:
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            if field.message_type.fields_by_name["value"].type == FieldDescriptor.TYPE_STRING:
                getattr(made, field.name)["k"] = _EXTREMES[FieldDescriptor.CPPTYPE_STRING][high]
        elif field.message_type is not None:
            if depth == 8:
                continue
            value = extreme(type(_sub(made, field)), high, depth + 1)
            if field.is_repeated:
                getattr(made, field.name).extend([value, value])
            else:
                getattr(made, field.name).CopyFrom(value)
        else:
            plain = _EXTREMES[field.cpp_type][high]
            if field.type == FieldDescriptor.TYPE_BYTES:
                plain = plain.encode()
            if field.is_repeated:
                getattr(made, field.name).extend([plain, plain])
            else:
                setattr(made, field.name, plain)
    return made
