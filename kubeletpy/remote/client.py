"""The CRI client: both services of a runtime over gRPC, as one object.

It makes calls and reports how they went. Must never retry, cache or decide: its users do.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from kubeletpy.metrics.trace.model import NO_TRACER, Tracer
from kubeletpy.remote import errors, verify
from kubeletpy.remote.calls import CallMetrics, NoMetrics, RemoteServices, ServiceCalls
from kubeletpy.remote.connection import GrpcChannel, Listener, dial_target
from kubeletpy.remote.generated import api_pb2 as cri
from kubeletpy.remote.lists import PodSelectors, RemoteLists
from kubeletpy.remote.protocol import RuntimeService

log = logging.getLogger(__name__)


class RemoteRuntime(RemoteLists, RemoteServices):
    """remote.protocol.RuntimeService and ImageService of the runtime behind a unix socket.

    Make it inside a running event loop; it dials at once, in the background. ``connect`` waits for
    the runtime and checks that it speaks CRI v1; ``close`` ends it. ``image_endpoint`` is the
    socket of the image service if that is another process. ``request_timeout`` is
    runtimeRequestTimeout in seconds. ``pod_selectors`` are those of :class:`RemoteLists`. Calls are
    sent to ``tracer`` as spans. Raises EndpointError for an invalid endpoint.
    """

    def __init__(
        self,
        endpoint: str,
        *,
        image_endpoint: str = "",
        request_timeout: float = errors.DEFAULT_REQUEST_TIMEOUT,
        metrics: CallMetrics | None = None,
        pod_selectors: PodSelectors | None = None,
        tracer: Tracer = NO_TRACER,
    ) -> None:
        apart = bool(image_endpoint) and dial_target(image_endpoint) != dial_target(endpoint)
        metrics = metrics or NoMetrics()
        self.connection = GrpcChannel(endpoint)
        self.image_connection = GrpcChannel(image_endpoint) if apart else self.connection
        runtime = ServiceCalls(self.connection, "RuntimeService", metrics, request_timeout, tracer)
        images = ServiceCalls(
            self.image_connection, "ImageService", metrics, request_timeout, tracer
        )
        RemoteServices.__init__(self, runtime, images, metrics)
        RemoteLists.__init__(self, runtime, pod_selectors)

    @property
    def ready(self) -> bool:
        """Whether both endpoints are connected now."""
        return self.connection.ready and self.image_connection.ready

    def add_listener(self, listener: Listener) -> None:
        """Have ``listener`` called when the runtime's endpoint is lost (False) or back (True)."""
        self.connection.add_listener(listener)

    async def wait_ready(self) -> None:
        """Return when both endpoints are connected, at once if they are."""
        await self.connection.wait_ready()
        await self.image_connection.wait_ready()

    async def wait_lost(self) -> None:
        """Return when the runtime's endpoint is not connected, at once if it is not."""
        await self.connection.wait_lost()

    async def connect(self, timeout: float | None = None) -> cri.VersionResponse:
        """Wait for the runtime and check that both services speak CRI v1; what the runtime is.

        ``timeout`` in seconds, by default the request timeout. Raises Unavailable when nothing
        listens by then, IncompatibleRuntime when something else does, CRIError for everything else.
        """
        for connection in (self.connection, self.image_connection):
            await _wait_for(connection, timeout or self._calls.request_timeout)
        try:
            answer = await self.version()
        except errors.Unimplemented as error:
            raise _foreign(self.connection, "RuntimeService", error) from error
        if answer.runtime_api_version != verify.API_VERSION:
            raise errors.IncompatibleRuntime(
                "Version",
                f"{answer.runtime_name} {answer.runtime_version} speaks CRI "
                f"{answer.runtime_api_version}, we speak {verify.API_VERSION}: upgrade the runtime",
                target=self.connection.endpoint,
            )
        try:
            await self.image_fs_info()
        except errors.Unimplemented as error:
            raise _foreign(self.image_connection, "ImageService", error) from error
        except errors.CRIError as error:
            # The service is there; that it can't measure its disk yet is no reason not to start.
            log.warning("image filesystem unknown", extra={"error": str(error)})
        return answer

    async def close(self) -> None:
        """Close both connections; calls in flight end with Cancelled. Idempotent."""
        await self.connection.close()
        await self.image_connection.close()


async def _wait_for(connection: GrpcChannel, timeout: float) -> None:
    """Wait until something listens at an endpoint. Raises Unavailable after ``timeout`` seconds."""
    try:
        async with asyncio.timeout(timeout):
            await connection.wait_ready()
    except TimeoutError:
        raise errors.Unavailable(
            "Version",
            f"no container runtime answers after {timeout:g} s: is it running, and is this its "
            "socket?",
            target=connection.endpoint,
        ) from None


def _foreign(
    connection: GrpcChannel, service: str, error: errors.CRIError
) -> errors.IncompatibleRuntime:
    """The error for a listener without that service."""
    return errors.IncompatibleRuntime(
        error.method,
        f"it does not offer runtime.v1.{service} ({error.details}): is this a CRI v1 runtime, and "
        "is its CRI plugin enabled?",
        target=connection.endpoint,
    )


# The runtime's configuration, which is queried when the agent starts

TRIES = 3
PAUSE = 2.0
"""Seconds between two attempts."""


async def cgroup_driver(
    runtime: RuntimeService, losing_support: Callable[[], None] = lambda: None
) -> str | None:
    """Return the runtime's cgroup driver, "systemd" or "cgroupfs", or None if it reports none.

    A runtime without the call (containerd before 2.0) or without a Linux answer does not report
    it: then KubeletConfiguration's cgroupDriver stands. If the call is missing, ``losing_support``
    is called: future kubelets will not start with such a runtime. Other failures are tried TRIES
    times (as the kubelet does); raises the last CRIError.
    """
    tries = 0
    while True:
        try:
            answer = await runtime.runtime_config()
            break
        except errors.Unimplemented:
            losing_support()
            return None
        except errors.CRIError:
            tries += 1
            if tries == TRIES:
                raise
        await asyncio.sleep(PAUSE)
    if not answer.HasField("linux"):
        return None
    return "systemd" if answer.linux.cgroup_driver == cri.CgroupDriver.SYSTEMD else "cgroupfs"
