"""How the runs of a container end, and who ended them. Pure."""

from __future__ import annotations

from kubeletpy.observe.explain.containers import containers, exits, find_view, last_exit
from kubeletpy.observe.explain.facts import PodFacts
from kubeletpy.observe.explain.model import ContainerStateKey, ContainerView, Exit, Role
from kubeletpy.pods.decision import KillReason
from kubeletpy.pods.probe_results import ProbeOutcome
from kubeletpy.pods.restart_rules import restart_after_exit
from kubeletpy.probes.schedule import ProbeKind

RECENTLY_S = 600.0
"""A container that has run this long is well again: its backoff starts anew then.

Source: docs/reference/behaviour.md, d."""
NEVER_STARTED = ("StartError", "ContainerCannotRun")
"""Exit reasons of programs that never ran: the runtimes' terms, containerd's first."""
_NO_LOG = (*NEVER_STARTED, "ContainerStatusUnknown")
"""Exit reasons of runs without a log: the program never ran, or the runtime lost the container."""

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
    view = find_view(facts, name)
    if view is None or view.state is not ContainerStateKey.RUNNING:
        return None
    kills = [one for one in facts.history if one.decision.killed == name]
    latest = max(kills, key=lambda one: one.last_at or one.at, default=None)
    if latest is None or facts.now - (latest.last_at or latest.at) > RECENTLY_S:
        return None
    return _PROBES.get(latest.decision.kill_reason)


def ended_alone(facts: PodFacts) -> tuple[ContainerView, bool, str] | None:
    """A container that has ended in a pod that runs: whether it is started again, and why."""
    pod = facts.pod
    if pod is None or facts.ready or facts.phase != "Running":
        return None
    for view in containers(facts):
        found = pod.find_container(view.name)
        if view.kind is Role.CONTAINER and view.exit_code is not None and found is not None:
            again, why = restart_after_exit(pod.restart_policy, found[1], view.exit_code)
            return view, again, why
    return None


def has_log(facts: PodFacts, name: str) -> bool:
    """Whether there may be a log of a container ("": of any): not if no known run has one."""
    if any(
        one.state is ContainerStateKey.RUNNING and name in ("", one.name)
        for one in containers(facts)
    ):
        return True
    runs = [one for one in exits(facts) if name in ("", one.container)]
    if not runs:
        return bool(name)
    return any(one.started_at is not None and one.reason not in _NO_LOG for one in runs)


def restless(facts: PodFacts) -> ContainerView | None:
    """A container that runs now and was restarted again and again until a short while ago."""
    for view in containers(facts):
        if view.state is not ContainerStateKey.RUNNING or view.restarts < 2 or view.since is None:
            continue
        ended = last_exit(facts, view.name)
        when = None if ended is None else ended.finished_at
        if when is not None and max(facts.now - when, facts.now - view.since) < RECENTLY_S:
            return view
    return None
