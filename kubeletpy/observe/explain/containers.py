"""The containers of a pod, how their runs ended, and the latest results of their probes. Pure.

Read from the pod's status and from the runtime's records. External text (messages, reasons) is
truncated and put on one line.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kubeletpy.observe.explain.deaths import DeathCause
from kubeletpy.observe.explain.facts import PodFacts
from kubeletpy.observe.explain.model import ContainerStateKey, ContainerView, Exit, ProbeView, Role
from kubeletpy.observe.explain.texts import api_time, one_line
from kubeletpy.pods.pod import ContainerKind, is_sidecar
from kubeletpy.pods.runtime_status import (
    ContainerState,
    ContainerStatus,
    KillReason,
    ProbeOutcome,
    reported_reason,
    restart_after_exit,
)
from kubeletpy.probes.schedule import ProbeKind, ProbeReport

MAX_EXITS = 20
_FIELDS = {
    ContainerKind.INIT: "initContainerStatuses",
    ContainerKind.REGULAR: "containerStatuses",
    ContainerKind.EPHEMERAL: "ephemeralContainerStatuses",
}


def containers(facts: PodFacts) -> tuple[ContainerView, ...]:
    """Return each container in the pod's spec: init containers, containers, ephemeral ones."""
    if facts.pod is None:
        return ()
    views = []
    for kind, container in facts.pod.all_containers():
        entries = _entries(facts, _FIELDS[kind])
        entry = next((one for one in entries if one.get("name") == container["name"]), {})
        role = {ContainerKind.REGULAR: Role.CONTAINER, ContainerKind.EPHEMERAL: Role.EPHEMERAL}.get(
            kind, Role.SIDECAR if is_sidecar(container) else Role.INIT
        )
        views.append(_view(entry, container["name"], role, container.get("image") or ""))
    return tuple(views)


def find_view(facts: PodFacts, name: str) -> ContainerView | None:
    """Return the container with that name, or None if the pod has none."""
    return next((view for view in containers(facts) if view.name == name), None)


def ephemeral(views: Iterable[ContainerView]) -> frozenset[str]:
    """Return the names of the containers that were added for debugging."""
    return frozenset(view.name for view in views if view.kind is Role.EPHEMERAL)


def exits(facts: PodFacts) -> tuple[Exit, ...]:
    """Return the ended runs, newest first, from the runtime's records and the status."""
    found = []
    seen: set[str] = set()
    for record in facts.runtime.containers if facts.runtime is not None else ():
        if record.state is not ContainerState.EXITED:
            continue
        seen.add(record.id)
        found.append(
            Exit(
                record.name,
                record.restart_count,
                record.exit_code,
                record.reason,
                one_line(_message(facts, record)),
                record.started_at / 1e9 if record.started_at > 0 else None,
                record.finished_at / 1e9 if record.finished_at > 0 else None,
                facts.deaths.get(record.id),
            )
        )
    for field in _FIELDS.values():
        for entry in _entries(facts, field):
            for name in ("state", "lastState"):
                ended = (entry.get(name) or {}).get("terminated")
                if ended and (run := _id_without_scheme(ended.get("containerID"))) not in seen:
                    found.append(_exit(entry.get("name", ""), ended, facts.deaths.get(run)))
    found.sort(key=lambda one: one.finished_at or 0.0, reverse=True)
    return tuple(found[:MAX_EXITS])


def _message(facts: PodFacts, record: ContainerStatus) -> str:
    found = facts.pod.find_container(record.name) if facts.pod is not None else None
    if record.started_at > 0 or found is None:
        return record.message
    return reported_reason(record.message, found[1])


def last_exit(facts: PodFacts, name: str) -> Exit | None:
    """Return how a container's latest finished run ended, or None if none has."""
    return next((one for one in exits(facts) if one.container == name), None)


def _entries(facts: PodFacts, field: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = facts.status.get(field) or []  # type: ignore[assignment]
    return found


def _view(entry: dict[str, Any], name: str, kind: Role, image: str) -> ContainerView:
    states = entry.get("state") or {}
    state = next((each for each in ContainerStateKey if each in states), ContainerStateKey.WAITING)
    detail = states.get(state) or {}
    since = (
        detail.get("startedAt") if state is ContainerStateKey.RUNNING else detail.get("finishedAt")
    )
    reason = detail.get("reason") or ""
    code = None
    if state is ContainerStateKey.TERMINATED:
        code = int(detail.get("exitCode") or 0)
        reason = f"{reason} ({code})".strip()
    return ContainerView(
        name,
        kind,
        image,
        state,
        reason,
        one_line(detail.get("message") or ""),
        api_time(since),
        bool(entry.get("ready")),
        int(entry.get("restartCount") or 0),
        _id_without_scheme(entry.get("containerID")),
        code,
    )


def _exit(name: str, ended: dict[str, Any], cause: DeathCause | None) -> Exit:
    return Exit(
        name,
        None,
        int(ended.get("exitCode") or 0),
        ended.get("reason") or "",
        one_line(ended.get("message") or ""),
        api_time(ended.get("startedAt")),
        api_time(ended.get("finishedAt")),
        cause,
    )


def _id_without_scheme(container_id: str | None) -> str:
    return (container_id or "").rpartition("://")[2]


RECENTLY_S = 600.0
"""A container that has run this long has recovered: its backoff starts anew then.

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
    """Return whether the program could not be started at all."""
    return ended.reason in NEVER_STARTED and bool(ended.message)


def killed_by(facts: PodFacts, name: str) -> ProbeKind | None:
    """Return the probe for which the container's latest run was killed, or None."""
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
    """Return an ended container of a running pod, whether it is started again, and why."""
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
    """Return whether a container may have a log; the name "" stands for any container."""
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
    """Return a container that runs now and was restarted repeatedly until recently, or None."""
    for view in containers(facts):
        if view.state is not ContainerStateKey.RUNNING or view.restarts < 2 or view.since is None:
            continue
        ended = last_exit(facts, view.name)
        when = None if ended is None else ended.finished_at
        if when is not None and max(facts.now - when, facts.now - view.since) < RECENTLY_S:
            return view
    return None


MAX_MESSAGE = 160


def probes(facts: PodFacts) -> tuple[ProbeView, ...]:
    """Return the probes of the pod's containers with their latest results."""
    return tuple(_probe_view(facts, report) for report in facts.probe_reports)


def find_report(facts: PodFacts, container: str, kind: ProbeKind) -> ProbeReport | None:
    """Return the latest results of a probe, or None if the container has no such probe now."""
    reports = (each for each in facts.probe_reports if each.container == container)
    return next((each for each in reports if each.kind is kind), None)


def last_message(facts: PodFacts, container: str, kind: ProbeKind) -> str:
    """Return the problem that a probe's latest run found, or "" if there was none or no output.

    Before the first run in a restarted container, it is the problem for which that was killed.
    """
    report = find_report(facts, container, kind)
    found = None if report is None else report.last or report.killed_with
    if found is None or found.outcome is ProbeOutcome.SUCCESS:
        return ""
    return one_line(found.message, MAX_MESSAGE)


def _probe_view(facts: PodFacts, report: ProbeReport) -> ProbeView:
    found = report.last
    last = "" if found is None else "error" if found.outcome is None else found.outcome.value
    return ProbeView(
        report.container,
        report.kind.value.lower(),
        "" if report.settled is None else report.settled.value,
        last,
        "" if found is None else one_line(found.message, MAX_MESSAGE),
        None if found is None else report.at + facts.wall_offset,
        report.streak,
        report.threshold,
        None if report.next_at is None else report.next_at + facts.wall_offset,
    )
