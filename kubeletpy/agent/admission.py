"""Admission: graceful shutdown and the admission gate. A part of the composition root.

Must never decide anything about a pod.
"""

from __future__ import annotations

from kubeletpy.agent.context import BuildContext
from kubeletpy.agent.pod_state import PodState
from kubeletpy.base.structs import Struct, replace
from kubeletpy.config import KubeletSettings
from kubeletpy.node.options import NodeOptions
from kubeletpy.node.own_node import OwnNode
from kubeletpy.node.shutdown.logind import SystemLogind
from kubeletpy.node.shutdown.plan import periods_of
from kubeletpy.node.shutdown.shutdown_manager import ShutdownManager
from kubeletpy.podworkers.workers import PodWorkers
from kubeletpy.resources.admission.facts import NodeState
from kubeletpy.resources.devices.device_manager import DeviceManager
from kubeletpy.syncloop.admission_gate import AdmissionGate, Place


class Admission(Struct, frozen=True):
    """The objects that decide which pods the node runs."""

    gate: AdmissionGate
    shutdown: ShutdownManager


def admission_state(
    settings: KubeletSettings, options: NodeOptions, kernel_version: str, *, apparmor: bool
) -> NodeState:
    """What admission needs to know of the node besides its object and its present condition."""
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
) -> Admission:
    """Args:
    node: the newest Node object that the agent has.
    place: assigns a pod its position on the machine.
    devices: they hold a share of the node's resources, and pods wait for their plugins.
    """
    settings, outside, options = context.settings, context.outside, context.options
    clock, kernel, gates = outside.clock, outside.machine.kernel, context.gates
    shutdown = ShutdownManager(
        periods_of(settings),
        connect=SystemLogind.connect,
        pods=state.active,
        kill=workers.kill_pod,
        is_finished=state.queries.should_be_finished,
        changed=context.signals.shutdown_changed,
        observe=outside.metrics.node.shutdown_observed,
        recorder=context.recorder,
        clock=clock,
        node_name=options.name,
        root_dir=context.root,
    )
    always = admission_state(
        settings, options, outside.machine.facts.kernel_version, apparmor=kernel.apparmor
    )

    def now() -> NodeState:
        pressures = context.signals.pressures()
        return replace(
            always,
            shutting_down=shutdown.shutting_down,
            pressures=pressures,
            let_in=frozenset(state.cache) if pressures else frozenset(),
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
        resizes_preempt=not gates.enabled("InPlacePodVerticalScalingSchedulerPreemption"),
    )
    return Admission(gate, shutdown)
