"""Pod cgroups: a part of the composition root. Must never decide anything about a pod."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kubeletpy.agent.component import Component, Task
from kubeletpy.agent.context import BuildContext
from kubeletpy.agent.pod_state import PodState
from kubeletpy.base.structs import Struct
from kubeletpy.pods.pod import Pod
from kubeletpy.resources.cgroups.driver_check import DriverCheck
from kubeletpy.resources.cgroups.limits import KernelPodLimits
from kubeletpy.resources.cgroups.pod_cgroups import PodCgroups
from kubeletpy.resources.cgroups.tree import CgroupTree
from kubeletpy.runtime_manager.pod_limits import NoPodCgroupLimits, PodCgroupLimits


class Cgroups(Struct, frozen=True):
    """The cgroup objects for the rest of the composition root.

    Attributes:
        tree: None: the machine's cgroups are not ours to use (a simulation, cgroupsPerQOS off).
        pods: creates and removes pod cgroups; None without a tree.
        parent: the cgroup in which a pod's sandbox is created.
        limits: sets what a pod may use.
        driver_check: sees whether the runtime has the agent's cgroup driver; None without a tree.
    """

    tree: CgroupTree | None
    pods: PodCgroups | None
    parent: Callable[[Pod], str]
    limits: PodCgroupLimits
    components: list[Component]
    driver_check: DriverCheck | None = None

    def problem(self) -> str:
        """Why limits of pods do not hold; empty: nothing is known to be wrong."""
        return self.driver_check.problem() if self.driver_check is not None else ""


def build_cgroups(
    context: BuildContext,
    state: PodState,
    *,
    has_no_quota: Callable[[Pod], bool],
    active_pods: Callable[[], Sequence[Pod]],
    has_volumes: Callable[[str], bool],
) -> Cgroups:
    """Args:
    has_no_quota: whether CPUs of its own leave a pod without a CFS quota.
    active_pods: with the resources allocated to them.
    has_volumes: whether volumes of a pod (uid) are still mounted.
    """
    outside, recorder = context.outside, context.recorder
    found = outside.machine.cgroups
    if found is None:
        return Cgroups(None, None, lambda pod: "", NoPodCgroupLimits(), [])
    if not isinstance(found, CgroupTree):
        return Cgroups(None, None, found.parent, found, [])
    found.has_no_quota = has_no_quota
    pods = PodCgroups(
        found,
        recorder,
        outside.metrics.node,
        node_name=context.node_name,
        active_pods=active_pods,
        in_use=state.remains.may_run,
        has_volumes=has_volumes,
    )
    component = Component(
        pods,
        (Task("cgroups", pods.run),),
        keep=lambda found: pods.sweep_soon(),
        close=pods.close,
    )

    def pod_name(uid: str) -> str:
        return next((pod.key for pod in active_pods() if pod.uid == uid), uid)

    check = DriverCheck(
        found,
        recorder,
        node_name=context.node_name,
        runtime_name=outside.runtime_info.name,
        pod_name=pod_name,
        on_change=context.signals.node_changed,
    )
    components = [component, Component(check, (Task("cgroup-driver", check.run),))]
    return Cgroups(found, pods, pods.parent, KernelPodLimits(found, pods), components, check)
