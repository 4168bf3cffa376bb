"""Builds the parts about the node: its object and lease, mirror pods, guards, and admission."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import partial

from kubeletpy.agent.context import BuildContext, Component, Run, Task, after
from kubeletpy.agent.pod_state import PodState
from kubeletpy.base.structs import Struct, replace
from kubeletpy.base.tasks import run_all
from kubeletpy.config import KubeletSettings
from kubeletpy.kubeapi.events.reasons import Reason
from kubeletpy.kubeapi.events.recorder import NORMAL, WARNING, node_reference
from kubeletpy.node.build import NodeHealth, RuntimeInfo, initial_node
from kubeletpy.node.facts import NodeOptions
from kubeletpy.node.guards.at_start import DaemonCgroups, MachineAtStart, StartSettings
from kubeletpy.node.guards.iptables import PROGRAMS, IPTablesChains
from kubeletpy.node.guards.oom_watch import MARK, OOMWatch, system_oom
from kubeletpy.node.lease import LeaseKeeper
from kubeletpy.node.node_manager import NodeManager, NodeStartup, image_summaries
from kubeletpy.node.own_node import OwnNode
from kubeletpy.node.server_version import VersionFollower
from kubeletpy.node.shutdown.logind import Logind
from kubeletpy.node.shutdown.plan import periods_of
from kubeletpy.node.shutdown.shutdown_manager import ShutdownManager
from kubeletpy.pods.pod import DeviceCounts, Pod
from kubeletpy.podworkers.workers import PodWorkers
from kubeletpy.resources.admission.checks import NodeState
from kubeletpy.resources.admission.user_namespace import refused
from kubeletpy.resources.cgroups.values import parse_existing
from kubeletpy.resources.devices.device_manager import DeviceManager
from kubeletpy.status.conditions import is_ready
from kubeletpy.syncloop.admission_gate import AdmissionGate, Hold, Place
from kubeletpy.syncloop.mirror import ApiMirrorKeeper
from kubeletpy.volumes.volume_manager import VolumeManager


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


def build_version(context: BuildContext) -> VersionFollower | None:
    """None: the agent's version was not resolved from anything."""
    outside = context.outside
    if outside.kubernetes is None:
        return None

    def version_differs(text: str, warning: bool) -> None:
        kind, node = WARNING if warning else NORMAL, node_reference(context.node_name)
        context.recorder.event(node, kind, Reason.KUBERNETES_VERSION_DIFFERS, text)

    kube_api, root = context.kube_api, context.root
    return VersionFollower(
        kube_api, outside.kubernetes, root, notify=version_differs, rng=outside.rng
    )


def version_components(context: BuildContext, version: VersionFollower | None) -> list[Component]:
    """The component of the follower, which has a task if there is an API."""
    if version is None:
        return []
    run = version.run if context.kube_api is not None else None
    return [Component(version, (Task("kubernetes-version", run),) if run is not None else ())]


def build_node(
    context: BuildContext,
    *,
    runtime_info: Callable[[], RuntimeInfo],
    desired: Callable[[Pod], bool],
    health: Callable[[], NodeHealth],
    volumes_in_use: Callable[[], list[str] | None],
    volumes_in_use_written: Callable[[], None],
    devices: Callable[[Mapping[str, str]], DeviceCounts],
) -> ApiNode:
    """The node objects, and the components that keep the API's Node and mirrors up to date.

    ``runtime_info`` returns the runtime's report about itself, ``desired`` whether a static pod is
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
        reported=signals.node_reported,
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
            health=health,
            runtime_info=runtime_info,
            list_images=lambda: image_summaries(outside.images),
            startup=NodeStartup(
                outside.metrics.node,
                clock,
                booted_at=machine.booted_at,
                started_at=started_at if machine.started_at is None else machine.started_at,
            ),
            newest=own.as_reported,
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
            api.pods, options.name, lambda: own.live_uid() or None, desired=desired, rng=rng
        )
    return ApiNode(node, lease, mirrors, own)


# Guards of the machine.


def build_oom_watch(context: BuildContext) -> OOMWatch | None:
    """Follows the kernel's log; None: the machine is not to be guarded."""
    machine, warn = context.outside.machine, context.recorder.event
    if (host := machine.guarded) is None:
        return None
    node = node_reference(context.node_name)
    return OOMWatch(
        host.open_kernel_log,
        context.root / MARK,
        machine.facts.boot_id,
        lambda kill: warn(node, WARNING, Reason.SYSTEM_OOM, system_oom(kill)),
        context.signals.process_killed,
    )


