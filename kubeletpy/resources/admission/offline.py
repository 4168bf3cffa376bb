"""Whether a pod starts although no API server has answered since the agent's start. Pure.

A node whose lease is not renewed gets the taint ``node.kubernetes.io/unreachable``, or
``not-ready`` if that was its last status. The taint manager then deletes each pod after the
tolerationSeconds of its tolerations. A pod's replacement can run from then on. The count begins at
the last contact, which is earlier than the taint: the node controller's grace period is a margin.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any

from kubeletpy.base.api.times import Moment, format_time, parse_time
from kubeletpy.base.structs import Struct
from kubeletpy.config.flags import OfflineStart
from kubeletpy.pods.pod import Pod
from kubeletpy.resources.admission.checks import tolerations_of

TAINTS = ("node.kubernetes.io/unreachable", "node.kubernetes.io/not-ready")
"""Keys of the taints that the node controller sets on a node that it does not hear of."""
NO_EXECUTE = "NoExecute"


class OfflineRule(StrEnum):
    """The rule that decided; see :func:`decide`."""

    ENDING = "Ending"
    RUNNING = "Running"
    ALWAYS = "Always"
    TOLERATED = "Tolerated"
    WITHIN = "Within"
    REPLACEABLE = "Replaceable"
    CLOCK_BEHIND = "ClockBehind"
    CLOCK_UNKNOWN = "ClockUnknown"
    NO_RECORD = "NoRecord"


class Absence(Struct, frozen=True):
    """How long the control plane has not heard of this node."""

    since: float | None = None
    """The last contact in Unix seconds; None: there is no record of one."""
    seconds: float | None = None
    """None: the clock does not show how much time has passed."""
    clock_behind: bool = False
    """The clock shows a time before the last contact."""


class OfflineVerdict(Struct, frozen=True):
    """Whether a pod starts without the API server, and why.

    Attributes:
        since: the last contact in Unix seconds; None: unknown.
        until: Unix seconds from which on the control plane may have replaced the pod; None: it does
            not replace it, or that does not matter.
    """

    starts: bool
    rule: OfflineRule
    since: float | None = None
    until: float | None = None


def absence(last: Moment | None, now: Moment) -> Absence:
    """How long ago the last contact was.

    Within one boot the kernel's clock is exact. After another boot the wall clock counts, unless it
    is before the last contact, or nothing has set it. A machine without a battery-backed clock
    continues from a time that it saved before the power cut.
    """
    if last is None:
        return Absence()
    if last.boot_id == now.boot_id and now.since_boot >= last.since_boot:
        return Absence(last.at, now.since_boot - last.since_boot)
    if now.at < last.at:
        return Absence(last.at, None, clock_behind=True)
    return Absence(last.at, now.at - last.at if now.trusted else None)


def toleration_s(pod: Pod, key: str) -> float:
    """Seconds that a pod stays on a node with the taint ``key`` of effect NoExecute.

    The least tolerationSeconds of all matching tolerations counts, as in the taint manager; 0
    without a match, and inf if none of them is limited.
    """
    matching = tolerations_of(pod, {"key": key, "effect": NO_EXECUTE})
    limits = [each.get("tolerationSeconds") for each in matching]
    if not limits:
        return 0.0
    return max(min((float(limit) for limit in limits if limit is not None), default=math.inf), 0.0)


def decide(
    pod: Pod,
    mode: OfflineStart,
    away: Absence,
    *,
    runs: bool = False,
    taints: Iterable[Mapping[str, Any]] = (),
) -> OfflineVerdict:
    """Whether a pod starts now, or waits until the API server has shown it.

    Args:
        pod: not a static one.
        mode: not Never.
        away: since when there is no contact.
        runs: a container of it runs on this node: it is no new copy.
        taints: of the Node object as last seen. The time may run since one of them was added.
    """
    if pod.being_deleted:
        return OfflineVerdict(True, OfflineRule.ENDING, away.since)
    if runs:
        return OfflineVerdict(True, OfflineRule.RUNNING, away.since)
    if mode is OfflineStart.ALWAYS:
        return OfflineVerdict(True, OfflineRule.ALWAYS, away.since)
    limit = min(toleration_s(pod, key) for key in TAINTS)
    if limit == math.inf:
        return OfflineVerdict(True, OfflineRule.TOLERATED, away.since)
    if away.since is None:
        return OfflineVerdict(False, OfflineRule.NO_RECORD)
    begun = min([away.since, *_added(taints)])
    until = begun + limit
    if away.seconds is None:
        rule = OfflineRule.CLOCK_BEHIND if away.clock_behind else OfflineRule.CLOCK_UNKNOWN
        return OfflineVerdict(False, rule, away.since, until)
    within = away.since + away.seconds < until
    rule = OfflineRule.WITHIN if within else OfflineRule.REPLACEABLE
    return OfflineVerdict(within, rule, away.since, until)


def _added(taints: Iterable[Mapping[str, Any]]) -> list[float]:
    """When the taints that count were added, as far as they state it."""
    found = []
    for taint in taints:
        if taint.get("key") in TAINTS and taint.get("effect") == NO_EXECUTE:
            try:
                found.append(parse_time(str(taint.get("timeAdded"))))
            except ValueError:
                continue
    return found


_TEXTS = {
    OfflineRule.ENDING: "it is being deleted",
    OfflineRule.RUNNING: "it runs on this node already",
    OfflineRule.ALWAYS: "--offline-start=Always starts every pod",
    OfflineRule.TOLERATED: "it tolerates an unreachable node without a limit: nothing replaces it",
    OfflineRule.WITHIN: "the control plane replaces it at {until} at the earliest",
    OfflineRule.REPLACEABLE: "the control plane may have replaced it since {until}",
    OfflineRule.CLOCK_BEHIND: "the node's clock shows a time before the last contact: it is not "
    "known whether the control plane has replaced it",
    OfflineRule.CLOCK_UNKNOWN: "nothing has set the node's clock since the boot: it is unknown "
    "whether the control plane has replaced it",
    OfflineRule.NO_RECORD: "there is no record of when the control plane last heard of this node",
}


def offline_text(verdict: OfflineVerdict) -> str:
    """The reason of a verdict for people, and what follows at the next contact."""
    until = "" if verdict.until is None else format_time(verdict.until)
    why = _TEXTS[verdict.rule].format(until=until)
    if verdict.since is not None:
        why += f" (last contact {format_time(verdict.since)})"
    if verdict.starts:
        return f"{why}. At contact it is ended if it was deleted, and updated if it was changed"
    return f"{why}. It starts once the API server shows it, and never if it was deleted"
