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
NOTICE_SHARE = 0.1
NOTICE_MOST_S = 5.0
REPORT_MOST_S = 5.0
"""Seconds for the last statuses, once all pods have ended; a silent API server gets no more."""
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


class Notice(Struct, frozen=True):
    """The time before the first pod is terminated, in seconds of the first group's period."""

    deliver: float
    """At most so long until the API shows node and pods as not ready."""
    spread: float
    """So long after that, until other nodes send no more requests to the pods."""


def notice(first: Period) -> Notice:
    """The notice that a shutdown gives; ``first``: the period of the group that ends first."""
    share = min(first.seconds * NOTICE_SHARE, NOTICE_MOST_S)
    return Notice(share, share)


def grace(pod: Pod, left: float) -> int:
    """Seconds a pod gets: its own grace period, at most what is left of its group's."""
    return min(pod.termination_grace_period, max(0, int(left)))


def looks_completed(pod: Pod) -> bool:
    """Whether the next start could take a pod for a completed one by its exit codes alone.

    One that restarts in any case is restarted then, if the API has not heard of its end.
    """
    own_policy = any("restartPolicy" in container for container in pod.containers)
    return not pod.is_static and (pod.restart_policy != "Always" or own_policy)


def ended_status(status: api.PodStatus, now: float, generation: int = 0) -> api.PodStatus:
    """The status of a pod that the shutdown ends; a succeeded pod stays succeeded."""
    conditions = with_disruption(status, MESSAGE, now, generation)
    ended: api.PodStatus = {**status, "reason": REASON, "message": MESSAGE}
    if status.get("phase") != "Succeeded":
        ended["phase"] = "Failed"
    ended["conditions"] = conditions
    return ended
