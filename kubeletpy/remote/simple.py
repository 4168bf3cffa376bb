"""Bases of a program's own runtime: one that answers no call, one that lacks only processes.

A subclass of :class:`PartialRuntime` overrides the calls that it supports. :class:`SimpleRuntime`
remembers sandboxes and containers and answers the CRI's questions about them; its subclass starts a
container, waits for its end and sends it signals.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import time
import uuid
from abc import abstractmethod
from collections.abc import AsyncIterator, Coroutine, Sequence
from pathlib import Path
from typing import Any, TypeVar

from kubeletpy.base.structs import Struct, field
from kubeletpy.base.tasks import background, cancel_tasks, until_one_ends, wait_within
from kubeletpy.remote import errors
from kubeletpy.remote.generated import api_pb2 as cri
from kubeletpy.remote.protocol import ImageService, RuntimeService, missing
from kubeletpy.remote.streams import ForwardSession, ProcessSession, ProcessStreams, StreamOutput
from kubeletpy.remote.verify import lets_through


class PartialRuntime(RuntimeService, ImageService):
    """Both services of :mod:`kubeletpy.remote.protocol`; a subclass overrides what it can do.

    Every call answers Unimplemented, except those with one obvious answer. Streamed lists are the
    plain lists in pieces, a runtime that answers is ready, and the node's addresses passed to it
    may be ignored.

    An agent needs at least ``version``, ``list_pod_sandbox``, ``pod_sandbox_status``,
    ``run_pod_sandbox``, ``stop_pod_sandbox``, ``remove_pod_sandbox``, and the same of containers
    with ``create_container`` and ``start_container``. Exits take effect within a second without
    ``get_container_events``, and at once with it.
    """

    # -- runtime service ------------------------------------------------------------

    async def stream_pod_sandboxes(
        self, filter: cri.PodSandboxFilter | None = None
    ) -> AsyncIterator[cri.PodSandbox]:
        """list_pod_sandbox, one by one."""
        for each in await self.list_pod_sandbox(filter):
            yield each

    async def stream_containers(
        self, filter: cri.ContainerFilter | None = None
    ) -> AsyncIterator[cri.Container]:
        """list_containers, one by one."""
        for each in await self.list_containers(filter):
            yield each

    async def list_container_stats(
        self, filter: cri.ContainerStatsFilter | None = None
    ) -> Sequence[cri.ContainerStats]:
        """Return nothing, as no container is measured."""
        return ()

    async def stream_container_stats(
        self, filter: cri.ContainerStatsFilter | None = None
    ) -> AsyncIterator[cri.ContainerStats]:
        """list_container_stats, one by one."""
        for each in await self.list_container_stats(filter):
            yield each

    async def list_pod_sandbox_stats(
        self, filter: cri.PodSandboxStatsFilter | None = None
    ) -> Sequence[cri.PodSandboxStats]:
        """Return nothing, as no sandbox is measured."""
        return ()

    async def stream_pod_sandbox_stats(
        self, filter: cri.PodSandboxStatsFilter | None = None
    ) -> AsyncIterator[cri.PodSandboxStats]:
        """list_pod_sandbox_stats, one by one."""
        for each in await self.list_pod_sandbox_stats(filter):
            yield each

    async def update_runtime_config(self, runtime_config: cri.RuntimeConfig) -> None:
        """Ignored: pods get no addresses from the range."""
        return

    async def status(self, verbose: bool = False) -> cri.StatusResponse:
        """Report the runtime and its network as ready, since it answers."""
        ready = [
            cri.RuntimeCondition(type=f"{each}Ready", status=True)
            for each in ("Runtime", "Network")
        ]
        return cri.StatusResponse(status=cri.RuntimeStatus(conditions=ready))

    async def get_container_events(self) -> AsyncIterator[cri.ContainerEventResponse]:
        """Override it as an asynchronous generator."""
        raise missing("GetContainerEvents")
        yield cri.ContainerEventResponse()

    async def list_metric_descriptors(self) -> Sequence[cri.MetricDescriptor]:
        """Return no descriptors, as there are no metrics."""
        return ()

    async def list_pod_sandbox_metrics(self) -> Sequence[cri.PodSandboxMetrics]:
        """Return no metrics, as no sandbox is measured."""
        return ()

    async def stream_pod_sandbox_metrics(self) -> AsyncIterator[cri.PodSandboxMetrics]:
        """list_pod_sandbox_metrics, one by one."""
        for each in await self.list_pod_sandbox_metrics():
            yield each

    async def update_pod_sandbox_resources(
        self,
        pod_sandbox_id: str,
        overhead: cri.LinuxContainerResources | None,
        resources: cri.LinuxContainerResources | None,
    ) -> None:
        """Ignored: it is a notification."""
        return

    # -- image service ------------------------------------------------------------

    async def list_images(self, filter: cri.ImageFilter | None = None) -> Sequence[cri.Image]:
        """Return no images, as none are kept."""
        return ()

    async def stream_images(
        self, filter: cri.ImageFilter | None = None
    ) -> AsyncIterator[cri.Image]:
        """list_images, one by one."""
        for each in await self.list_images(filter):
            yield each

    async def image_status(
        self, image: cri.ImageSpec, verbose: bool = False
    ) -> cri.ImageStatusResponse:
        """Every image is there, as for a runtime that has none."""
        found = cri.Image(id=image.image, repo_tags=[image.image], size=1)
        return cri.ImageStatusResponse(image=found)

    async def pull_image(
        self,
        image: cri.ImageSpec,
        auth: cri.AuthConfig | None = None,
        sandbox_config: cri.PodSandboxConfig | None = None,
    ) -> str:
        """Every image is there already."""
        return image.image

    async def remove_image(self, image: cri.ImageSpec) -> None:
        """There is nothing to remove."""
        return

    async def image_fs_info(self) -> cri.ImageFsInfoResponse:
        """Return no filesystems, as no images are kept."""
        return cri.ImageFsInfoResponse()


log = logging.getLogger(__name__)

T = TypeVar("T")

KILLED = 137
"""The exit code of what SIGKILL has ended, such as the commands in a container that ends."""
MOST_OUTPUT = 1 << 20
"""Bytes of a probe's or hook's stdout or stderr; more are discarded."""
MOST_EVENTS = 1000
"""Exits that were not fetched yet; more are left to the agent's next relist."""


