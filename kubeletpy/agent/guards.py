"""Builds the guards of the machine: a part of the composition root.

Must never decide anything about a pod.
"""

from __future__ import annotations

from functools import partial

from kubeletpy.agent.component import Component, Task
from kubeletpy.agent.context import BuildContext
from kubeletpy.kubeapi.events.reasons import Reason
from kubeletpy.kubeapi.events.recorder import WARNING, node_reference
from kubeletpy.node.guards.at_start import MachineAtStart, StartSettings
from kubeletpy.node.guards.chains import PROGRAMS
from kubeletpy.node.guards.daemons import DaemonCgroups
from kubeletpy.node.guards.iptables import IPTablesChains
from kubeletpy.node.guards.kernel_log import system_oom
from kubeletpy.node.guards.oom_watch import MARK, OOMWatch
from kubeletpy.resources.cgroups.names import parse_existing


def build_guards(context: BuildContext) -> list[Component]:
    """None for a machine that is not to be guarded (a simulated one)."""
    settings, machine, root = context.settings, context.outside.machine, context.root
    if (host := machine.guarded) is None:
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
    watch = OOMWatch(
        host.open_kernel_log,
        root / MARK,
        machine.facts.boot_id,
        lambda kill: warn(Reason.SYSTEM_OOM, system_oom(kill)),
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