def build_guards(context: BuildContext, watch: OOMWatch | None) -> list[Component]:
    """None for a machine that is not to be guarded (a simulated one)."""
    settings, machine, root = context.settings, context.outside.machine, context.root
    if (host := machine.guarded) is None or watch is None:
        return []
    warn = partial(context.recorder.event, node_reference(context.node_name), WARNING)
    at_start = MachineAtStart(
        StartSettings.from_settings(settings, keep_kernel=context.flags.keep_kernel_settings),
        host,
        warn,
        root=root,
        cgroup_v2=machine.kernel.cgroup_v2,
        swap_on=machine.facts.swap_bytes > 0,
        kernel_version=machine.facts.kernel_version,
        in_user_namespace=machine.facts.in_user_namespace,
    )
    components = [
        Component(at_start, (Task("own-process", at_start.run),), start=at_start.start),
        Component(watch, (Task("kernel-log", watch.run, late=True),)),
    ]
    if settings.make_iptables_util_chains:
        for version, program in PROGRAMS.items():
            chains = IPTablesChains(version, host.run)
            components.append(Component(chains, (Task(program, chains.run),)))
    if host.groups is not None and (settings.kubelet_cgroups or settings.system_cgroups):
        daemons = DaemonCgroups(
            host.groups,
            kubelet=_path(settings.kubelet_cgroups),
            system=_path(settings.system_cgroups),
            proc=host.proc,
            own=host.own_pid,
        )
        components.append(Component(daemons, (Task("daemon-cgroups", daemons.run),)))
    return components


def _path(configured: str) -> str:
    return parse_existing(configured) if configured else ""


# Admission and graceful shutdown.


class Admission(Struct, frozen=True):
    """The objects that decide which pods the node runs."""

    gate: AdmissionGate
    shutdown: ShutdownManager


def admission_state(
    settings: KubeletSettings, options: NodeOptions, kernel_version: str, *, apparmor: bool
) -> NodeState:
    """Return the facts of the node that admission needs besides its object and conditions."""
    gates = settings.feature_gates
    return NodeState(
        allowed_unsafe_sysctls=settings.allowed_unsafe_sysctls,
        kernel_version=kernel_version,
        apparmor=apparmor,
        pod_level_resources=gates.enabled("PodLevelResources"),
        declared_features=options.declared_features
        if gates.enabled("NodeDeclaredFeatures")
        else None,
        version=gates.version,
    )


def build_admission(
    context: BuildContext,
    state: PodState,
    workers: PodWorkers,
    *,
    node: OwnNode,
    place: Place,
    devices: DeviceManager,
    manager: NodeManager | None,
    volumes: VolumeManager,
    awaits_admission: Callable[[str], bool],
    offline: Hold | None,
) -> Admission:
    """Build the admission gate and graceful shutdown.

    Args:
        node: the newest Node object that the agent has.
        place: assigns a pod its position on the machine.
        devices: they hold a share of the node's resources, and pods wait for their plugins.
        manager: keeps the Node in the API up to date; None: there is no API.
        volumes: of claims, which a shutdown waits for.
        awaits_admission: whether it is still undecided if a pod (by uid) may run here.
        offline: holds pods before the API server has answered.
    """
    settings, outside, options = context.settings, context.outside, context.options
    clock, kernel, gates = outside.clock, outside.machine.kernel, context.gates

    async def reported(uids: Collection[str]) -> None:
        node_up_to_date = [] if manager is None else [manager.up_to_date()]
        await run_all(state.statuses.delivered(uids), *node_up_to_date)

    shutdown = ShutdownManager(
        periods_of(settings),
        connect=Logind.connect,
        pods=lambda: [pod for pod in state.active() if not awaits_admission(pod.uid)],
        kill=workers.kill_pod,
        is_finished=state.queries.should_be_finished,
        changed=context.signals.shutdown_changed,
        observe=outside.metrics.node.shutdown_observed,
        recorder=context.recorder,
        clock=clock,
        node_name=options.name,
        root_dir=context.root,
        is_ready=lambda uid: is_ready(state.statuses.get_status(uid) or {}),
        is_reported=state.statuses.is_reported,
        reported=reported,
        unused_volumes=volumes.unused,
        torn_down=volumes.torn_down,
    )
    always = admission_state(
        settings, options, outside.machine.facts.kernel_version, apparmor=kernel.apparmor
    )
    if rights := outside.machine.facts.rights:
        always = replace(always, lacks_rights=partial(refused, rights=rights), apparmor=False)

    def now() -> NodeState:
        pressures = context.pressures()
        return replace(
            always,
            pressures=pressures,
            in_runtime=frozenset(state.cache) if pressures else frozenset(),
        )

    gate = AdmissionGate(
        now,
        context.recorder,
        clock,
        outside.metrics.workers,
        node=node.current,
        newest_node=node.newest,
        kill=workers.kill_pod,
        place=place,
        held=devices.held_counts,
        plugins=devices.returned,
        shutdown_over=lambda pod: (
            None if pod.status.get("startTime") or state.cache.get(pod.uid) else shutdown.over()
        ),
        **({"offline": offline} if offline is not None else {}),
        resizes_preempt=not gates.enabled("InPlacePodVerticalScalingSchedulerPreemption"),
    )
    return Admission(gate, shutdown)
