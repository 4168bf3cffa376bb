"""Inputs of all parts of the composition root: components, dependencies, and their context."""

from __future__ import annotations

import asyncio
import random
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, Protocol

from kubeletpy.base.api import types as api
from kubeletpy.base.api.times import Moment
from kubeletpy.base.clock import Clock, SteadyClock
from kubeletpy.base.structs import Struct, field
from kubeletpy.base.tasks import Backlog
from kubeletpy.config import KubeletSettings, NodeFlags, Notice
from kubeletpy.config.gates import FeatureGates
from kubeletpy.config.version_choice import ResolvedVersion
from kubeletpy.kubeapi.events.writer import KeptEvents
from kubeletpy.kubeapi.protocol import KubeApi
from kubeletpy.metrics.registry import Metrics
from kubeletpy.metrics.trace.model import NO_TRACER, Tracer
from kubeletpy.node.build import RuntimeInfo
from kubeletpy.node.eviction.ranking import NodeSignals, PodUses
from kubeletpy.node.facts import MachineFacts, NodeAddresses, NodeOptions
from kubeletpy.node.guards.at_start import GuardedHost
from kubeletpy.node.guards.oom_watch import Kill
from kubeletpy.pods.pod import NodePods, Pod
from kubeletpy.pods.runtime_status import ProbeOutcome, StopNote
from kubeletpy.probes.schedule import ProbeKind
from kubeletpy.remote.containerd import ContentStore
from kubeletpy.remote.protocol import ImageService, RuntimeService, TaskExits
from kubeletpy.resources.admission.declared_features import NodeConfiguration, declared
from kubeletpy.resources.cgroups.setup import KernelFacts
from kubeletpy.resources.cgroups.tree import CgroupTree
from kubeletpy.resources.devices.plugin import OpenPlugin
from kubeletpy.resources.placement.machine import MachineTopology
from kubeletpy.resources.plugins.model import Registrations
from kubeletpy.runtime_manager.protocol import PodCgroupLimits
from kubeletpy.server.build import Ports
from kubeletpy.volumes.csi.host import OpenCalls
from kubeletpy.volumes.files.disk import REQUIRED, MountRights

if TYPE_CHECKING:
    from kubeletpy.base.host.program import RunProgram
    from kubeletpy.resources.dra.client import OpenDriver
    from kubeletpy.syncloop.sources.file import PodSource


Run = Callable[[], Coroutine[Any, Any, None]]


class Task(Struct, frozen=True):
    """Something that runs as long as the agent does; if it fails, the agent ends."""

    name: str
    run: Run
    late: bool = False
    """It begins when the node is Ready, or soon: it makes no node Ready."""


class Component(Struct, frozen=True):
    """One object of a running agent (:func:`kubeletpy.agent.build.build`) and its hooks.

    Hooks that a component does not need are None.
    """

    instance: object
    """The object itself; tests and ``kubeletpy up`` find it by its type."""
    tasks: tuple[Task, ...] = ()
    start: Callable[[], Awaitable[Any]] | None = None
    """Awaited before any task runs, in component order; may raise if the agent can't run."""
    keep: Callable[[NodePods], None] | None = None
    """Called by housekeeping with the existing pods; state of others may be dropped. Must not
    block."""
    close: Callable[[], Awaitable[None] | None] | None = None
    """Called when the agent ends, last component first; also if it was not started."""


def after(event: asyncio.Event, run: Run) -> Run:
    """A task that starts once an event is set."""

    async def wait_and_run() -> None:
        await event.wait()
        await run()

    return wait_and_run


# Dependencies that an agent does not create: machine, runtime, API, time and randomness. A launch
# supplies the real ones, a simulation its own; both pass them to
# :func:`kubeletpy.agent.build.build`. Settings are not among them.


class ApiClients(Struct, frozen=True):
    """The cluster's API, one client for each use that has its own rate limit."""

    pods: KubeApi
    """For everything else."""
    heartbeats: KubeApi
    """Node status and lease: a busy node must never be taken for dead."""
    events: KubeApi
    reviews: KubeApi
    """On behalf of clients of the agent's server."""


class PodGroups(PodCgroupLimits, Protocol):
    """Pod-level cgroups, where something other than this agent manages them."""

    def parent(self, pod: Pod) -> str:
        """The cgroup in which to put a sandbox."""


