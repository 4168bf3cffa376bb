"""kubeletpy as a library: an agent, or parts of one, inside your own program.

This module is the public interface, with ``kubeletpy_up.api`` (the embedded API). Everything in
``__all__`` keeps its signature, or changes with a line in CHANGELOG.md. Everything else in the
package may change without notice. Described in docs/library.md; ``examples/`` shows it at work.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Self

from kubeletpy.agent.agent import Agent
from kubeletpy.agent.launch import LaunchError, run_agent
from kubeletpy.agent.launch.embed import Parts, embed, guest_config
from kubeletpy.base.api.types import JSON
from kubeletpy.base.tasks import background, cancel_tasks, until_one_ends
from kubeletpy.config import ConfigError, LoadedConfig
from kubeletpy.kubeapi.client import KubeClient
from kubeletpy.kubeapi.errors import ApiError
from kubeletpy.kubeapi.kubeconfig import KubeconfigError
from kubeletpy.kubeapi.protocol import Call, KubeApi, PatchType, Resource, WatchEvent
from kubeletpy.node.facts import node_name
from kubeletpy.node.node_manager import NodeManager
from kubeletpy.remote.errors import (
    AlreadyExists,
    CRIError,
    DeadlineExceeded,
    FailedPrecondition,
    InvalidArgument,
    NotFound,
    Unavailable,
    Unimplemented,
)
from kubeletpy.remote.generated import api_pb2 as cri
from kubeletpy.remote.protocol import ImageService, RuntimeService
from kubeletpy.remote.simple import Container, PartialRuntime, Sandbox, SimpleRuntime, log_line
from kubeletpy.remote.streams import ForwardSession, ProcessSession, ProcessStreams, StreamOutput
from kubeletpy.remote.verify import lets_through
from kubeletpy.server.build import KubeletServer
from kubeletpy.syncloop.sources.file import PodSource, Show

__all__ = [
    "JSON",
    "AlreadyExists",
    "ApiError",
    "CRIError",
    "Call",
    "ConfigError",
    "Container",
    "DeadlineExceeded",
    "FailedPrecondition",
    "ForwardSession",
    "ImageService",
    "InvalidArgument",
    "KubeApi",
    "KubeClient",
    "KubeconfigError",
    "LaunchError",
    "LoadedConfig",
    "NodeAgent",
    "NotFound",
    "PartialRuntime",
    "PatchType",
    "PodSource",
    "ProcessSession",
    "ProcessStreams",
    "Resource",
    "RuntimeService",
    "Sandbox",
    "Show",
    "SimpleRuntime",
    "StreamOutput",
    "Unavailable",
    "Unimplemented",
    "WatchEvent",
    "cri",
    "guest_config",
    "lets_through",
    "log_line",
    "run_agent",
]


class NodeAgent:
    """A node agent inside this program, with a runtime of the program's own.

    It runs on the current event loop, in one task, from :meth:`start` to :meth:`stop`, or inside
    ``async with``. It takes the machine as a guest: it changes no kernel setting, reads no node
    pressure, and listens on no socket but the server's port, if the configuration enables that.
    Once stopped it can't be started again; another one with the same root directory continues where
    it stopped. Containers outlive it, as far as the runtime keeps them.
    """

    def __init__(
        self,
        config: LoadedConfig,
        *,
        runtime: RuntimeService,
        images: ImageService,
        api: KubeApi | None = None,
        pod_sources: Sequence[PodSource] = (),
        mounts: bool = True,
    ) -> None:
        """Nothing happens before :meth:`start`.

        Args:
            config: such as :func:`guest_config` makes it.
            runtime: runs the pods; a :class:`PartialRuntime` is both services.
            images: the runtime's images.
            api: the cluster's API; None: that of the configuration's kubeconfig, if it has one.
                The program closes it, after the agent has stopped.
            pod_sources: where static pods come from, besides the configuration's sources.
            mounts: volumes in memory and subPaths are mounts where the kernel allows that. False:
                they are directories and paths, so that a killed program leaves no mount behind.
        """
        self._config = config
        self._parts = Parts(runtime, images, api, pod_sources, mounts)
        self._stack = AsyncExitStack()
        self._agent: Agent | None = None
        self._running: asyncio.Task[None] | None = None

    @property
    def node_name(self) -> str:
        """The name of the Node object."""
        return node_name(self._config.node, "")

    async def start(self) -> None:
        """Start it; returns once it runs, which is before the node is registered.

        Raises:
            ConfigError, KubeconfigError: the configuration can't work here.
            LaunchError: the runtime does not answer, or the root directory can't be used.
            ValueError: the name of a source of pods is not its own.
            RuntimeError: it was started before.
        """
        if self._running is not None:
            raise RuntimeError("this agent was started before: make another one")
        try:
            self._agent = await embed(self._config, self._parts, self._stack)
        except BaseException:
            await self._stack.aclose()
            raise
        self._running = asyncio.create_task(self._agent.run(), name=f"agent {self.node_name}")

    async def registered(self, within: float = 30.0) -> None:
        """Wait until the API has this node; at once without an API.

        Args:
            within: seconds.

        Raises:
            TimeoutError: it is not registered by then; the log states why.
            RuntimeError: the agent does not run.
            Exception: what ended the agent meanwhile.
        """
        if self._agent is None or self._running is None:
            raise RuntimeError("this agent does not run: start it first")
        manager = self._agent.find(NodeManager)
        if manager is None:
            return
        async with background(manager.registered.wait()) as waiting, asyncio.timeout(within):
            await until_one_ends(waiting, self._running)
        if not manager.registered.is_set():
            await self.wait()

    def explain(self, namespace: str, name: str) -> str | None:
        """Return what ``kubeletpy explain`` prints about a pod; None: the node has no such pod.

        Raises RuntimeError: the agent does not run, or has no server (``guest_config``).
        """
        from kubeletpy.observe.explain import render  # the first use loads it, no start

        server = self._agent.find(KubeletServer) if self._agent is not None else None
        if server is None or server.explained is None:
            raise RuntimeError("this agent does not run, or has no server")
        found = server.explained.pod(namespace, name)
        return render.pod(found) if found is not None else None

    async def wait(self) -> None:
        """Wait until it ends, by :meth:`stop` or by itself.

        Raises:
            RuntimeError: the agent does not run.
            Exception: what ended it; an ExceptionGroup if several tasks failed.
        """
        if self._running is None:
            raise RuntimeError("this agent does not run: start it first")
        await asyncio.wait({self._running})
        if not self._running.cancelled():
            self._running.result()

    async def stop(self) -> None:
        """Stop it, within about 3 s; containers go on. May be called more than once.

        Raises:
            Exception: what had ended it before.
        """
        running = self._running
        if running is None:
            return
        try:
            await cancel_tasks((running,))
        finally:
            await self._stack.aclose()
        with contextlib.suppress(asyncio.CancelledError):
            running.result()

    async def __aenter__(self) -> Self:
        """Start it."""
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop it."""
        await self.stop()
