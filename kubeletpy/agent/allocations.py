"""Builds the records of resources allocated to pods: a part of the composition root.

Must never decide anything about a pod.
"""

from __future__ import annotations

from kubeletpy.agent.component import Component
from kubeletpy.agent.context import BuildContext
from kubeletpy.agent.pod_state import PodState
from kubeletpy.base.structs import Struct
from kubeletpy.node.resources import capacity, unreserved
from kubeletpy.pods.memory_volumes import GATE as MEMORY_VOLUMES
from kubeletpy.resources.allocation.allocation_manager import AllocationManager
from kubeletpy.resources.allocation.checkpoint import ResourceState
from kubeletpy.resources.allocation.feasibility import ResizeRules
from kubeletpy.runtime_manager.config.resources import has_swap
from kubeletpy.runtime_manager.config.settings import RuntimeSettings


class Allocations(Struct, frozen=True):
    """The allocation objects. ``actuated``: the resources that containers were last given."""

    manager: AllocationManager
    actuated: ResourceState
    components: list[Component]


def build_allocations(
    context: BuildContext, state: PodState, rules: RuntimeSettings
) -> Allocations:
    """``rules`` are the settings of containers."""
    volumes = context.gates.enabled(MEMORY_VOLUMES)
    allocated = ResourceState(context.root / "allocated_pods_state", memory_volumes=volumes)
    actuated = ResourceState(context.root / "actuated_pods_state", memory_volumes=volumes)
    manager = AllocationManager(
        allocated,
        context.recorder,
        context.outside.clock,
        rules=ResizeRules.from_settings(
            context.settings,
            lambda pod, c: has_swap(pod, c, rules),
            unreserved(capacity(context.outside.machine.facts, context.options), context.options),
            cgroup_v2=rules.cgroup_v2,
        ),
        metrics=context.outside.metrics.resizes,
        judge=context.signals.fits,
        current=state.pods.get,
        sync=context.signals.pod_changed,
        sources_ready=state.sources.all,
        decided=state.decided,
    )
    components = [
        Component(
            actuated,
            keep=lambda found: actuated.forget_others(found.existing),
            close=actuated.close,
        ),
        Component(allocated, close=allocated.close),
        Component(
            manager, keep=lambda found: manager.forget_others(found.desired), close=manager.close
        ),
    ]
    return Allocations(manager, actuated, components)
