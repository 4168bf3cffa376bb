"""Builds the observers of the core: explain, plan and the servers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import to_builtins

from kubeletpy.agent.context import Component
from kubeletpy.agent.core import Core
from kubeletpy.agent.eviction import Eviction
from kubeletpy.agent.served import served, serving_certificate
from kubeletpy.base.structs import Struct
from kubeletpy.node.build import RuntimeStart
from kubeletpy.observe.explain.snapshot import RemovedPods, Snapshots
from kubeletpy.observe.explain.stuck import StuckPods
from kubeletpy.observe.foresee.model import NodeQueries
from kubeletpy.pods.resources import MEMORY_VOLUMES_GATE as MEMORY_VOLUMES
from kubeletpy.server.pod_resources.server import PodResourcesServer
from kubeletpy.server.tls import ServingCertificate

if TYPE_CHECKING:
    from kubeletpy.base.api.types import JSON
    from kubeletpy.observe.foresee.model import Foreseen
    from kubeletpy.server.pod_resources.answers import NodeAllocations
    from kubeletpy.server.pods_api.server import PodsServer

_UNITS = {
    "/containerd.sock": "containerd.service",
    "/crio.sock": "crio.service",
    "/cri-dockerd.sock": "cri-docker.service",
}
"""Socket names of runtimes -> the units that their packages install."""


class Observers(Struct, frozen=True):
    """The observers of the core.

    Attributes:
        certificate: None: the server's is in files.
        pods_api: None: the pods API is not served.
    """

    components: list[Component]
    stuck: StuckPods
    removed: RemovedPods
    certificate: ServingCertificate | None
    pods_api: PodsServer | None


def build_observers(core: Core, eviction: Eviction) -> Observers:
    """Raises ServerError if the server can't work with these settings."""
    loop, devices, claims, pressure = core.loop, core.devices, core.claims, eviction.pressure
    snapshots = Snapshots(
        core.state.pods,
        core.workers,
        core.state.queries,
        core.state.statuses,
        cache=core.state.cache,
        reasons=core.state.reasons,
        probes=core.probes,
        clock=core.outside.clock,
        runtime_error=core.health.runtime_error,
        network_error=core.monitor.network_error,
        awaits_admission=loop.awaits_admission,
        awaited_plugins=devices.awaited,
        volume_waits=core.storage.claims.reports,
        claim_waits=claims.manager.waits,
        failing_watches=core.storage.failing_watches,
        held=lambda pod: [
            *core.placement.cpus.held_by(pod),
            *core.placement.memory.held_by(pod),
            *devices.held_by(pod),
            *claims.manager.held_by(pod),
        ],
        missing_secrets=core.pull_secrets.missing,
        node=core.node.own.current,
        pulls=core.images.manager.pulls,
        runtime_good_at=lambda: core.monitor.good_at,
        runtime_start=runtime_start(
            core.settings.container_runtime_endpoint if core.outside.sockets else "",
            core.root,
            systemd=Path("/run/systemd/system").is_dir(),
        ),
        node_name=core.node_name,
        excluded=eviction.excluded,
    )
    node = NodeQueries(
        core.node_name,
        core.state.pods,
        core.outside.images.image_status,
        judge=core.admission.gate.foresee,
        others=loop.admitted_pods,
        place=core.placement.preview,
        allocated=core.allocations.allocated,
        resized=core.allocations.resized,
        seen=core.state.cache.status,
        probes=core.probes.results,
        intends=core.runtime.intends,
        traces=core.state.traces,
        levels=lambda: to_builtins(pressure.report())["levels"] if pressure is not None else (),
        evictions=eviction.order,
        settings=core.runtime.settings,
        memory_volumes=core.settings.feature_gates.enabled(MEMORY_VOLUMES),
    )

    async def foresee(requested: JSON) -> Foreseen:
        from kubeletpy.observe.foresee.foreseer import Foreseer  # loaded with the first request

        return await Foreseer(node).foresee(requested)

    removed = RemovedPods(snapshots.facts)
    certificate, certificate_components = serving_certificate(core)
    resources_api = _pod_resources(core) if core.outside.sockets else None
    pods_api = _pods_api(core) if core.outside.sockets else None
    local_apis = [each for each in (resources_api, pods_api) if each is not None]
    components = served(
        core,
        eviction,
        snapshots,
        foresee=foresee,
        removed=removed,
        certificate=certificate,
        problems=[
            core.cgroups.problem,
            *core.node.problems(),
            *core.manifest_problems,
            *(each.problem for each in local_apis),
        ],
    )
    return Observers(
        [
            *certificate_components,
            *(Component(each, start=each.start, close=each.close) for each in local_apis),
            *components,
        ],
        StuckPods(snapshots.ending, snapshots.facts, core.recorder),
        removed,
        certificate,
        pods_api,
    )


def runtime_start(endpoint: str, root: Path, *, systemd: bool) -> RuntimeStart:
    """Find what starts the runtime of an endpoint ("": it has none) for an agent with that root.

    ./up.sh keeps its runtime in the directory ``containerd`` beside the agent's ``node/kubelet``.
    """
    socket = endpoint.removeprefix("unix://")
    units = (unit for name, unit in _UNITS.items() if socket.endswith(name))
    return RuntimeStart(
        endpoint,
        next(units, "") if systemd else "",
        by_up=socket == str(root.parent.parent / "containerd" / "containerd.sock"),
    )


def _pod_resources(core: Core) -> PodResourcesServer:
    """The pod resources API, for programs on this node."""

    def sources() -> NodeAllocations:
        from kubeletpy.server.pod_resources.answers import NodeAllocations

        placement = core.placement
        return NodeAllocations(core.devices, placement.cpus, placement.memory, core.claims.manager)

    return PodResourcesServer(
        core.root / "pod-resources",
        core.outside.metrics.pod_resources,
        sources,
        active=core.state.active,
        pods=core.state.pods.pods,
        release=core.placement.release,
    )


def _pods_api(core: Core) -> PodsServer | None:
    """The pods API, for programs on this node; None: its feature gate is off."""
    if not core.gates.enabled("PodsAPI"):
        return None
    from kubeletpy.server.pods_api.server import PodsServer  # gRPC is not needed without it

    return PodsServer(
        core.root / "pods-api",
        core.outside.metrics.pods_api,
        ready=core.state.sources.all,
        pods=core.state.pods.pods,
        pod=core.state.pods.get,
        status=core.state.statuses.get_status,
        known=core.state.statuses.uids,
        reported=core.state.statuses.reported,
    )
