"""The parts of the runtime manager, each made when it is first needed.

The composition root hands each part to the components that use it. Must never keep essential state
only in memory: after a restart of the agent the runtime's own records are all it needs.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Sequence
from functools import cached_property

from kubeletpy.base.clock import Clock, SteadyClock
from kubeletpy.base.structs import Component, field
from kubeletpy.base.tasks import Backlog
from kubeletpy.images.image_manager import ImageManager
from kubeletpy.kubeapi.events.recorder import EventRecorder
from kubeletpy.metrics.pods import PodStartMetrics
from kubeletpy.pods.pod import NOWHERE, Placement, Pod
from kubeletpy.pods.runtime_status import RuntimeClassError, StopNote
from kubeletpy.remote.protocol import RuntimeService
from kubeletpy.runtime_manager.act.container_files import StopRecords
from kubeletpy.runtime_manager.act.executor import Executor
from kubeletpy.runtime_manager.act.garbage_collection import ContainerGarbageCollector, Remover
from kubeletpy.runtime_manager.act.hooks_runner import LifecycleHookRunner
from kubeletpy.runtime_manager.act.kill_pod import Killer, SandboxStopper
from kubeletpy.runtime_manager.act.mutations import Mutations, StartSlots, StopSlots
from kubeletpy.runtime_manager.act.resize_pod import Resizer, ResourcesInEffect
from kubeletpy.runtime_manager.act.run_pod_sandbox import SandboxMaker
from kubeletpy.runtime_manager.act.start_container import ContainerStarter
from kubeletpy.runtime_manager.act.stop_container import ContainerStopper
from kubeletpy.runtime_manager.config.sandbox_config import ResolverConfig
from kubeletpy.runtime_manager.config.settings import RuntimeSettings, UserNamespaceRange
from kubeletpy.runtime_manager.plan.actions import PodActions
from kubeletpy.runtime_manager.plan.compute_actions import PlanInputs
from kubeletpy.runtime_manager.plan.crash_loop import BASE_SECONDS, MAX_SECONDS, CrashLoopBackoff
from kubeletpy.runtime_manager.plan.gc_selection import GCPolicy
from kubeletpy.runtime_manager.protocol import (
    ActuatedResources,
    ContainerProvider,
    NoPodCgroupLimits,
    PodCgroupLimits,
    ResizeVolume,
    SandboxWatch,
    resize_no_volume,
)
from kubeletpy.runtime_manager.read.status_reader import OwnStarts
from kubeletpy.runtime_manager.read.status_source import MessageRoots, StatusSource

STARTS_PER_CORE = 4


async def _default_handler_only(pod: Pod) -> str:
    if name := pod.spec.get("runtimeClassName"):
        raise RuntimeClassError(f'RuntimeClass "{name}" not found')
    return ""


class KubeRuntimeManager(Component):
    """The runtime manager on any CRI runtime. Make it inside a running event loop."""

    runtime: RuntimeService
    images: ImageManager
    recorder: EventRecorder
    clock: Clock
    metrics: PodStartMetrics
    root_dir: str
    """The kubelet's root directory."""
    hooks: LifecycleHookRunner
    actuated: ActuatedResources
    """The records of what pods were last given."""
    settings: RuntimeSettings = field(default_factory=RuntimeSettings)
    providers: Sequence[ContainerProvider] = ()
    """They add to what containers are made with, in this order."""
    runtime_handler: Callable[[Pod], Awaitable[str]] = _default_handler_only
    """This and the next three supply the parts of a sandbox's config: see :class:`SandboxMaker`."""
    cgroup_parent: Callable[[Pod], str] = lambda pod: ""
    user_namespace: Callable[[Pod], UserNamespaceRange | None] = lambda pod: None
    host_dns: Callable[[], ResolverConfig | None] = ResolverConfig
    sandbox_watch: SandboxWatch | None = None
    pod_limits: PodCgroupLimits = field(default_factory=NoPodCgroupLimits)
    """The limits of the pods' own cgroups."""
    resize_volume: ResizeVolume = resize_no_volume
    placement: Callable[[Pod, str], Placement] = lambda pod, name: NOWHERE
    """Where a container runs, by its pod and its name."""
    max_crash_loop_delay: float = MAX_SECONDS
    """Seconds (crashLoopBackOff.maxContainerRestartPeriod)."""
    first_crash_loop_delay: float = BASE_SECONDS
    """Seconds."""
    booted_at: float = 0.0
    """When the machine booted, in Unix seconds; 0: unknown."""
    concurrent_starts: int | None = None
    """How many sandboxes and containers are made at once; None: by the cores of this machine."""
    backlog: Backlog = field(default_factory=Backlog)
    """Counts the pods that wait because of that limit."""
    gc_policy: GCPolicy = field(default_factory=GCPolicy)
    plan_log: Callable[[PlanInputs, PodActions], None] | None = None
    """Is called with what each plan is computed from, and the plan, for replays."""
    stop_log: Callable[[StopNote], None] = lambda note: None
    """Is called with each stop of a container that begins."""

    async def drain(self, timeout: float) -> None:
        """Wait for the runtime's calls under way, at most ``timeout`` seconds, and for records."""
        await self.mutations.drain(timeout)
        await self.stop_records.close()

    # -- what the runtime has --------------------------------------------------------------------

    @cached_property
    def own_starts(self) -> OwnStarts:
        """The starts that failed in this agent's own life."""
        return OwnStarts()

    @cached_property
    def source(self) -> StatusSource:
        """Reads the pods of the runtime."""
        roots = MessageRoots(self.root_dir, self.settings.pod_logs_dir)
        return StatusSource(self.runtime, self.clock, roots, self.own_starts)

    @cached_property
    def in_effect(self) -> ResourcesInEffect:
        """The resources that pods are known to have."""
        return ResourcesInEffect(self.actuated, self.pod_limits, self.settings)

    # -- what is under way -----------------------------------------------------------------------

    @cached_property
    def mutations(self) -> Mutations:
        """The calls in flight that change the runtime."""
        return Mutations(self.source.now)

    @cached_property
    def start_slots(self) -> StartSlots:
        """The slots in which something is created."""
        return StartSlots(self._at_once, self.backlog)

    @cached_property
    def stop_slots(self) -> StopSlots:
        """The slots in which something is stopped."""
        return StopSlots(self._at_once, self.backlog)

    @property
    def _at_once(self) -> int:
        return self.concurrent_starts or STARTS_PER_CORE * (os.cpu_count() or 1)

    @cached_property
    def stop_records(self) -> StopRecords:
        """The stops under way, for the next agent."""
        return StopRecords(self.root_dir)

    @cached_property
    def life(self) -> SteadyClock:
        """The time of backoffs."""
        return SteadyClock(self.clock)

    @cached_property
    def crash_loops(self) -> CrashLoopBackoff:
        """The backoffs of containers that crash."""
        return CrashLoopBackoff(
            self.max_crash_loop_delay, self.first_crash_loop_delay, self.life.now(), self.booted_at
        )

    # -- what acts -------------------------------------------------------------------------------

    @cached_property
    def killer(self) -> Killer:
        """Stops containers and pods."""
        runtime, mutations, slots = self.runtime, self.mutations, self.stop_slots
        containers = ContainerStopper(
            runtime,
            mutations,
            slots,
            self.recorder,
            hooks=self.hooks,
            records=self.stop_records,
            noted=self.stop_log,
        )
        sandboxes = SandboxStopper(runtime, mutations, slots)
        source, root_dir = self.source, self.root_dir
        return Killer(runtime, source, mutations, containers, sandboxes, root_dir=root_dir)

    @cached_property
    def remover(self) -> Remover:
        """Removes records of dead containers and sandboxes."""
        return Remover(self.runtime, self.mutations, self.settings, self.root_dir)

    @cached_property
    def starter(self) -> ContainerStarter:
        """Starts containers in a sandbox."""
        return ContainerStarter(
            self.runtime,
            self.images,
            self.killer,
            self.mutations,
            self.start_slots,
            recorder=self.recorder,
            metrics=self.metrics,
            hooks=self.hooks,
            actuated=self.actuated,
            own_starts=self.own_starts,
            settings=self.settings,
            root_dir=self.root_dir,
            providers=self.providers,
            user_namespace=self.user_namespace,
        )

    @cached_property
    def executor(self) -> Executor:
        """Syncs pods: has plans computed and carries them out."""
        return Executor(
            self.killer,
            self.remover,
            SandboxMaker(
                self.runtime,
                self.source,
                self.mutations,
                self.start_slots,
                recorder=self.recorder,
                metrics=self.metrics,
                settings=self.settings,
                runtime_handler=self.runtime_handler,
                cgroup_parent=self.cgroup_parent,
                user_namespace=self.user_namespace,
                host_dns=self.host_dns,
                watch=self.sandbox_watch,
            ),
            Resizer(
                self.runtime,
                self.mutations,
                self.actuated,
                self.pod_limits,
                settings=self.settings,
                metrics=self.metrics,
                placement=self.placement,
                resize_volume=self.resize_volume,
            ),
            self.starter,
            mutations=self.mutations,
            in_effect=self.in_effect,
            crash_loops=self.crash_loops,
            source=self.source,
            recorder=self.recorder,
            clock=self.clock,
            life=self.life,
            metrics=self.metrics,
            plan_log=self.plan_log,
        )

    @cached_property
    def collector(self) -> ContainerGarbageCollector:
        """Collects dead containers and sandboxes."""
        return ContainerGarbageCollector(
            self.runtime,
            self.mutations,
            self.killer,
            self.remover,
            self.gc_policy,
            own_starts=self.own_starts,
            in_effect=self.in_effect,
            crash_loops=self.crash_loops,
            settings=self.settings,
            clock=self.clock,
            life=self.life,
        )
