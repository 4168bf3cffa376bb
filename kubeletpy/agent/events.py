"""Builds the recorder of events: a part of the composition root.

Must never decide anything about a pod.
"""

from __future__ import annotations

from kubeletpy.agent.component import Component, Task
from kubeletpy.agent.outside import Outside
from kubeletpy.base.backlog import Backlog
from kubeletpy.base.structs import Struct
from kubeletpy.kubeapi.events.kept import KeptEvents
from kubeletpy.kubeapi.events.log_recorder import LogRecorder
from kubeletpy.kubeapi.events.node_uid import NodeUidRecorder
from kubeletpy.kubeapi.events.reasons import Reason
from kubeletpy.kubeapi.events.recorder import NORMAL, AnnotatingRecorder, node_reference
from kubeletpy.kubeapi.events.writer import EventWriter


class Events(Struct, frozen=True):
    """The recorder of all components; ``of_node`` needs a ``lookup`` of the Node object's uid."""

    recorder: KeptEvents
    of_node: NodeUidRecorder
    components: list[Component]


def build_events(outside: Outside, node_name: str, backlog: Backlog) -> Events:
    """Events are sent to the API, or logged without one."""
    to: AnnotatingRecorder = LogRecorder()
    components: list[Component] = []
    if outside.api is not None:
        to = writer = EventWriter(
            outside.api.events, outside.clock, node_name, backlog, rng=outside.rng
        )
        tasks = Task("events", writer.write_normal), Task("event-warnings", writer.write_warnings)
        components.append(Component(writer, tasks))
    of_node = NodeUidRecorder(to, node_name)
    recorder = KeptEvents(of_node, outside.clock)

    async def announce() -> None:
        recorder.event(node_reference(node_name), NORMAL, Reason.STARTING, "Starting kubelet.")

    components.append(Component(recorder, start=announce))
    return Events(recorder, of_node, components)
