"""Whether an agent without pods has forgotten everything about pods: no task, timer, queue or
cache entry is left.

Looks into the agent's rooms on purpose: what leaks is by definition what nobody asks about.
"""

from __future__ import annotations

from typing import Any

from kubeletpy.agent import Agent
from tests.sim.loop import SimLoop

IDLE_TASKS = {
    "runtime-monitor",
    "pleg",
    "runtime-events",
    "sync-loop",
    "dead-containers",
    "stuck-pods",
    "container-gc",
    "image-gc",
    "source-api",
    "source-file",
    "source-http",
    "events",
    "node",
    "node-lease",
    "own-node",
    "services",
    "static-pods-mirrors",
}
"""What an idle agent runs."""
MOST_IDLE_TIMERS = 20


def leftovers(agent: Agent, loop: SimLoop, life: int) -> list[str]:
    """Everything about pods that an agent without pods still holds."""
    kept: dict[str, Any] = {
        "pods": agent.pods.pods(),
        "mirrors": agent.pods.mirrors(),
        "worker records": agent.workers.machine.records,
        "worker names": agent.workers.machine.names._started,
        "waiting names": agent.workers.machine.names._waiting,
        "worker tasks": agent.workers._tasks,
        "worker timers": agent.workers._timers,
        "worker waiters": agent.workers._kill_waits._waiting,
        "worker changes": agent.workers._changed,
        "status cache": list(agent.cache),
        "running pods": agent.cache._running,
        "doubtful pods": agent.cache._doubtful,
        "statuses": agent.statuses._entries,
        "start errors": agent.reasons._pods,
        "probes": agent.probes._pods,
        "reads": agent.pleg._reads,
        "known pods": agent.pleg._known,
        "dead containers": agent.dead._queued,
        "allocations": agent.allocated.uids(),
        "actuated resources": agent.actuated.uids(),
        "resizes that wait": agent.allocations._queue,
        "views of allocations": agent.allocations._views,
        "conditions of resizes": agent.allocations._reports.uids(),
        "changes under way": agent.runtime._tools.mutations._under_way,
        "change times": agent.runtime._tools.mutations._changed_at,
    }
    if agent.mirrors is not None:
        kept["mirror wishes"] = agent.mirrors._wishes
        kept["mirror tasks"] = agent.mirrors._tasks
    found = [f"{what} left: {_names(value)}" for what, value in kept.items() if value]
    names = {task.get_name() for task in loop.tasks_of(life)} - {f"agent {life}"}
    if extra := sorted(names - IDLE_TASKS):
        found.append(f"tasks left: {extra}")
    if len(loop.timers_of(life)) > MOST_IDLE_TIMERS:
        found.append(f"timers left: {loop.timers_of(life)}")
    return found


def _names(value: Any) -> list[str]:
    return [str(item)[:60] for item in value][:5]
