"""Builds what finds changes of containers and sandboxes: a part of the composition root.

Must never decide anything about a pod.
"""

from __future__ import annotations

from kubeletpy.agent.component import Component, Task
from kubeletpy.agent.context import BuildContext
from kubeletpy.agent.pod_state import PodState
from kubeletpy.base.structs import Struct
from kubeletpy.runtime_manager.kube_runtime_manager import KubeRuntimeManager
from kubeletpy.syncloop.early_polls import EarlyPolls
from kubeletpy.syncloop.event_stream import EventStream
from kubeletpy.syncloop.pleg import Pleg


class RuntimeChanges(Struct, frozen=True):
    """The objects that fill the status cache. ``early_polls`` must be subscribed to that cache."""

    pleg: Pleg
    early_polls: EarlyPolls
    components: list[Component]


def build_runtime_changes(
    context: BuildContext, state: PodState, runtime: KubeRuntimeManager
) -> RuntimeChanges:
    """The relist, the runtime's event stream, and polls of init containers in between."""
    outside, cache, changed = context.outside, state.cache, context.signals.runtime_changed
    pleg = Pleg(runtime, cache, outside.clock, changed, outside.metrics.pleg)
    stream = EventStream(
        outside.runtime,
        runtime.event_to_status,
        cache,
        pleg,
        clock=outside.clock,
        on_change=changed,
        rng=outside.rng,
    )
    early_polls = EarlyPolls(outside.runtime, cache, pleg, state.pods.current)
    components = [
        Component(pleg, (Task("pleg", pleg.run),)),
        Component(stream, (Task("runtime-events", stream.run),)),
        Component(early_polls, close=early_polls.close),
    ]
    return RuntimeChanges(pleg, early_polls, components)
