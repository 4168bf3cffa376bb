"""Which pods end when, and how long they have, while the machine shuts down. Pure.

Source: docs/reference/behaviour.md, q; docs/reference/constants.csv: shutdown; KEP-2000 and
KEP-2712.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kubeletpy.base.api import types as api
from kubeletpy.base.structs import Struct
from kubeletpy.config.settings import KubeletSettings
from kubeletpy.pods.pod import Pod, with_disruption

CRITICAL_PRIORITY = 2_000_000_000
REASON = "Terminated"
MESSAGE = "Pod was terminated in response to imminent node shutdown."


class Period(Struct, frozen=True):
    """How long pods of at least a priority have."""

    priority: int
    seconds: int


class ShutdownGroup(Struct, frozen=True):
    """Pods that end together."""

    period: Period
    pods: tuple[Pod, ...]


def periods(
    total: float, critical: float, by_priority: Iterable[tuple[int, int]] = ()
) -> tuple[Period, ...]:
    """The periods of a configuration, lowest priority first; empty: the feature is off.

    Args:
        total: shutdownGracePeriod, seconds.
        critical: shutdownGracePeriodCriticalPods, seconds of ``total`` for critical pods.
        by_priority: shutdownGracePeriodByPodPriority, (priority, seconds); overrides the others.
    """
    found = [Period(priority, seconds) for priority, seconds in by_priority]
    if not found:
        rest = int(total) - int(critical)
        found = [Period(0, rest), Period(CRITICAL_PRIORITY, int(critical))]
    if sum(period.seconds for period in found) <= 0:
        return ()
    return tuple(sorted(found, key=lambda period: period.priority))


def periods_of(settings: KubeletSettings) -> tuple[Period, ...]:
    """The settings of graceful node shutdown; empty: it is off."""
    return periods(
        settings.shutdown_grace_period,
        settings.shutdown_grace_period_critical_pods,
        [
            (each.priority, each.shutdown_grace_period_seconds)
            for each in settings.shutdown_grace_period_by_pod_priority
        ],
    )


def groups(pods: Iterable[Pod], of: Sequence[Period]) -> list[ShutdownGroup]:
    """Pods grouped by the highest period that their priority reaches, in ending order.

    A pod below all of them belongs to the lowest. Periods without pods are left out.
    """
    members: dict[int, list[Pod]] = {}
    for pod in pods:
        priority = pod.priority
        reached = [index for index, period in enumerate(of) if period.priority <= priority]
        members.setdefault(reached[-1] if reached else 0, []).append(pod)
    return [
        ShutdownGroup(period, tuple(members[index]))
        for index, period in enumerate(of)
        if index in members
    ]


def grace(pod: Pod, period: Period) -> int:
    """Seconds a pod gets: its own grace period, at most that of its group."""
    return min(pod.termination_grace_period, period.seconds)


def ended_status(status: api.PodStatus, now: float, generation: int = 0) -> api.PodStatus:
    """The status of a pod that the shutdown ends; a succeeded pod stays succeeded."""
    conditions = with_disruption(status, MESSAGE, now, generation)
    ended: api.PodStatus = {**status, "reason": REASON, "message": MESSAGE}
    if status.get("phase") != "Succeeded":
        ended["phase"] = "Failed"
    ended["conditions"] = conditions
    return ended
