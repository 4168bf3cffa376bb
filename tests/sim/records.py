"""Sandboxes and containers that the simulated runtime remembers, and how CRI shows them."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from kubeletpy.remote.generated import api_pb2 as cri
from kubeletpy.runtime_manager.names import POD_UID, RESTART_COUNT
from tests.kit.virtual_time import LoopClock
from tests.sim.scripts import Script, image_id

BILLION = 10**9


def now_ns() -> int:
    """Unix nanoseconds of the node's wall clock."""
    return int(LoopClock().now() * BILLION)


@dataclass(slots=True, eq=False)
class Sandbox:
    """One pod sandbox."""

    id: str
    config: cri.PodSandboxConfig
    ip: str
    created_at: int
    ready: bool = True

    @property
    def number(self) -> int:
        """Higher is newer, however the clock was set."""
        return int(self.id[1:])

    @property
    def uid(self) -> str:
        """Uid of its pod."""
        return self.config.metadata.uid

    @property
    def name(self) -> str:
        """The name that the runtime keeps reserved for it."""
        meta = self.config.metadata
        return f"{meta.name}_{meta.namespace}_{meta.uid}_{meta.attempt}"

    def item(self) -> cri.PodSandbox:
        """The sandbox as ListPodSandbox returns it."""
        return cri.PodSandbox(
            id=self.id,
            metadata=self.config.metadata,
            state=cri.SANDBOX_READY if self.ready else cri.SANDBOX_NOTREADY,
            created_at=self.created_at,
            labels=self.config.labels,
            annotations=self.config.annotations,
        )

    def status(self) -> cri.PodSandboxStatus:
        """The sandbox as PodSandboxStatus returns it."""
        namespaces = self.config.linux.security_context.namespace_options
        status = cri.PodSandboxStatus(
            id=self.id,
            metadata=self.config.metadata,
            state=cri.SANDBOX_READY if self.ready else cri.SANDBOX_NOTREADY,
            created_at=self.created_at,
            network=cri.PodSandboxNetworkStatus(ip=self.ip if self.ready else ""),
            labels=self.config.labels,
            annotations=self.config.annotations,
        )
        status.linux.namespaces.options.CopyFrom(namespaces)
        return status


@dataclass(slots=True, eq=False)
class Container:
    """One container, alive or dead."""

    id: str
    sandbox: Sandbox
    config: cri.ContainerConfig
    image: str
    script: Script
    created_at: int
    state: cri.ContainerState = cri.CONTAINER_CREATED
    started_at: int = 0
    finished_at: int = 0
    exit_code: int = 0
    reason: str = ""
    message: str = ""
    abandoned: bool = False
    """Its start was canceled together with the agent that requested it."""
    stuck: bool = False
    """Its canceled start left a task behind: it cannot be removed while its sandbox is up."""
    busy: bool = False
    """Being started or removed."""
    term_sent: bool = False
    stop_asked: bool = False
    """The runtime got a request to stop or remove it."""
    memory_used: int = 1 << 20
    tells_resources: bool = False
    """Its status contains its limits, as those of containerd 2 do."""
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    timer: asyncio.TimerHandle | None = None

    @property
    def number(self) -> int:
        """Higher is newer, however the clock was set."""
        return int(self.id[1:])

    @property
    def uid(self) -> str:
        """Uid of its pod."""
        return str(self.config.labels.get(POD_UID, ""))

    @property
    def name(self) -> str:
        """The container's name in its pod."""
        return self.config.metadata.name

    @property
    def attempt(self) -> int:
        """Number of earlier attempts."""
        return self.config.metadata.attempt

    @property
    def restarts(self) -> int:
        """Number of earlier runs, as its annotation records."""
        return int(self.config.annotations[RESTART_COUNT])

    @property
    def reserved(self) -> str:
        """The name that the runtime keeps reserved for it."""
        return f"{self.name}_{self.uid}_{self.attempt}"

    @property
    def running(self) -> bool:
        """Whether its process runs."""
        return bool(self.state == cri.CONTAINER_RUNNING)

    def __str__(self) -> str:
        return f"{self.id} {self.name}#{self.attempt} of {self.uid[:8]}"

    def item(self) -> cri.Container:
        """The container as ListContainers returns it."""
        return cri.Container(
            id=self.id,
            pod_sandbox_id=self.sandbox.id,
            metadata=self.config.metadata,
            image=self.config.image,
            image_ref=image_id(self.image),
            state=self.state,
            created_at=self.created_at,
            labels=self.config.labels,
            annotations=self.config.annotations,
        )

    def status(self) -> cri.ContainerStatus:
        """The container as ContainerStatus returns it."""
        status = cri.ContainerStatus(
            id=self.id,
            metadata=self.config.metadata,
            state=self.state,
            created_at=self.created_at,
            started_at=self.started_at,
            finished_at=self.finished_at,
            exit_code=self.exit_code,
            image=cri.ImageSpec(image=self.image),
            image_ref=image_id(self.image),
            reason=self.reason,
            message=self.message,
            labels=self.config.labels,
            annotations=self.config.annotations,
            mounts=self.config.mounts,
            log_path=f"{self.sandbox.config.log_directory}/{self.config.log_path}",
        )
        if self.tells_resources:
            status.resources.linux.CopyFrom(self.config.linux.resources)
        return status


def matches(labels: object, selector: object) -> bool:
    """Whether labels fulfil an equality selector."""
    have, want = dict(labels), dict(selector)  # type: ignore[call-overload]
    return all(have.get(key) == value for key, value in want.items())
