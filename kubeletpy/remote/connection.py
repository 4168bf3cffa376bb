"""One gRPC channel to a runtime's socket, and whether the other end is there.

The channel reconnects by itself, with backoff. A watcher follows its state, so that the loss of the
runtime is known when it happens and not at the next call. Must never retry a call: what a lost call
has done is for the caller to find out.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import socket
import struct
from collections.abc import Callable
from typing import Any
from urllib.parse import quote, unquote

import grpc
import grpc.aio
from google.protobuf.descriptor import ServiceDescriptor
from google.protobuf.message_factory import GetMessageClass

from kubeletpy.base.structs import Component
from kubeletpy.base.tasks import cancel_tasks

log = logging.getLogger(__name__)
_INIT = 1

# Endpoints

MAX_SOCKET_PATH = 107
"""Maximum bytes of a unix socket's path on Linux (sun_path without the terminating zero)."""


class EndpointError(ValueError):
    """An endpoint that can't be a CRI runtime's socket."""


def socket_path(endpoint: str) -> str:
    """Return the absolute path of the socket that ``endpoint`` names, without touching it.

    Accepts ``unix:///run/containerd/containerd.sock``, ``unix:/run/…`` and the plain path. Raises
    EndpointError for everything else: CRI runtimes listen on unix sockets, and there is no TLS
    here that would make a network endpoint safe.
    """
    scheme, colon, rest = endpoint.partition(":")
    if endpoint.startswith("/"):
        path = endpoint
    elif colon and scheme == "unix":
        path = unquote(rest.removeprefix("//"))
    elif colon:
        raise EndpointError(
            f"container runtime endpoint {endpoint!r}: {scheme}: is not supported; "
            "give the runtime's unix socket, such as unix:///run/containerd/containerd.sock"
        )
    else:
        raise EndpointError(
            f"container runtime endpoint {endpoint!r}: give the socket's absolute path, "
            "such as unix:///run/containerd/containerd.sock"
        )
    if not path.startswith("/") or "\0" in path:
        raise EndpointError(
            f"container runtime endpoint {endpoint!r}: the socket's path must be absolute; "
            "mind the third slash of unix:///"
        )
    if len(os.fsencode(path)) > MAX_SOCKET_PATH:
        raise EndpointError(
            f"container runtime endpoint {endpoint!r}: the path is longer than the "
            f"{MAX_SOCKET_PATH} bytes that a unix socket may have"
        )
    return path


def dial_target(endpoint: str) -> str:
    """Return the gRPC target of ``endpoint``. Raises EndpointError."""
    return "unix:" + quote(socket_path(endpoint), safe="/")


