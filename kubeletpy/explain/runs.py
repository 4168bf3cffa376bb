"""How the runs of a container end, and who ended them. Pure."""

from __future__ import annotations

from kubeletpy.explain.containers import containers, last_exit
from kubeletpy.explain.facts import PodFacts
from kubeletpy.explain.model import ContainerView, Exit, State
from kubeletpy.pods.decision import KillReason
from kubeletpy.pods.probe_results import ProbeOutcome
from kubeletpy.probes.schedule import ProbeKind

RECENTLY_S = 600.0
"""A container that has run this long is well again: its backoff starts anew then.

Source: docs/reference/behaviour.md, d."""
NEVER_STARTED = ("StartError", "ContainerCannotRun")
"""Exit reasons of programs that never ran: the runtimes' terms, containerd's first."""

_PROBES: dict[KillReason | None, ProbeKind] = {
    KillReason.LIVENESS_PROBE: ProbeKind.LIVENESS,
    KillReason.STARTUP_PROBE: ProbeKind.STARTUP,
}


def never_ran(ended: Exit) -> bool:
    """Whether the program could not be started at all."""
    return ended.reason in NEVER_STARTED and bool(ended.message)


def killed_by(facts: PodFacts, name: str) -> ProbeKind | None:
    """The probe because of which the container's latest run was ended; None: no probe."""
    for report in facts.probe_reports:
        killing = report.kind is not ProbeKind.READINESS and report.settled is ProbeOutcome.FAILURE
        if report.container == name and killing:
            return report.kind
    view = next((one for one in containers(facts) if one.name == name), None)
    if view is None or view.state is not State.RUNNING:
        return None
    kills = [one for one in facts.history if one.decision.killed == name]
    latest = max(kills, key=lambda one: one.last_at or one.at, default=None)
    if latest is None or facts.now - (latest.last_at or latest.at) > RECENTLY_S:
        return None
    return _PROBES.get(latest.decision.kill_reason)


def restless(facts: PodFacts) -> ContainerView | None:
    """A container that runs now and was restarted again and again until a short while ago."""
    for view in containers(facts):
        if view.state is not State.RUNNING or view.restarts < 2 or view.since is None:
            continue
        ended = last_exit(facts, view.name)
        when = None if ended is None else ended.finished_at
        if when is not None and max(facts.now - when, facts.now - view.since) < RECENTLY_S:
            return view
    return None