def _id() -> str:
    return uuid.uuid4().hex


def _reported(it: Sandbox | Container) -> dict[str, Any]:
    """The fields that all messages about a sandbox or container share."""
    return {
        "id": it.id,
        "metadata": it.config.metadata,
        "labels": it.config.labels,
        "annotations": it.config.annotations,
        "state": it.state,
        "created_at": it.created_at,
    }


class Sandbox(Struct, eq=False):
    """The sandbox of a pod.

    Attributes:
        config: as the agent requested it: the pod's name, namespace, uid, labels, log directory.
        state: SANDBOX_READY or SANDBOX_NOTREADY.
        created_at: in Unix nanoseconds.
    """

    config: cri.PodSandboxConfig
    id: str = field(default_factory=_id)
    state: cri.PodSandboxState = cri.SANDBOX_READY
    created_at: int = field(default_factory=time.time_ns)
    _ended: asyncio.Event = field(default_factory=asyncio.Event)


class Container(Struct, eq=False):
    """One run of a container.

    Attributes:
        config: as the agent requested it: command, args, envs, mounts, labels.
        state: CONTAINER_CREATED, CONTAINER_RUNNING or CONTAINER_EXITED.
        created_at, started_at, finished_at: in Unix nanoseconds; 0: not yet.
        exit_code: once it has exited.
    """

    config: cri.ContainerConfig
    sandbox: Sandbox
    id: str = field(default_factory=_id)
    state: cri.ContainerState = cri.CONTAINER_CREATED
    created_at: int = field(default_factory=time.time_ns)
    started_at: int = 0
    finished_at: int = 0
    exit_code: int = 0
    _ended: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def name(self) -> str:
        """The container's name in its pod."""
        return self.config.metadata.name

    @property
    def log_path(self) -> Path:
        """Its log, made when it starts; ``kubectl logs`` reads it, :func:`log_line` writes it."""
        return Path(self.sandbox.config.log_directory, self.config.log_path)