class Machine(Struct, frozen=True):
    """The node's machine, as it was found."""

    facts: MachineFacts
    kernel: KernelFacts
    node_ips: Sequence[str]
    cgroups: CgroupTree | PodGroups | None = None
    """None: pods have no cgroups of their own (cgroupsPerQOS false)."""
    signals: NodeSignals | None = None
    """Measures the node's free resources; None: unmonitored, node pressure evicts no pod."""
    guarded: GuardedHost | None = None
    """The machine itself, to be kept healthy; None: it is left alone."""
    uses: PodUses | None = None
    """Measures the pods' usage; None: it is read from their cgroups."""
    container_logs_dir: str = "/var/log/containers"
    """Where links to container logs are, for log collectors."""
    concurrent_starts: int | None = None
    """Sandboxes and containers created concurrently; None: based on the number of cores."""
    topology: MachineTopology | None = None
    """The topology of the machine; None: nothing needs it."""
    booted_at: float | None = None
    """When the machine booted, or its namespaces began, in Unix seconds; None: unknown."""
    started_at: float | None = None
    """When this process started, in Unix seconds; None: when the agent is built."""


class OfflineHost(Struct, frozen=True):
    """The parts of the machine that starts without an API server need."""

    moment: Callable[[], Moment]
    """Returns now, comparable over boots."""
    run: RunProgram | None = None
    """Runs systemd-creds; None: nothing is encrypted."""


class Outside(Struct, frozen=True):
    """Everything that a simulation replaces."""

    machine: Machine
    runtime: RuntimeService
    images: ImageService
    runtime_info: RuntimeInfo
    clock: Clock
    content: ContentStore | None = None
    """Where the runtime keeps what it pulls; None: it reports nothing of a pull."""
    task_exits: TaskExits | None = None
    """Follows exits, for a runtime without CRI events; None: it is only relisted."""
    read_runtime_info: Callable[[], Awaitable[RuntimeInfo]] | None = None
    """Reads the current runtime info; may raise CRIError. None: it stays as it was at startup."""
    api: ApiClients | None = None
    """None: standalone, with static pods only."""
    metrics: Metrics = field(default_factory=Metrics)
    rng: random.Random = field(default_factory=random.Random)
    credentials: Sequence[Task] = ()
    """Tasks that keep what was found at startup up to date: credentials, addresses."""
    ports: Ports | None = None
    """Bound for the agent's server; None: there is none."""
    pod_sources: Sequence[PodSource] = ()
    """Sources of static pods besides those of the settings."""
    on_connection: Callable[[Callable[[bool], None]], None] | None = None
    """Registers a listener for the runtime's connection being lost (False) or back (True)."""
    plugins: Registrations | None = None
    """Registers CSI drivers and other node plugins; None: none are registered."""
    driver_calls: OpenCalls | None = None
    """How CSI drivers are called; None: over their sockets."""
    claim_drivers: OpenDriver | None = None
    """How DRA drivers are called; None: over their sockets."""
    device_plugins: OpenPlugin | None = None
    """How device plugins are called; None: over their sockets."""
    watchdog: Callable[[Mapping[str, Callable[[], str]]], Coroutine[Any, Any, None]] | None = None
    """Notifies a watchdog while all health checks pass; None: there is none."""
    notices: Sequence[Notice] = ()
    """Configured settings without effect, for explain."""
    kubernetes: ResolvedVersion | None = None
    """Where the version comes from, for explain; None: nothing was resolved."""
    tracer: Tracer = NO_TRACER
    """Where the spans of pods are sent besides being kept."""
    mounts: MountRights = REQUIRED
    """Whether volumes need mounts, or directories replace them."""
    sockets: bool = True
    """Whether the agent may listen for explain and for health checks."""
    offline_host: OfflineHost | None = None
    """None: no pod starts without the API server."""


# Circular connections: a component notifies one that takes it in turn. Each is a named value,
# created first and connected last, in one place, so that a reader of kubeletpy.agent.build sees who
# listens to what. A one-way connection is a constructor argument, not a signal.

P = ParamSpec("P")


class AgentSignal(Generic[P]):
    """Call every listener in the order in which they were added. They must not block."""

    def __init__(self) -> None:
        self._listeners: tuple[Callable[P, None], ...] = ()

    def connect(self, *listeners: Callable[P, None]) -> None:
        """The listener, set once."""
        assert not self._listeners, "connected in one place"
        self._listeners = listeners

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> None:
        for listener in self._listeners:
            listener(*args, **kwargs)


