"""The node in the API: its version, object, lease, mirror pods. A part of the composition root.

Must never decide anything about a pod.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kubeletpy.agent.component import Component, Run, Task, after
from kubeletpy.agent.context import BuildContext
from kubeletpy.base.structs import Struct
from kubeletpy.kubeapi.events.reasons import Reason
from kubeletpy.kubeapi.events.recorder import NORMAL, WARNING, node_reference
from kubeletpy.node.build import RuntimeInfo, initial_node
from kubeletpy.node.images import image_summaries
from kubeletpy.node.lease import LeaseKeeper
from kubeletpy.node.node_manager import NodeManager
from kubeletpy.node.own_node import OwnNode
from kubeletpy.node.server_version import VersionFollower
from kubeletpy.node.startup import NodeStartup
from kubeletpy.pods.granted import DeviceCounts
from kubeletpy.pods.pod import Pod
from kubeletpy.syncloop.mirror import ApiMirrorKeeper


class ApiNode(Struct, frozen=True):
    """The node objects for the rest of the composition root.

    Attributes:
        manager, lease, mirrors: None: standalone, there is no API.
        own: the newest Node object that the agent has.
    """

    manager: NodeManager | None
    lease: LeaseKeeper | None
    mirrors: ApiMirrorKeeper | None
    own: OwnNode

    def problems(self) -> list[Callable[[], str]]:
        """Why the API does not have or hear of the node, for explain."""
        return [each.problem for each in (self.manager, self.own, self.lease) if each is not None]

    def components(self, sync_static_pods: Run) -> list[Component]:
        """Tasks that run once pods can be synced; mirror pods wait for the node's registration."""
        node, lease = self.manager, self.lease
        if node is None or lease is None:
            return []
        tasks = (
            Task("node", node.run),
            Task("own-node", self.own.run),
            Task("node-lease", after(node.registered, lease.run)),
            Task("static-pods-mirrors", after(node.registered, sync_static_pods)),
        )
        return [Component(node, tasks)]


def build_version(context: BuildContext) -> tuple[VersionFollower | None, list[Component]]:
    """None, and no component: the agent's version was not resolved from anything."""
    outside, kube_api = context.outside, context.kube_api
    if outside.kubernetes is None:
        return None, []

    def version_differs(text: str, warning: bool) -> None:
        kind, node = WARNING if warning else NORMAL, node_reference(context.node_name)
        context.recorder.event(node, kind, Reason.KUBERNETES_VERSION_DIFFERS, text)

    version = VersionFollower(
        kube_api, outside.kubernetes, context.root, notify=version_differs, rng=outside.rng
    )
    tasks = (Task("kubernetes-version", version.run),) if kube_api is not None else ()
    return version, [Component(version, tasks)]


def build_node(
    context: BuildContext,
    *,
    runtime_info: Callable[[], RuntimeInfo],
    wanted: Callable[[Pod], bool],
    volumes_in_use: Callable[[], list[str] | None],
    volumes_in_use_written: Callable[[], None],
    devices: Callable[[Mapping[str, str]], DeviceCounts],
) -> ApiNode:
    """The node objects, and the components that keep the API's Node and mirrors up to date.

    ``runtime_info`` returns the runtime's report about itself, ``wanted`` whether a static pod is
    still in the configuration. ``volumes_in_use``, ``volumes_in_use_written``: see NodeManager.
    ``devices`` returns the counts of plugins' devices, given the capacity that the API shows.
    """
    outside, options, started_at = context.outside, context.options, context.started_at
    recorder, signals = context.recorder, context.signals
    machine, clock, rng, api = outside.machine, outside.clock, outside.rng, outside.api
    info, node_ips = outside.runtime_info, machine.node_ips
    node: NodeManager | None = None
    lease: LeaseKeeper | None = None
    mirrors: ApiMirrorKeeper | None = None
    own = OwnNode(
        options.name,
        api.pods if api is not None else None,
        recorder,
        clock,
        initial=initial_node(machine.facts, options, info, node_ips=node_ips, now=started_at),
        written=lambda: node.node if node is not None else None,
        shown=signals.node_shown,
        rng=rng,
    )
    if api is not None:
        node = NodeManager(
            api.heartbeats,
            clock,
            options,
            machine.facts,
            node_ips=node_ips,
            recorder=recorder,
            health=signals.node_health,
            runtime_info=runtime_info,
            list_images=lambda: image_summaries(outside.images),
            startup=NodeStartup(
                outside.metrics.node,
                clock,
                booted_at=machine.booted_at,
                started_at=started_at if machine.started_at is None else machine.started_at,
            ),
            newest=own.as_shown,
            deleted=own.deleted,
            not_found=own.not_found,
            replaced=signals.node_replaced,
            answered=signals.node_answered,
            volumes_in_use=volumes_in_use,
            volumes_in_use_written=volumes_in_use_written,
            devices=devices,
            rng=rng,
        )
        lease = LeaseKeeper(
            api.heartbeats,
            clock,
            options.name,
            options.lease_duration_s,
            node_uid=own.live_uid,
            answered_again=signals.api_back,
            rng=rng,
        )
        mirrors = ApiMirrorKeeper(
            api.pods, options.name, lambda: own.live_uid() or None, wanted=wanted, rng=rng
        )
    return ApiNode(node, lease, mirrors, own)