def log_line(text: bytes, stream: str = "stdout") -> bytes:
    """A line of output, ending in a newline, in the CRI's log format: with the time of now."""
    now_ns = time.time_ns()
    when = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now_ns // 10**9))
    return f"{when}.{now_ns % 10**9:09}Z {stream} F ".encode() + text


class SimpleRuntime(PartialRuntime):
    """Both CRI services, without images and pod networks. ``name`` is shown in the Node object.

    A subclass implements :meth:`launch`, :meth:`result` and :meth:`send`. It may implement
    :meth:`exec_in`, :meth:`attach_to` and :meth:`forward_to`, which are canceled when the client
    disconnects or the container ends. All its other methods are those of :class:`PartialRuntime`.
    """

    name = "simple"

    def __init__(self) -> None:
        self.sandboxes: dict[str, Sandbox] = {}
        """Sandboxes by id."""
        self.containers: dict[str, Container] = {}
        """Containers by id; also those that have exited, until the agent removes them."""
        self._exits: asyncio.Queue[Container] = asyncio.Queue(MOST_EVENTS)
        self._followers: set[asyncio.Task[None]] = set()

    @abstractmethod
    async def launch(self, container: Container) -> None:
        """Start a container. Raises CRIError if that is impossible; the agent tries again."""

    @abstractmethod
    async def result(self, container: Container) -> int:
        """Wait for the end of a container that was launched; its exit code, 0 to 255.

        An exception counts as exit code 255.
        """

    @abstractmethod
    def send(self, container: Container, signum: int) -> None:
        """Send a running container SIGTERM or SIGKILL; nothing if it has just exited."""

    async def exec_in(
        self, container: Container, command: Sequence[str], client: ProcessStreams
    ) -> int:
        """Run a command in a running container, also for probes and hooks; its exit code.

        Raises CRIError, whose text the client gets, if the command can't be started.
        """
        raise errors.Unimplemented("Exec", "this runtime runs no commands in containers (exec_in)")

    async def attach_to(self, container: Container, client: ProcessStreams) -> int:
        """Connect a client to a running container, until the end of either; its exit code."""
        raise errors.Unimplemented(
            "Attach", "this runtime attaches no clients to containers (attach_to)"
        )

    async def forward_to(
        self, sandbox: Sandbox, port: int, reader: asyncio.StreamReader, writer: StreamOutput
    ) -> None:
        """Carry a connection to a port of a pod: read what the client sends, write the answers.

        Raises CRIError or OSError, whose text the client gets, if nothing listens.
        """
        raise errors.Unimplemented("PortForward", "this runtime forwards no ports (forward_to)")

    async def close(self) -> None:
        """Stop all pods at once."""
        for sandbox_id in list(self.sandboxes):
            await self.stop_pod_sandbox(sandbox_id)
        await cancel_tasks(self._followers)

    # -- the runtime service -------------------------------------------------------------------

    async def version(self) -> cri.VersionResponse:
        return cri.VersionResponse(
            version="0.1.0",
            runtime_name=self.name,
            runtime_version="1.0.0",
            runtime_api_version="v1",
        )

    async def run_pod_sandbox(self, config: cri.PodSandboxConfig, runtime_handler: str) -> str:
        sandbox = Sandbox(config)
        self.sandboxes[sandbox.id] = sandbox
        return sandbox.id

    async def stop_pod_sandbox(self, pod_sandbox_id: str) -> None:
        for each in [c for c in self.containers.values() if c.sandbox.id == pod_sandbox_id]:
            await self.stop_container(each.id, 0)
        if pod_sandbox_id in self.sandboxes:
            self.sandboxes[pod_sandbox_id].state = cri.SANDBOX_NOTREADY
            self.sandboxes[pod_sandbox_id]._ended.set()

    async def remove_pod_sandbox(self, pod_sandbox_id: str) -> None:
        await self.stop_pod_sandbox(pod_sandbox_id)
        for each in [c for c in self.containers.values() if c.sandbox.id == pod_sandbox_id]:
            del self.containers[each.id]
        self.sandboxes.pop(pod_sandbox_id, None)

    async def list_pod_sandbox(
        self, filter: cri.PodSandboxFilter | None = None
    ) -> Sequence[cri.PodSandbox]:
        every = [cri.PodSandbox(**_reported(each)) for each in self.sandboxes.values()]
        return [each for each in every if lets_through(filter, each)]

    async def pod_sandbox_status(
        self, pod_sandbox_id: str, verbose: bool = False
    ) -> cri.PodSandboxStatusResponse:
        sandbox = self._sandbox("PodSandboxStatus", pod_sandbox_id)
        return cri.PodSandboxStatusResponse(status=self._sandbox_status(sandbox))

    async def create_container(
        self, pod_sandbox_id: str, config: cri.ContainerConfig, sandbox_config: cri.PodSandboxConfig
    ) -> str:
        container = Container(config, self._sandbox("CreateContainer", pod_sandbox_id))
        self.containers[container.id] = container
        return container.id

    async def start_container(self, container_id: str) -> None:
        container = self._container("StartContainer", container_id)
        if container.state != cri.CONTAINER_CREATED:
            raise errors.FailedPrecondition("StartContainer", "started before", target=container_id)
        if container.config.log_path:
            container.log_path.parent.mkdir(parents=True, exist_ok=True)
            container.log_path.touch(mode=0o640)
        await self.launch(container)
        container.state, container.started_at = cri.CONTAINER_RUNNING, time.time_ns()
        follower = asyncio.create_task(self._follow(container))
        self._followers.add(follower)
        follower.add_done_callback(self._followers.discard)

    async def stop_container(self, container_id: str, timeout: int) -> None:
        container = self.containers.get(container_id)
        if container is None or container.state != cri.CONTAINER_RUNNING:
            return
        if timeout > 0:
            self.send(container, signal.SIGTERM)
            await wait_within(container._ended, timeout)
        if not container._ended.is_set():
            self.send(container, signal.SIGKILL)
            await container._ended.wait()

    async def remove_container(self, container_id: str) -> None:
        await self.stop_container(container_id, 0)
        self.containers.pop(container_id, None)

    async def reopen_container_log(self, container_id: str) -> None:
        """Begin a new log, as the agent has renamed the old one: those who write open it anew."""
        self._container("ReopenContainerLog", container_id).log_path.touch(mode=0o640)

    async def list_containers(
        self, filter: cri.ContainerFilter | None = None
    ) -> Sequence[cri.Container]:
        every = [
            cri.Container(
                **_reported(each),
                pod_sandbox_id=each.sandbox.id,
                image=each.config.image,
                image_ref=each.config.image.image,
            )
            for each in self.containers.values()
        ]
        return [each for each in every if lets_through(filter, each)]

    async def container_status(
        self, container_id: str, verbose: bool = False
    ) -> cri.ContainerStatusResponse:
        container = self._container("ContainerStatus", container_id)
        return cri.ContainerStatusResponse(status=self._container_status(container))

    async def exec_sync(
        self, container_id: str, cmd: Sequence[str], timeout: float
    ) -> cri.ExecSyncResponse:
        container, nothing = self._running("ExecSync", container_id), asyncio.StreamReader()
        nothing.feed_eof()
        stdout, stderr = bytearray(), bytearray()
        client = ProcessStreams(nothing, _collected(stdout), _collected(stderr))
        try:
            async with asyncio.timeout(timeout or None) as deadline:
                code = await _until(container._ended, self.exec_in(container, tuple(cmd), client))
        except errors.CRIError:
            raise
        except Exception as error:
            if deadline.expired():
                why = f"the command did not end within {timeout:g} s"
                raise errors.DeadlineExceeded("ExecSync", why, target=container_id) from None
            log.exception("a command can't be run", extra={"container": container.name})
            raise errors.Internal(
                "ExecSync", f"exec_in failed: {error!r}", target=container_id
            ) from error
        return cri.ExecSyncResponse(
            stdout=bytes(stdout), stderr=bytes(stderr), exit_code=KILLED if code is None else code
        )

    async def exec(self, request: cri.ExecRequest) -> ProcessSession:
        container, command = self._running("Exec", request.container_id), tuple(request.cmd)

        async def run(client: ProcessStreams) -> int:
            code = await _until(container._ended, self.exec_in(container, command, client))
            return KILLED if code is None else code

        return ProcessSession(run, request.tty)

    async def attach(self, request: cri.AttachRequest) -> ProcessSession:
        container = self._running("Attach", request.container_id)

        async def run(client: ProcessStreams) -> int:
            code = await _until(container._ended, self.attach_to(container, client))
            return container.exit_code if code is None else code

        return ProcessSession(run, request.tty)

    async def port_forward(self, request: cri.PortForwardRequest) -> ForwardSession:
        sandbox = self._sandbox("PortForward", request.pod_sandbox_id)

        async def connect(port: int, reader: asyncio.StreamReader, writer: StreamOutput) -> None:
            await _until(sandbox._ended, self.forward_to(sandbox, port, reader, writer))

        return ForwardSession(connect, tuple(request.port))

    async def get_container_events(self) -> AsyncIterator[cri.ContainerEventResponse]:
        while True:
            exited = await self._exits.get()
            if exited.sandbox.id not in self.sandboxes:
                continue
            mates = [c for c in self.containers.values() if c.sandbox is exited.sandbox]
            yield cri.ContainerEventResponse(
                container_id=exited.id,
                container_event_type=cri.CONTAINER_STOPPED_EVENT,
                created_at=exited.finished_at,
                pod_sandbox_status=self._sandbox_status(exited.sandbox),
                containers_statuses=map(self._container_status, mates),
            )

    # -- inside ----------------------------------------------------------------------------------

    async def _follow(self, container: Container) -> None:
        container.exit_code = 255
        try:
            container.exit_code = await self.result(container)
        except Exception:  # a subclass's own; the agent restarts the container
            log.exception("a container's result is not known", extra={"container": container.name})
        finally:
            container.state, container.finished_at = cri.CONTAINER_EXITED, time.time_ns()
            container._ended.set()
            if not self._exits.full():
                self._exits.put_nowait(container)

    def _sandbox(self, method: str, sandbox_id: str) -> Sandbox:
        sandbox = self.sandboxes.get(sandbox_id)
        if sandbox is None:
            raise errors.NotFound(method, "no such sandbox", target=sandbox_id)
        return sandbox

    def _container(self, method: str, container_id: str) -> Container:
        container = self.containers.get(container_id)
        if container is None:
            raise errors.NotFound(method, "no such container", target=container_id)
        return container

    def _running(self, method: str, container_id: str) -> Container:
        container = self._container(method, container_id)
        if container.state != cri.CONTAINER_RUNNING:
            raise errors.FailedPrecondition(
                method, "the container does not run", target=container_id
            )
        return container

    def _sandbox_status(self, sandbox: Sandbox) -> cri.PodSandboxStatus:
        network = cri.PodSandboxNetworkStatus(ip="127.0.0.1")
        return cri.PodSandboxStatus(**_reported(sandbox), network=network)

    def _container_status(self, container: Container) -> cri.ContainerStatus:
        ended = container.state == cri.CONTAINER_EXITED
        return cri.ContainerStatus(
            **_reported(container),
            started_at=container.started_at,
            finished_at=container.finished_at,
            exit_code=container.exit_code,
            reason=("Error" if container.exit_code else "Completed") if ended else "",
            image=container.config.image,
            image_ref=container.config.image.image,
            log_path=str(container.log_path),
        )


async def _until(ended: asyncio.Event, work: Coroutine[Any, Any, T]) -> T | None:
    """The result of ``work``, or None if it was canceled because of ``ended``."""
    async with background(work) as working, background(ended.wait()) as waiting:
        await until_one_ends(working, waiting)
        return await working if working.done() else None


def _collected(into: bytearray) -> StreamOutput:
    async def send(data: bytes) -> None:
        into.extend(data[: MOST_OUTPUT - len(into)])

    return StreamOutput(send)
