"""Whether an agent without pods has forgotten everything about pods: no task, timer, queue or
cache entry is left.

Reads the agent's components directly: leaked state is by definition state that nothing queries.
"""

from __future__ import annotations

from typing import Any

from kubeletpy.agent.agent import Agent
from kubeletpy.pods.pod_manager import PodManager
from kubeletpy.podworkers.history import ReasonCache
from kubeletpy.podworkers.status_cache import PodStatusCache
from kubeletpy.podworkers.workers import PodWorkers
from kubeletpy.probes.probe_manager import KubeProbeManager
from kubeletpy.resources.allocation.allocation_manager import AllocationManager
from kubeletpy.resources.allocation.checkpoint import ResourceState
from kubeletpy.runtime_manager.kube_runtime_manager import KubeRuntimeManager
from kubeletpy.status.status_manager import ApiStatusManager
from kubeletpy.syncloop.housekeeping import DeadContainers
from kubeletpy.syncloop.mirror import ApiMirrorKeeper
from kubeletpy.syncloop.pleg import Pleg
from tests.sim.loop import SimLoop

IDLE_TASKS = {
    "deaths",
    "flight-recorder",
    "runtime-monitor",
    "runtime-upkeep",
    "pleg",
    "runtime-events",
    "sync-loop",
    "dead-containers",
    "stuck-pods",
    "container-gc",
    "cgroup-driver",  # where there are any cgroups, as the next
    "cgroups",
    "image-gc",
    "log-rotation",
    "source-api",
    "source-file",
    "source-http",
    "event-warnings",
    "events",
    "node",
    "node-lease",
    "offline-record",
    "eviction",
    "own-node",
    "services",
    "static-pods-mirrors",
    "csi-drivers",
    "csi-node",
    "cpu-reconcile",
    "device plugin vendor.example/gpu",  # where there is one
    "devices",
    "plugins",
    "resource-claims",
    "resource-slices",
    "storage-health",  # with its feature gate, as the next
    "volume-health",
    "volume-usage",
}
"""Tasks of an agent without pods."""
MOST_IDLE_TIMERS = 20


def leftovers(agent: Agent, loop: SimLoop, life: int) -> list[str]:
    """Everything about pods that an agent without pods still holds."""
    pods, cache = agent.component(PodManager), agent.component(PodStatusCache)
    workers, allocations = agent.component(PodWorkers), agent.component(AllocationManager)
    machine, pleg = workers.machine, agent.component(Pleg)
    under_way = agent.component(KubeRuntimeManager).mutations
    mirrors = agent.component(ApiMirrorKeeper)
    resources = [
        component.instance
        for component in agent.components
        if isinstance(component.instance, ResourceState)
    ]
    kept: dict[str, Any] = {
        "pods": pods.pods(),
        "mirrors": pods.mirrors(),
        "worker records": machine.records,
        "worker names": machine.names._started,
        "waiting names": machine.names._waiting,
        "worker tasks": workers._tasks,
        "worker timers": workers._timers,
        "worker waiters": workers._kill_waits._waiting,
        "worker changes": workers._changed,
        "status cache": list(cache),
        "running pods": cache._running,
        "doubtful pods": cache._doubtful,
        "statuses": agent.component(ApiStatusManager)._entries,
        "start errors": agent.component(ReasonCache)._pods,
        "probes": agent.component(KubeProbeManager)._pods,
        "reads": pleg._reads,
        "known pods": pleg._known,
        "dead containers": agent.component(DeadContainers)._queued,
        "resources": [uid for each in resources for uid in each.uids()],
        "resizes that wait": allocations._queue,
        "views of allocations": allocations._views,
        "conditions of resizes": allocations._reports.uids(),
        "changes under way": under_way._under_way,
        "change times": under_way._changed_at,
        "mirror requests": mirrors._requests,
        "mirror tasks": mirrors._tasks,
    }
    found = [f"{what} left: {_names(value)}" for what, value in kept.items() if value]
    names = {task.get_name() for task in loop.tasks_of(life)} - {f"agent {life}"}
    extra = [each for each in sorted(names - IDLE_TASKS) if "DRA driver " not in each]
    if extra:  # two follow each DRA driver
        found.append(f"tasks left: {extra}")
    if len(loop.timers_of(life)) > MOST_IDLE_TIMERS:
        found.append(f"timers left: {loop.timers_of(life)}")
    return found


def _names(value: Any) -> list[str]:
    return [str(item)[:60] for item in value][:5]
