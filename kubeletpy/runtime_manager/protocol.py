"""The runtime manager as the pod workers, the PLEG and housekeeping see it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from kubeletpy.pods.pod import Pod
from kubeletpy.pods.runtime_status import ContainerState, PodRuntimeStatus
from kubeletpy.pods.sync_results import Decision, PodSyncResult


class ProbeOutcome(StrEnum):
    """The last settled result of a probe."""

    SUCCESS = "success"
    FAILURE = "failure"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class ProbeResults:
    """Settled probe results by container id, as compute-actions reads them. Absent: no result."""

    liveness: Mapping[str, ProbeOutcome] = field(default_factory=dict)
    startup: Mapping[str, ProbeOutcome] = field(default_factory=dict)
    readiness: Mapping[str, ProbeOutcome] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Mount:
    """A host path that the agent puts into a container."""

    container_path: str
    host_path: str
    readonly: bool = False
    propagation: str = "PRIVATE"
    """PRIVATE, HOST_TO_CONTAINER or BIDIRECTIONAL."""
    selinux_relabel: bool = False
    recursive_read_only: bool = False
    volume: str = ""
    """Name of the pod's volume; empty for files of the agent."""
    index: int = 0
    """Which of the container's volumeMounts it is."""
    image: str = ""
    """An image whose files are mounted, as the spec names it; ``host_path`` is empty then."""
    image_pull_policy: str = ""
    image_ref: str = ""
    """That image as the runtime knows it, once it is on the node."""
    image_sub_path: str = ""


@dataclass(frozen=True, slots=True)
class PullSecret:
    """A pull secret, decoded, and where it came from. Never printed: it holds credentials."""

    namespace: str
    name: str
    uid: str
    docker_config: Mapping[str, object] = field(repr=False)
    """The "auths" document: registry -> {auth | username, password | identitytoken}."""


@dataclass(frozen=True, slots=True)
class SyncPodRequest:
    """All that one runtime sync decides from."""

    pod: Pod
    status: PodRuntimeStatus
    probes: ProbeResults = field(default_factory=ProbeResults)
    pull_secrets: Sequence[PullSecret] = ()
    volume_mounts: Mapping[str, Sequence[Mount]] = field(default_factory=dict)
    """Container name -> mounts that the volume manager prepared."""
    on_sandbox_ready: Callable[[PodRuntimeStatus], None] | None = None
    """Told once the new sandbox and its IPs are there, before any container starts."""
    on_plan: Callable[[Sequence[Decision]], None] = lambda decisions: None
    """Told what is going to be done and why, before it is; the result has only what is new."""
    is_terminating: Callable[[], bool] = lambda: False
    """Whether termination was asked for meanwhile: the sync then starts nothing more."""
    told: Callable[[], bool] = lambda: True
    """Whether the API knows what ``status`` says: records that it still needs stay until then."""


@dataclass(frozen=True, slots=True)
class RuntimePodSummary:
    """One pod in a relist: just enough to see what changed."""

    uid: str
    name: str
    namespace: str
    sandboxes: Mapping[str, bool]
    """Sandbox id -> ready."""
    containers: Mapping[str, ContainerState]
    """Container id -> state."""


@dataclass(frozen=True, slots=True)
class RuntimeHealth:
    """What the runtime says of itself (CRI Status), or why it could not be asked."""

    runtime_ready: bool
    network_ready: bool
    message: str = ""
    """Why it is not ready; empty when it is."""
    network_message: str = ""


class RuntimeManager(Protocol):
    """Makes the runtime run what a pod asks for, and reads back what it runs."""

    async def sync_pod(self, request: SyncPodRequest) -> PodSyncResult:
        """Compute the plan and carry it out. Never raises for what a pod can cause."""
        ...

    async def kill_pod(
        self,
        pod: Pod | None,
        status: PodRuntimeStatus,
        grace_override: int | None,
        on_stopped: Callable[[PodRuntimeStatus], None] | None = None,
    ) -> PodSyncResult:
        """Stop all containers (in parallel, sidecars last) and all sandboxes of a pod.

        ``pod`` is None for a pod that only the runtime knows. ``grace_override``, in seconds,
        replaces the pod's own grace period. ``on_stopped`` is told how the containers ended while
        the sandboxes are being stopped.
        """
        ...

    async def get_pod_status(self, uid: str, name: str, namespace: str) -> PodRuntimeStatus:
        """Ask the runtime for all it knows of a pod. Raises remote.errors.CRIError."""
        ...

    async def list_pods(self) -> list[RuntimePodSummary]:
        """Every pod of the runtime, dead ones included. Raises remote.errors.CRIError."""
        ...

    async def delete_container(self, container_id: str) -> None:
        """Remove one dead container with its log link. Raises remote.errors.CRIError."""
        ...

    async def collect_garbage(
        self,
        *,
        all_sources_ready: bool,
        removable: Callable[[str], bool],
        told: Callable[[str], bool] = lambda uid: True,
    ) -> None:
        """Remove dead containers and sandboxes beyond what is kept.

        ``removable(pod_uid)`` says whether everything of that pod may go (docs: GC and eviction),
        ``told(pod_uid)`` whether the API knows how its containers ended.
        """
        ...

    async def health(self) -> RuntimeHealth:
        """Ask the runtime how it is. Never raises."""
        ...

    @property
    def runtime_name(self) -> str:
        """The runtime's name, as container ids carry it: ``containerd``, ``cri-o``."""
        ...
