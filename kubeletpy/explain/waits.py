"""What a pod waits for, and until when. Pure.

The order matters: the first wait is what stands most in the way, and the verdict is made of it.
"""

from __future__ import annotations

from collections.abc import Iterator

from kubeletpy.api.times import parse_time
from kubeletpy.explain.containers import containers
from kubeletpy.explain.facts import PodFacts
from kubeletpy.explain.model import Action, ContainerView, Wait
from kubeletpy.explain.probes import last_words
from kubeletpy.explain.words import one_line
from kubeletpy.pods.pod import Pod
from kubeletpy.pods.probe_results import ProbeOutcome
from kubeletpy.pods.sync_results import StartError
from kubeletpy.podworkers.records import Stage
from kubeletpy.trace.names import Call, Name, Step

_STEP_KINDS = {
    Step.NETWORK: "network",
    Step.VOLUMES: "volume",
    Step.CGROUP: "cgroup",
    Step.DIRECTORIES: "directory",
    Step.KILL: "stop",
}
_CALL_KINDS: dict[Name, str] = {
    Call.PULL_IMAGE: "image pull",
    Call.RUN_POD_SANDBOX: "sandbox",
    Call.STOP_CONTAINER: "grace period",
    Call.PRE_STOP: "hook",
    Call.POST_START: "hook",
    Call.START_PLACE: "start place",
    Call.STOP_PLACE: "stop place",
    Call.STOP_ORDER: "stop order",
    Call.TAKE_VOLUMES_DOWN: "release",
    Call.REMOVE_CGROUP: "release",
}
_OUTER = (Step.RUNTIME,)
"""Phases that only hold others: not what is waited for."""
_CRASH = "CrashLoopBackOff"


def actions(facts: PodFacts) -> tuple[Action, ...]:
    """What is being done for the pod now."""
    if facts.trace is None:
        return ()
    return tuple(
        Action(
            span.name,
            span.detail,
            span.began + facts.wall_offset,
            None if span.until is None else span.until + facts.wall_offset,
        )
        for span in list(facts.trace.open.values())
        if span.name not in _OUTER
    )


def waits(facts: PodFacts) -> tuple[Wait, ...]:
    """All that the pod waits for, what matters most first."""
    return tuple(_waits(facts))


def _waits(facts: PodFacts) -> Iterator[Wait]:
    record = facts.record
    if facts.runtime_error:
        yield Wait("runtime", "", one_line(facts.runtime_error))
    if facts.name_holder:
        yield Wait(
            "static name",
            f"{facts.namespace}/{facts.name}",
            f"the static pod of the same name before it (uid {facts.name_holder}) still ends",
            record.first_seen_at if record else None,
        )
    if facts.awaits_admission:
        why = "whether it may run here is not decided yet: other pods give way, or the API is asked"
        yield Wait("admission", "", why)
    yield from _calls(facts)
    yield from _failed_step(facts)
    if record is None or record.stage is Stage.SYNC:
        yield from _starts(facts)
        yield from _init(facts)
        yield from _readiness(facts)
        yield from _resizes(facts)
    yield from _api(facts)


def _calls(facts: PodFacts) -> Iterator[Wait]:
    for action in actions(facts):
        if (kind := _CALL_KINDS.get(action.what)) is not None:
            yield Wait(kind, action.subject, action.what, action.since, action.until)
        elif facts.now - action.since > 1.0:
            yield Wait("runtime call", action.subject, action.what, action.since, action.until)


def _failed_step(facts: PodFacts) -> Iterator[Wait]:
    last, record = facts.last_step, facts.record
    if last is None or last.outcome is None or not last.outcome.error:
        return
    if record is not None and record.stage is not last.stage:
        return
    step = last.outcome.step
    if step in (None, Step.RUNTIME) and facts.start_errors:
        return  # what failed is told container by container
    kind = "retry" if step is None else _STEP_KINDS.get(step, "retry")
    yield Wait(kind, "", one_line(last.outcome.error), last.at, facts.next_step_at)


def _starts(facts: PodFacts) -> Iterator[Wait]:
    for name, error in facts.start_errors.items():
        yield _start_error(facts, name, error)


