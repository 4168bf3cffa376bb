"""What an agent stands on and does not make itself: machine, runtime, API, time and chance.

A launch fills this with what is real, a simulation with what it invents; both hand it to
:func:`kubeletpy.agent.build.build`. What the settings say is not in here.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from kubeletpy.agent.room import Task
from kubeletpy.cgroups.machine import KernelFacts
from kubeletpy.cgroups.tree import CgroupTree
from kubeletpy.clock import Clock
from kubeletpy.devices.plugin import OpenPlugin
from kubeletpy.eviction.node_pressure import NodeSignals, PodUses
from kubeletpy.guards.host import GuardedHost
from kubeletpy.kubeapi.protocol import KubeApi
from kubeletpy.metrics.registry import Metrics
from kubeletpy.node.build import RuntimeInfo
from kubeletpy.node.facts import MachineFacts
from kubeletpy.placement.machine import MachineTopology
from kubeletpy.plugins.protocol import Registrations
from kubeletpy.pods.pod import Pod
from kubeletpy.remote.protocol import ImageService, RuntimeService
from kubeletpy.runtime_manager.pod_limits import PodCgroupLimits
from kubeletpy.server.build import Ports
from kubeletpy.volumes.csi.drivers import OpenCalls

if TYPE_CHECKING:
    from kubeletpy.dra.client import OpenDriver


@dataclass(frozen=True, slots=True)
class ApiClients:
    """The cluster's API, once for each kind of use that has a rate of its own."""

    pods: KubeApi
    """For everything else."""
    heartbeats: KubeApi
    """Node status and lease: a busy node must not look dead."""
    events: KubeApi
    reviews: KubeApi
    """On behalf of clients of the agent's server."""


class PodGroups(PodCgroupLimits, Protocol):
    """The cgroups of whole pods, where somebody else than this agent keeps them."""

    def parent(self, pod: Pod) -> str:
        """The cgroup that a sandbox is to be put in."""
        ...


@dataclass(frozen=True, slots=True)
class Machine:
    """The node's machine, as it was found."""

    facts: MachineFacts
    kernel: KernelFacts
    node_ips: Sequence[str]
    cgroups: CgroupTree | PodGroups | None = None
    """None: pods have no cgroups of their own (cgroupsPerQOS false)."""
    signals: NodeSignals | None = None
    """What the node has left; None: it is not watched, and nobody is evicted for its sake."""
    guarded: GuardedHost | None = None
    """The machine itself, to be kept well; None: it is left alone."""
    uses: PodUses | None = None
    """What pods use; None: as their cgroups say."""
    container_logs_dir: str = "/var/log/containers"
    """Where links to container logs are, for log collectors."""
    concurrent_starts: int | None = None
    """Sandboxes and containers made at once; None: by the number of cores."""
    topology: MachineTopology | None = None
    """How the machine is built; None: nobody needs to know."""
    booted_at: float | None = None
    """When the machine was booted, in Unix seconds; None: not known."""
    started_at: float | None = None
    """When this process was started, in Unix seconds; None: when the agent is made."""


@dataclass(frozen=True, slots=True)
class Outside:
    """Everything that a simulation replaces."""

    machine: Machine
    runtime: RuntimeService
    images: ImageService
    runtime_info: RuntimeInfo
    clock: Clock
    api: ApiClients | None = None
    """None: standalone, with static pods only."""
    metrics: Metrics = field(default_factory=Metrics)
    rng: random.Random = field(default_factory=random.Random)
    credentials: Sequence[Task] = ()
    """What keeps the credentials for API and runtime valid."""
    ports: Ports | None = None
    """Bound for the agent's server; None: there is none."""
    on_connection: Callable[[Callable[[bool], None]], None] | None = None
    """Registers a listener for the runtime's connection being lost (False) or back (True)."""
    plugins: Registrations | None = None
    """How CSI drivers and other plugins of the node are asked to register; None: not at all."""
    driver_calls: OpenCalls | None = None
    """How CSI drivers are called; None: over their sockets."""
    claim_drivers: OpenDriver | None = None
    """How DRA drivers are called; None: over their sockets."""
    device_plugins: OpenPlugin | None = None
    """How device plugins are called; None: over their sockets."""
    sockets: bool = True
    """Whether the agent may listen: for explain, and for health checks."""
