"""The runtime's report about a pod, as immutable data: the other half of every decision.

Built from CRI responses by :mod:`kubeletpy.runtime_manager`; times are Unix nanoseconds, the CRI's
unit, 0 when unknown. Must never hold a connection, a clock or anything mutable.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from functools import cached_property

from kubeletpy.base.structs import Struct, field


class ContainerState(StrEnum):
    """CRI ContainerState."""

    CREATED = "created"
    RUNNING = "running"
    EXITED = "exited"
    UNKNOWN = "unknown"


class RuntimeUser(Struct, frozen=True):
    """The Linux identity of a container's first process, where the runtime reports it."""

    uid: int
    gid: int
    supplemental_groups: tuple[int, ...] = ()


class RuntimeResources(Struct, frozen=True):
    """The limits that the runtime enforces (CRI LinuxContainerResources); None: not reported."""

    cpu_shares: int | None = None
    cpu_quota: int | None = None
    cpu_period: int | None = None
    memory_limit_bytes: int | None = None


class ContainerStatus(Struct, frozen=True):
    """One container record of the runtime, running or dead."""

    id: str
    name: str
    state: ContainerState
    sandbox_id: str = ""
    created_at: int = 0
    started_at: int = 0
    finished_at: int = 0
    exit_code: int = 0
    reason: str = ""
    message: str = ""
    """The runtime's message joined with the termination message (file or log tail)."""
    image: str = ""
    image_id: str = ""
    image_ref: str = ""
    hash: str = ""
    """Annotation io.kubernetes.container.hash; empty when the container has none."""
    restart_count: int = 0
    attempt: int = 0
    """Part of its name in the runtime: more than ``restart_count`` where a name was taken."""
    log_path: str = ""
    user: RuntimeUser | None = None
    resources: RuntimeResources | None = None

    @property
    def running(self) -> bool:
        """Whether its process runs."""
        return self.state is ContainerState.RUNNING

    @property
    def rank(self) -> tuple[int, int]:
        """Higher is newer, among records of one name. Dates lie once the clock was put back."""
        return self.restart_count, self.created_at


class SandboxStatus(Struct, frozen=True):
    """One pod sandbox record of the runtime."""

    id: str
    ready: bool
    attempt: int = 0
    created_at: int = 0
    host_network: bool = False
    has_network: bool = True
    """Whether the runtime reported a network block."""
    ips: tuple[str, ...] = ()
    runtime_handler: str = ""
    source: str = ""
    """Annotation kubernetes.io/config.source: where the pod came from."""

    @property
    def rank(self) -> tuple[int, int]:
        """Higher is newer, among those of one pod. Dates lie once the clock was put back."""
        return self.attempt, self.created_at


class PodRuntimeStatus(Struct, frozen=True, dict=True):
    """Everything that the runtime has of one pod.

    ``observed_at`` is a lower bound, in nanoseconds of the event loop's clock: just before the
    runtime was queried, or when its event was sent. The status observed later wins, even if the
    wall clock was set meanwhile.
    """

    uid: str
    name: str
    namespace: str
    sandboxes: tuple[SandboxStatus, ...] = ()
    """Newest first."""
    containers: tuple[ContainerStatus, ...] = ()
    """The newest of each name first."""
    ips: tuple[str, ...] = ()
    """Those of the newest ready sandbox; kept while a pod terminates."""
    observed_at: int = 0
    labels: Mapping[str, str] = field(default_factory=dict)

    def newest(self, name: str) -> ContainerStatus | None:
        """The newest record with that container name."""
        return self._newest.get(name)

    @cached_property
    def _newest(self) -> Mapping[str, ContainerStatus]:
        """The newest record of each name; an index, because pods may have thousands of
        containers."""
        return {status.name: status for status in reversed(self.containers)}

    def by_id(self, container_id: str) -> ContainerStatus | None:
        """The record with that container id."""
        for status in self.containers:
            if status.id == container_id:
                return status
        return None

    @property
    def source(self) -> str:
        """Where the pod came from (file, http, api), from its sandboxes; "" when none has it."""
        return next((sandbox.source for sandbox in self.sandboxes if sandbox.source), "")

    @property
    def running_containers(self) -> tuple[ContainerStatus, ...]:
        """Containers whose process runs."""
        return tuple(c for c in self.containers if c.running)

    @property
    def has_ready_sandbox(self) -> bool:
        """Whether any sandbox is ready."""
        return any(sandbox.ready for sandbox in self.sandboxes)

    @property
    def empty(self) -> bool:
        """Whether the runtime has nothing left of this pod."""
        return not self.sandboxes and not self.containers


class RuntimePodSummary(Struct, frozen=True):
    """One pod in a relist: just enough to see what changed."""

    uid: str
    name: str
    namespace: str
    sandboxes: Mapping[str, bool]
    """Sandbox id -> ready."""
    containers: Mapping[str, ContainerState]
    """Container id -> state."""