def _start_error(facts: PodFacts, name: str, error: StartError) -> Wait:
    due = error.retry_at if error.retry_at is not None else facts.next_step_at
    if error.code == _CRASH:
        kind = "crash backoff"
    elif error.code in ("ImagePullBackOff", "ErrImagePull", "RegistryUnavailable"):
        kind = "image backoff"
    elif error.code.startswith("ErrImage") or error.code.endswith("ImageName"):
        kind = "image"
    else:
        kind = "start error"
    return Wait(kind, name, f"{error.code}: {one_line(error.message)}", None, due)


def _init(facts: PodFacts) -> Iterator[Wait]:
    inits = [view for view in containers(facts) if view.kind in ("init", "sidecar")]
    for number, view in enumerate(inits, 1):
        done = view.state == "terminated" and view.reason.endswith("(0)")
        if view.kind == "init" and view.state == "running":
            yield Wait(
                "init container",
                view.name,
                f"({number} of {len(inits)}) has to succeed first and has been running",
                view.since,
            )
            return
        if not done and view.state != "running":
            return


def _readiness(facts: PodFacts) -> Iterator[Wait]:
    pod = facts.pod
    if pod is None or facts.ready or facts.phase != "Running":
        return
    for view in containers(facts):
        if view.state != "running" or view.ready or view.kind in ("init", "ephemeral"):
            continue
        found = pod.find_container(view.name)
        spec = found[1] if found is not None else {}
        startup = facts.probes.startup.get(view.id)
        if spec.get("startupProbe") is not None and startup is not ProbeOutcome.SUCCESS:
            why = "its startup probe has not succeeded yet"
            yield Wait("probe", view.name, why + _said(facts, view.name, "startup"), view.since)
        elif spec.get("readinessProbe") is not None:
            said = facts.probes.readiness.get(view.id)
            why = "fails" if said is ProbeOutcome.FAILURE else "has not succeeded yet"
            why = f"its readiness probe {why}{_said(facts, view.name, 'readiness')}"
            yield Wait("probe", view.name, why, view.since)
    yield from _gates(pod, facts)


def _gates(pod: Pod, facts: PodFacts) -> Iterator[Wait]:
    held = {
        condition.get("type")
        for condition in facts.status.get("conditions") or ()
        if condition.get("status") == "True"
    } | {
        condition.get("type")
        for condition in pod.status.get("conditions") or ()
        if condition.get("status") == "True"
    }
    for gate in pod.spec.get("readinessGates") or ():
        if gate.get("conditionType") not in held:
            subject = gate.get("conditionType") or ""
            yield Wait("readiness gate", subject, "nobody has set this condition to True")


def _resizes(facts: PodFacts) -> Iterator[Wait]:
    """Resizes in place that are not allocated, or not done."""
    for condition in facts.status.get("conditions") or ():
        kind, reason = condition.get("type"), condition.get("reason") or ""
        began = condition.get("lastTransitionTime")
        since = parse_time(began) if began else None
        said = one_line(condition.get("message") or "")
        if kind == "PodResizePending":
            subject = "infeasible" if reason == "Infeasible" else "deferred"
            yield Wait("resize", subject, said, since)
        elif kind == "PodResizeInProgress":
            yield Wait("resize", "failing" if reason == "Error" else "in progress", said, since)


def _api(facts: PodFacts) -> Iterator[Wait]:
    problem = facts.write_problem
    if problem is not None:
        why = f"{one_line(problem.message)} (tried {problem.count} times)"
        yield Wait("API write", "pod status", why, problem.since)
    pod, record = facts.pod, facts.record
    if record is None or not record.finished or problem is not None:
        return
    if pod is not None and pod.being_deleted:
        finalizers = pod.metadata.get("finalizers") or []
        if finalizers:
            why = "all has stopped; these finalizers keep the object in the API"
            yield Wait("finalizer", ", ".join(finalizers), why, record.terminated_at)


def _said(facts: PodFacts, container: str, kind: str) -> str:
    words = last_words(facts, container, kind)
    return f": {words}" if words else ""


def not_ready(views: tuple[ContainerView, ...]) -> tuple[str, ...]:
    """Names of the containers that run and are not ready."""
    return tuple(
        view.name
        for view in views
        if view.state == "running" and not view.ready and view.kind in ("container", "sidecar")
    )
