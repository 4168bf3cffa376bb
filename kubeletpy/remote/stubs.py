"""Callables for the methods of a gRPC service, made from its descriptor. Must never make a call."""

from __future__ import annotations

from typing import Any

import grpc.aio
from google.protobuf.descriptor import ServiceDescriptor
from google.protobuf.message_factory import GetMessageClass


def stubs(channel: grpc.aio.Channel, service: ServiceDescriptor) -> dict[str, Any]:
    """A callable for each method of a service; answers come as bytes."""
    made: dict[str, Any] = {}
    for method in service.methods:
        make = channel.unary_stream if method.server_streaming else channel.unary_unary
        made[method.name] = make(
            f"/{service.full_name}/{method.name}",
            request_serializer=GetMessageClass(method.input_type).SerializeToString,
            response_deserializer=None,
        )
    return made
