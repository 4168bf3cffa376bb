"""Decides what happens to each regular container in a sandbox that stays.

A pure function. Must never start what runs. Source: docs/reference/behaviour.md, c5.
"""

from __future__ import annotations

from kubeletpy.base.api import types as api
from kubeletpy.base.structs import Struct
from kubeletpy.pods.pod import ContainerKind, Pod
from kubeletpy.pods.runtime_status import (
    ContainerState,
    ContainerStatus,
    Decision,
    KillReason,
    PodRuntimeStatus,
    ProbeOutcome,
    ProbeResults,
    restart_allowed,
    should_container_be_restarted,
)
from kubeletpy.runtime_manager.names.container_hash import container_hash
from kubeletpy.runtime_manager.plan.actions import (
    KillContainer,
    StartContainer,
    kill_decision,
    start_decision,
)
from kubeletpy.runtime_manager.plan.resize import ContainerResize, InEffect, judge_container


class ContainerVerdict(Struct, frozen=True):
    """The decision about one regular container."""

    keep: bool = False
    start: StartContainer | None = None
    kill: KillContainer | None = None
    resize: ContainerResize | None = None
    decisions: tuple[Decision, ...] = ()


_KEEP = ContainerVerdict(keep=True)


def judge_regular(
    pod: Pod,
    container: api.Container,
    status: PodRuntimeStatus,
    probes: ProbeResults,
    in_effect: InEffect | None,
) -> ContainerVerdict:
    """Keep, start, kill or resize one container."""
    record = status.newest(container["name"])
    if record is not None and record.state is ContainerState.RUNNING:
        return _judge_running(pod, container, record, probes, in_effect)
    wanted, why = should_container_be_restarted(pod, container, status)
    if not wanted:
        return ContainerVerdict(decisions=(Decision(f"leave container {container['name']}", why),))
    again = record is not None and record.state is ContainerState.EXITED
    start = StartContainer(ContainerKind.REGULAR, container, why, again)
    if record is None or record.state is not ContainerState.UNKNOWN:
        return ContainerVerdict(start=start, decisions=(start_decision(start),))
    message = f'Container is in "{record.state}" state, try killing it before restart'
    kill = _kill(container, record, message, KillReason.UNKNOWN_STATE)
    return ContainerVerdict(
        start=start, kill=kill, decisions=(kill_decision(kill), start_decision(start))
    )


def _judge_running(
    pod: Pod,
    container: api.Container,
    record: ContainerStatus,
    probes: ProbeResults,
    in_effect: InEffect | None,
) -> ContainerVerdict:
    name = container["name"]
    if record.hash != container_hash(container):
        message, reason = f"Container {name} definition changed", KillReason.DEFINITION_CHANGED
    elif probes.liveness.get(record.id) is ProbeOutcome.FAILURE:
        message, reason = f"Container {name} failed liveness probe", KillReason.LIVENESS_PROBE
    elif probes.startup.get(record.id) is ProbeOutcome.FAILURE:
        message, reason = f"Container {name} failed startup probe", KillReason.STARTUP_PROBE
    else:
        return _judge_resources(pod, container, record, in_effect)
    start = None
    if reason is KillReason.DEFINITION_CHANGED or restart_allowed(pod, container):
        message += ", will be restarted"
        start = StartContainer(ContainerKind.REGULAR, container, message)
    kill = _kill(container, record, message, reason)
    return ContainerVerdict(start=start, kill=kill, decisions=(kill_decision(kill),))


def _judge_resources(
    pod: Pod, container: api.Container, record: ContainerStatus, in_effect: InEffect | None
) -> ContainerVerdict:
    if in_effect is None:
        return _KEEP
    resize = judge_container(pod, container, ContainerKind.REGULAR, record, in_effect)
    if resize is None:
        return _KEEP
    if not resize.restart:
        return ContainerVerdict(keep=True, resize=resize, decisions=resize.decisions)
    message = f"Container {container['name']} resize requires restart"
    return ContainerVerdict(
        start=StartContainer(ContainerKind.REGULAR, container, resize.why),
        kill=_kill(container, record, message, KillReason.RESIZE),
        resize=resize,
        decisions=resize.decisions,
    )


def _kill(
    container: api.Container, record: ContainerStatus, message: str, reason: KillReason
) -> KillContainer:
    return KillContainer(record.id, record.name, ContainerKind.REGULAR, container, message, reason)