def listening_process(path: str) -> int:
    """Return the process that listens on a unix socket; 0: unknown, or init holds the socket."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.settimeout(1.0)
        try:
            client.connect(path)
            credentials = client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        except OSError:
            return 0
    pid = int(struct.unpack("iII", credentials)[0])
    return 0 if pid == _INIT else pid


# The channel

MAX_RECEIVE = 16 * 1024 * 1024
"""Bytes of the largest answer we accept: the kubelet's own limit, and what containerd is willing to
send. An answer is read in one piece on the event loop; larger lists come in parts
(:class:`kubeletpy.remote.lists.RemoteLists`).
"""

MAX_OUTPUT = 4 * 1024 * 1024
"""Bytes of the largest answer of ExecSync, most of which is the output of a container's command. An
answer is read, parsed and copied on the event loop, and ten of 16 MiB came at once; of a probe's
output 10 KiB are kept."""

MAX_EVENT = 64 * 1024
"""Bytes of the largest task event; an exit has some 200."""

_LIMITS = {
    "methodConfig": [
        {"name": [{"service": service, "method": method}], "maxResponseMessageBytes": limit}
        for service, method, limit in (
            ("runtime.v1.RuntimeService", "ExecSync", MAX_OUTPUT),
            ("containerd.services.events.v1.Events", "Subscribe", MAX_EVENT),
        )
    ]
}

OPTIONS: tuple[tuple[str, int | str], ...] = (
    ("grpc.default_authority", "localhost"),
    ("grpc.max_receive_message_length", MAX_RECEIVE),
    ("grpc.service_config", json.dumps(_LIMITS)),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 3000),
    # gRPC core treats "min" as the time that one connection attempt may take.
    ("grpc.min_reconnect_backoff_ms", 5000),
    # One subchannel per channel: two agents of one process must not share backoff and state.
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_http_proxy", 0),
    # Never drop an idle connection: its end is how we learn that the runtime went away.
    ("grpc.client_idle_timeout_ms", 2**31 - 1),
    # Only the caller can decide whether a call may be made twice.
    ("grpc.enable_retries", 0),
)

Listener = Callable[[bool], None]
"""Called with True when the runtime is (again) reachable, with False when it is lost."""


class GrpcChannel(Component):
    """A channel to one endpoint. Make it inside a running event loop; ``close`` it there.

    Raises EndpointError for an invalid endpoint.
    """

    endpoint: str

    def __post_init__(self) -> None:
        self.channel = grpc.aio.insecure_channel(dial_target(self.endpoint), options=list(OPTIONS))
        self.closed = False
        self._ready = asyncio.Event()
        self._lost = asyncio.Event()
        self._lost.set()
        self._was_ready = False
        self._listeners: list[Listener] = []
        self._watcher = asyncio.create_task(self._watch(), name=f"cri connection {self.endpoint}")

    @property
    def ready(self) -> bool:
        """Whether the runtime is connected now."""
        return self._ready.is_set()

    def add_listener(self, listener: Listener) -> None:
        """Have ``listener`` called on every change from now on; it must not block or raise."""
        self._listeners.append(listener)

    async def wait_ready(self) -> None:
        """Return when the runtime is connected, at once if it is."""
        await self._ready.wait()

    async def wait_lost(self) -> None:
        """Return when the runtime is not connected, at once if it is not."""
        await self._lost.wait()

    async def close(self) -> None:
        """Close the channel; calls in flight end with Cancelled. Idempotent."""
        if self.closed:
            return
        self.closed = True
        await cancel_tasks((self._watcher,))
        await self.channel.close(None)
        self._publish(False)

    async def _watch(self) -> None:
        """Follow the channel's state, and keep it connecting."""
        while True:
            state = self.channel.get_state(try_to_connect=True)
            if state is grpc.ChannelConnectivity.SHUTDOWN:
                return
            self._publish(state is grpc.ChannelConnectivity.READY)
            await self.channel.wait_for_state_change(state)

    def _publish(self, ready: bool) -> None:
        if ready == self._ready.is_set():
            return
        extra = {"endpoint": self.endpoint}
        if ready:
            self._lost.clear()
            self._ready.set()
            if self._was_ready:
                log.info("container runtime is back", extra=extra)
            self._was_ready = True
        else:
            self._ready.clear()
            self._lost.set()
            if not self.closed:
                log.warning("container runtime lost, reconnecting", extra=extra)
        for listener in self._listeners:
            listener(ready)


# Calls over a channel


def cancellation_requested() -> bool:
    """Whether cancellation of the running task was requested.

    gRPC also cancels calls when their channel is closed. A canceled task keeps the frames that it
    left: a frame of theirs that refers to the task is a cycle with it, so it is looked up here.
    """
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def stubs(channel: grpc.aio.Channel, service: ServiceDescriptor) -> dict[str, Any]:
    """Return a callable for each method of a service, from its descriptor; answers are bytes."""
    made: dict[str, Any] = {}
    for method in service.methods:
        make = channel.unary_stream if method.server_streaming else channel.unary_unary
        made[method.name] = make(
            f"/{service.full_name}/{method.name}",
            request_serializer=GetMessageClass(method.input_type).SerializeToString,
            response_deserializer=None,
        )
    return made
