"""A small CRI runtime: a real gRPC server on a Unix socket with the answers of a test."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from kubeletpy.remote.generated import api_pb2 as cri

RUNTIME = "RuntimeService"
IMAGES = "ImageService"


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
            service = cri.DESCRIPTOR.services_by_name[name]
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