class Signals(Struct, frozen=True):
    """All signals of one agent."""

    pod_changed: AgentSignal[[str]] = field(default_factory=AgentSignal)
    """Something that a pod's sync depends on has changed (a configMap, a token, a resize)."""
    probe_settled: AgentSignal[[str, ProbeKind, ProbeOutcome]] = field(default_factory=AgentSignal)
    pod_finished: AgentSignal[[str]] = field(default_factory=AgentSignal)
    """A worker is done with its pod, or has forgotten it."""
    republish_pods: AgentSignal[[]] = field(default_factory=AgentSignal)
    """The next housekeeping pass must notify the components even if no pod came or went."""
    pod_reported: AgentSignal[[Pod]] = field(default_factory=AgentSignal)
    """The API shows a new object of a pod; for a mirror, of the static pod."""
    status_changed: AgentSignal[[str]] = field(default_factory=AgentSignal)
    """The status manager has another status of a pod, by uid, or another object, or none."""
    container_stopping: AgentSignal[[StopNote]] = field(default_factory=AgentSignal)
    """The agent begins to stop a container."""
    process_killed: AgentSignal[[Kill]] = field(default_factory=AgentSignal)
    """The kernel has killed a process for lack of memory."""
    node_changed: AgentSignal[[]] = field(default_factory=AgentSignal)
    """The node's status must be written at once."""
    runtime_health_changed: AgentSignal[[]] = field(default_factory=AgentSignal)
    """The runtime, or its network, has become usable or unusable."""
    pods_counted: AgentSignal[[NodePods]] = field(default_factory=AgentSignal)
    """A housekeeping pass has found different pods than the previous one."""
    shutdown_changed: AgentSignal[[]] = field(default_factory=AgentSignal)
    """The machine is about to shut down, or no longer is."""
    node_reported: AgentSignal[[]] = field(default_factory=AgentSignal)
    """The watch has shown the node's object, possibly changed."""
    node_answered: AgentSignal[[]] = field(default_factory=AgentSignal)
    """The API has shown us the node."""
    node_replaced: AgentSignal[[]] = field(default_factory=AgentSignal)
    """Somebody has created the Node object anew, with another uid: the node serves that one."""
    api_back: AgentSignal[[]] = field(default_factory=AgentSignal)
    """The API answers again: the node's lease is renewed after it could not be."""


class BuildContext(Struct, frozen=True, dict=True, eq=False):
    """Settings, surroundings and signals of one agent: what every part needs."""

    settings: KubeletSettings
    flags: NodeFlags
    outside: Outside

    @cached_property
    def options(self) -> NodeOptions:
        """The node as it is registered."""
        ports, info = self.outside.ports, self.outside.runtime_info
        features = NodeConfiguration(self.gates, info.features, self.settings.cpu_manager_policy)
        return NodeOptions.from_settings(
            self.settings,
            self.flags,
            hostname=self.outside.machine.facts.hostname,
            port=self.settings.port if ports is None else ports.port,
            declared_features=declared(features),
        )

    @cached_property
    def signals(self) -> Signals:
        """The signals between components."""
        return Signals()

    @cached_property
    def life(self) -> SteadyClock:
        """The time of this agent."""
        return SteadyClock(self.outside.clock)

    @cached_property
    def started_at(self) -> float:
        """When the agent was built, in Unix seconds."""
        return self.life.now()

    @cached_property
    def backlog(self) -> Backlog:
        """The pods that wait for their turn to start or stop."""
        return Backlog()

    @cached_property
    def cloud_ips(self) -> NodeAddresses | None:
        """The addresses that a cloud controller has set in the Node object; None: the agent sets
        them."""
        from_cloud = self.options.external_cloud_provider and self.outside.api is not None
        return NodeAddresses(()) if from_cloud else None

    @property
    @abstractmethod
    def recorder(self) -> KeptEvents:
        """The recorder of events."""

    @abstractmethod
    def pressures(self) -> tuple[str, ...]:
        """The pressure conditions that the node reports."""

    @abstractmethod
    def newest_node(self) -> api.Node:
        """The newest known version of the node's object, whatever its source."""

    @property
    def host_ips(self) -> Sequence[str]:
        """Addresses that pods report as their host's, and pods on its network as theirs.

        They may change in place.
        """
        return self.outside.machine.node_ips if self.cloud_ips is None else self.cloud_ips

    @property
    def root(self) -> Path:
        """The kubelet's root directory."""
        return Path(self.flags.root_dir)

    @property
    def pods_dir(self) -> Path:
        """The directories of pods."""
        return self.root / "pods"

    @property
    def gates(self) -> FeatureGates:
        """The feature gates of the settings."""
        return self.settings.feature_gates

    @property
    def node_name(self) -> str:
        """The name of the Node object."""
        return self.options.name

    def node_uid(self) -> str:
        """The uid of the Node object; empty: the API has not shown it yet."""
        return (self.newest_node().get("metadata") or {}).get("uid") or ""

    @property
    def kube_api(self) -> KubeApi | None:
        """The API client for pods and what they use; None: standalone."""
        return self.outside.api.pods if self.outside.api is not None else None
