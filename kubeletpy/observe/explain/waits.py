"""The waits of a pod: what must happen before it can continue, since when and until when. Pure.

The order matters: the first wait is the main obstacle, and the verdict is based on it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from kubeletpy.base.api import types as api
from kubeletpy.base.host.errors import CauseKind
from kubeletpy.images.policy import ImageErrorCode
from kubeletpy.metrics.trace.model import Name, Step, TraceCall
from kubeletpy.observe.explain import handlers, phrases
from kubeletpy.observe.explain.containers import (
    containers,
    ephemeral,
    exits,
    find_view,
    last_message,
)
from kubeletpy.observe.explain.facts import PodFacts
from kubeletpy.observe.explain.model import (
    Action,
    ContainerStateKey,
    ContainerView,
    Role,
    Wait,
    WaitKind,
)
from kubeletpy.observe.explain.texts import api_time, cause, one_line
from kubeletpy.pods.pod import TERMINAL_PHASES, Pod
from kubeletpy.pods.runtime_status import ProbeOutcome, StartError
from kubeletpy.podworkers.history import CRASH_LOOP
from kubeletpy.podworkers.records import Stage
from kubeletpy.probes.schedule import ProbeKind
from kubeletpy.resources.admission.offline import offline_text
from kubeletpy.resources.allocation.conditions import (
    DEFERRED,
    ERROR,
    IN_PROGRESS,
    INFEASIBLE,
    PENDING,
)
from kubeletpy.status.conditions import find, holds

_STEP_KINDS: dict[Step | None, WaitKind] = {
    Step.NETWORK: WaitKind.NETWORK,
    Step.VOLUMES: WaitKind.VOLUME,
    Step.CLAIMS: WaitKind.CLAIM,
    Step.CGROUP: WaitKind.CGROUP,
    Step.DIRECTORIES: WaitKind.DIRECTORY,
    Step.KILL: WaitKind.STOP,
}
_CALL_KINDS: dict[Name, WaitKind] = {
    TraceCall.PULL_IMAGE: WaitKind.IMAGE_PULL,
    TraceCall.RUN_POD_SANDBOX: WaitKind.SANDBOX,
    TraceCall.STOP_CONTAINER: WaitKind.GRACE_PERIOD,
    TraceCall.PRE_STOP: WaitKind.HOOK,
    TraceCall.POST_START: WaitKind.HOOK,
    TraceCall.START_PLACE: WaitKind.START_PLACE,
    TraceCall.STOP_PLACE: WaitKind.STOP_PLACE,
    TraceCall.STOP_ORDER: WaitKind.STOP_ORDER,
    TraceCall.TAKE_VOLUMES_DOWN: WaitKind.RELEASE,
    TraceCall.REMOVE_CGROUP: WaitKind.RELEASE,
}
_DESPITE_READY = (WaitKind.RUNTIME, WaitKind.API_WRITE, WaitKind.RESIZE)
_NEVER_PROBED = (Role.INIT, Role.EPHEMERAL)
_IMAGE_BACKOFFS = (
    ImageErrorCode.BACK_OFF,
    ImageErrorCode.PULL,
    ImageErrorCode.REGISTRY_UNAVAILABLE,
)


def actions(facts: PodFacts) -> tuple[Action, ...]:
    """Return the steps and calls that are under way for the pod."""
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
        if span.name is not Step.RUNTIME  # it only contains others: not what is waited for
    )


def waits(facts: PodFacts) -> tuple[Wait, ...]:
    """Return everything that the pod waits for, the most important first."""
    found = tuple(_waits(facts))
    if not facts.ready:
        return found
    debug = ephemeral(containers(facts))
    return tuple(sorted(found, key=lambda wait: not despite_ready(wait, debug)))


def despite_ready(wait: Wait, debug: Collection[str]) -> bool:
    """Return whether a Ready pod can have that wait. ``debug``: its ephemeral containers."""
    return wait.kind in _DESPITE_READY or wait.subject in debug


def _waits(facts: PodFacts) -> Iterator[Wait]:
    record = facts.record
    if facts.runtime_error:
        good_at = facts.runtime_good_at
        since = None if good_at is None else good_at + facts.wall_offset
        yield Wait(WaitKind.RUNTIME, "", cause(facts.runtime_error), since)
    if facts.name_holder:
        yield Wait(
            WaitKind.STATIC_NAME,
            f"{facts.namespace}/{facts.name}",
            phrases.static_name(facts.name_holder),
            record.first_seen_at if record else None,
        )
    if facts.awaits_admission:
        yield from _admission(facts)
    yield from _watches(facts)
    yield from _volumes(facts)
    yield from _claims(facts)
    yield from _calls(facts)
    yield from _failed_step(facts)
    if record is None or record.stage is Stage.SYNC:
        for name, error in facts.start_errors.items():
            yield _start_error(facts, name, error)
        yield from _init(facts)
        yield from _readiness(facts)
        yield from _resizes(facts)
    yield from _api(facts)


def _admission(facts: PodFacts) -> Iterator[Wait]:
    awaited = facts.awaited_plugins
    if facts.shutting_down:
        yield Wait(WaitKind.ADMISSION, "", phrases.SHUTDOWN)
        return
    if facts.offline is not None:
        why = offline_text(facts.offline)
        yield Wait(WaitKind.ADMISSION, "API server", why, since=facts.offline.since)
        return
    if awaited is None:
        yield Wait(WaitKind.ADMISSION, "", phrases.ADMISSION)
        return
    until = awaited.until + facts.wall_offset
    for resource in awaited.resources:
        yield Wait(WaitKind.ADMISSION, resource, phrases.device_plugin(resource), until=until)


def _calls(facts: PodFacts) -> Iterator[Wait]:
    for action in actions(facts):
        if (kind := _CALL_KINDS.get(action.what)) is not None:
            yield (
                _pull(facts, action) if kind is WaitKind.IMAGE_PULL else _call(facts, kind, action)
            )
        elif action.what is Step.CLAIMS and facts.claims:
            continue  # reported per call
        elif facts.now - action.since > 1.0:
            yield _call(facts, WaitKind.RUNTIME_CALL, action)


def _call(facts: PodFacts, kind: WaitKind, action: Action) -> Wait:
    what, since = action.what, action.since
    if kind is WaitKind.HOOK:
        return _hook(facts, action)
    if kind is WaitKind.GRACE_PERIOD and facts.ending:
        # a stop that fails is requested again, also by a restarted agent
        since = min(since, requested_to_end(facts) or since)
    return Wait(kind, action.subject, what, since, action.until, what)


def _hook(facts: PodFacts, action: Action) -> Wait:
    name, until = action.subject, action.until
    pause = handlers.pause(facts, name, action.what)
    if pause is not None and (until is None or action.since + pause < until):
        until = action.since + pause
    why = phrases.hook(facts, name, action.what)
    return Wait(WaitKind.HOOK, name, why, action.since, until, action.what)


def _pull(facts: PodFacts, action: Action) -> Wait:
    position = facts.pulls.get(action.subject)
    since = action.since if position is None else position.since + facts.wall_offset
    why, progress = phrases.pull(position), None if position is None else position.progress
    share = None if progress is None else min(progress.done / max(progress.total, 1), 1.0)
    kind = WaitKind.IMAGE_PULL
    return Wait(kind, action.subject, why, since, action.until, action.what, share)


def _watches(facts: PodFacts) -> Iterator[Wait]:
    """Yield a wait for each watch that keeps failing and whose objects the pod needs."""
    needs_services = any(
        error.cause is not None and error.cause.kind is CauseKind.SERVICES_UNREAD
        for error in facts.start_errors.values()
    )
    for each in facts.failing_watches:
        if each.of_services and not needs_services:
            continue
        yield Wait(WaitKind.WATCH, each.target, cause(each.reason), each.since + facts.wall_offset)


def _volumes(facts: PodFacts) -> Iterator[Wait]:
    """Yield a wait for each volume of a claim, driver or disk that is not available."""
    for each in facts.volumes:
        wait, offset = each.wait, facts.wall_offset
        yield Wait(
            WaitKind.VOLUME,
            each.volume,
            cause(phrases.volume(each)),
            from_first_failure(facts, None if each.since is None else each.since + offset),
            None if wait.retry_at is None else wait.retry_at + offset,
            wait.call or None,
        )


def _claims(facts: PodFacts) -> Iterator[Wait]:
    """Yield a wait for each call to a DRA driver."""
    for each in facts.claims:
        since, until = each.since + facts.wall_offset, each.until + facts.wall_offset
        why = phrases.claim_call(each.call, each.driver)
        yield Wait(WaitKind.CLAIM, each.claims, why, since, until, each.call)


def _failed_step(facts: PodFacts) -> Iterator[Wait]:
    last, outcome, record = facts.last_sync, facts.outcome, facts.record
    if last is None or outcome is None or not outcome.error:
        return
    if record is not None and record.stage is not last.stage:
        return
    step = outcome.step
    if step in (None, Step.RUNTIME) and facts.start_errors:
        return  # failures are reported per container
    if step is Step.VOLUMES and facts.volumes:
        return  # reported per volume
    kind, since = _STEP_KINDS.get(step, WaitKind.RETRY), facts.wrong_since or last.at
    subject = _resource_claims(facts) if kind is WaitKind.CLAIM else ""
    yield Wait(kind, subject, cause(outcome.error), since, facts.next_sync_at)


def _resource_claims(facts: PodFacts) -> str:
    """Return the names of the pod's resource claims in the API, as far as they are known."""
    if facts.pod is None:
        return ""
    made = {
        each.get("name"): each.get("resourceClaimName")
        for each in facts.status.get("resourceClaimStatuses") or ()
    }
    names = [
        each.get("resourceClaimName") or made.get(each.get("name")) or each.get("name") or ""
        for each in facts.pod.spec.get("resourceClaims") or ()
    ]
    return one_line(", ".join(names), 200)


def _start_error(facts: PodFacts, name: str, error: StartError) -> Wait:
    due = error.retry_at if error.retry_at is not None else facts.next_sync_at
    if error.code == CRASH_LOOP:
        kind = WaitKind.CRASH_BACKOFF
    elif error.code in _IMAGE_BACKOFFS:
        kind = WaitKind.IMAGE_BACKOFF
    elif error.code in tuple(ImageErrorCode):
        kind = WaitKind.IMAGE
    else:
        kind = WaitKind.START_ERROR
    mounted = phrases.mounted_image(facts, error, quote='"')
    why = f"{error.code}: {mounted}{': ' * bool(mounted)}{cause(error.message)}"
    return Wait(kind, name, why, None, due)


def _init(facts: PodFacts) -> Iterator[Wait]:
    inits = [view for view in containers(facts) if view.kind in (Role.INIT, Role.SIDECAR)]
    for number, view in enumerate(inits, 1):
        running = view.state is ContainerStateKey.RUNNING
        if (
            view.kind is Role.SIDECAR
            and running
            and facts.phase != "Running"
            and awaited_probe(facts, view) is ProbeKind.STARTUP
        ):  # what comes after it waits for its startup probe
            yield _probe(facts, view, ProbeKind.STARTUP, fails=False)
            return
        if view.kind is Role.INIT and running:
            why = phrases.init_container(number, len(inits))
            yield Wait(WaitKind.INIT_CONTAINER, view.name, why, view.since)
            return
        if view.exit_code != 0 and not running:
            return


def awaited_probe(facts: PodFacts, view: ContainerView) -> ProbeKind | None:
    """Return the probe that a running container waits for before it counts as started or ready."""
    found = facts.pod.find_container(view.name) if facts.pod is not None else None
    spec: api.Container | dict[str, Any] = found[1] if found is not None else {}
    succeeded = facts.probes.startup.get(view.id) is ProbeOutcome.SUCCESS
    if spec.get("startupProbe") is not None and not succeeded:
        return ProbeKind.STARTUP
    return ProbeKind.READINESS if spec.get("readinessProbe") is not None else None


def _readiness(facts: PodFacts) -> Iterator[Wait]:
    pod = facts.pod
    if pod is None or facts.ready or facts.phase != "Running":
        return
    for view in containers(facts):
        if view.state is not ContainerStateKey.RUNNING or view.ready:
            continue
        if (kind := awaited_probe(facts, view)) is not None:
            failed = facts.probes.readiness.get(view.id) is ProbeOutcome.FAILURE
            fails = failed and kind is ProbeKind.READINESS
            yield _probe(facts, view, kind, fails=fails)
    yield from _gates(pod, facts)


def _probe(facts: PodFacts, view: ContainerView, kind: ProbeKind, *, fails: bool) -> Wait:
    why = phrases.probe(kind, last_message(facts, view.name, kind), fails=fails)
    since = view.since
    if since is not None and kind is ProbeKind.READINESS:  # it may have been Ready for long
        since = max(since, not_ready_since(facts) or since)
    return Wait(WaitKind.PROBE, view.name, why, since)


def _gates(pod: Pod, facts: PodFacts) -> Iterator[Wait]:
    reported = (facts.status.get("conditions"), pod.status.get("conditions"))
    for gate in pod.spec.get("readinessGates") or ():
        subject = gate.get("conditionType") or ""
        if not any(holds(conditions, subject) for conditions in reported):
            yield Wait(WaitKind.READINESS_GATE, subject, phrases.READINESS_GATE)


def _resizes(facts: PodFacts) -> Iterator[Wait]:
    """Yield a wait for each in-place resize that is not allocated, or not done."""
    for condition in facts.status.get("conditions") or ():
        kind, reason = condition.get("type"), condition.get("reason") or ""
        since = api_time(condition.get("lastTransitionTime"))
        message = one_line(condition.get("message") or "")
        if kind == PENDING:
            subject = INFEASIBLE if reason == INFEASIBLE else DEFERRED
            yield Wait(WaitKind.RESIZE, subject.lower(), message, since)
        elif kind == IN_PROGRESS:
            yield Wait(WaitKind.RESIZE, phrases.resizing(fails=reason == ERROR), message, since)


def _api(facts: PodFacts) -> Iterator[Wait]:
    problem = facts.write_problem
    if problem is not None:
        missing = one_line(problem.unreported)
        why = phrases.api_write(cause(problem.message), problem.count, missing)
        yield Wait(WaitKind.API_WRITE, "pod status", why, problem.since)
    pod, record = facts.pod, facts.record
    if record is None or not record.finished or problem is not None:
        return
    if pod is not None and pod.being_deleted:
        finalizers = pod.metadata.get("finalizers") or []
        if finalizers:
            subject = ", ".join(finalizers)
            yield Wait(WaitKind.FINALIZER, subject, phrases.FINALIZERS, stopped_at(facts))


def not_ready(views: tuple[ContainerView, ...]) -> tuple[str, ...]:
    """Return the names of the containers that are running but not ready."""
    return tuple(
        view.name
        for view in views
        if view.state is ContainerStateKey.RUNNING
        and not view.ready
        and view.kind not in _NEVER_PROBED
    )


# Since when a pod has been in its state: the first time, not that of the latest try. If possible, a
# moment comes from a record that outlasts the agent. Such records are the times in the API and in
# the runtime, and the agent's own on disk (:mod:`kubeletpy.observe.explain.stuck`).

_NOT_TRIED = (WaitKind.PROBE, WaitKind.READINESS_GATE, WaitKind.INIT_CONTAINER)
"""Waits in which no try of the agent fails: the pod is not Ready yet, or no longer."""
_OWN_START = (WaitKind.INIT_CONTAINER, WaitKind.IMAGE_PULL)
"""Waits that begin at a moment of their own, however long the pod has not been Ready by then."""


def wrong_since(facts: PodFacts, wait: Wait | None) -> float | None:
    """Return since when a pod is not as it should be, in Unix seconds; None if that is unknown.

    A time that lies in the future counts as unknown.

    Args:
        facts: of a pod that is not as it should be.
        wait: what it waits for first.
    """
    found = _wrong_since(facts, wait)
    return None if found is None or found > facts.now else found


def ready_since(facts: PodFacts) -> float | None:
    """Return when a pod became Ready; None if it is not Ready, or that is unknown.

    The API's condition outlasts the agent; without its time, when the last container started.
    """
    if not facts.ready:
        return None
    begun = [one.since for one in containers(facts) if one.kind is Role.CONTAINER and one.since]
    return _ready_changed(facts) or max(begun, default=None)


def not_ready_since(facts: PodFacts) -> float | None:
    """Return when the pod ceased to be Ready; None if it is Ready, or that is unknown."""
    return None if facts.ready else _ready_changed(facts)


def requested_to_end(facts: PodFacts) -> float | None:
    """Return when a pod was first deleted, evicted or over its deadline; None if it was not."""
    record = facts.record
    ends = [_deleted_at(facts), facts.ended_at, record.terminating_at if record else None]
    if facts.status.get("reason") == "DeadlineExceeded":
        ends.append(_deadline(facts))
    past = [each for each in ends if each is not None and each <= facts.now]
    return min(past, default=None)


def stopped_at(facts: PodFacts) -> float | None:
    """Return when an ending pod's containers had all stopped; None if they have not.

    An agent that found the pod ending observes that anew: the last exit is older than its own time.
    """
    record, requested = facts.record, requested_to_end(facts)
    if record is None or record.terminated_at is None:
        return None
    if requested is None or requested >= record.first_seen_at:
        return record.terminated_at
    finished = [one.finished_at for one in exits(facts) if one.finished_at]
    return min(max([requested, *finished]), record.terminated_at)


def from_first_failure(facts: PodFacts, since: float | None) -> float | None:
    """Return when a wait began: at the first of its failures, if an earlier agent saw that one."""
    record, first = facts.record, facts.wrong_since
    if since is None or first is None or record is None or first >= record.first_seen_at:
        return since
    return min(first, since)


def _wrong_since(facts: PodFacts, wait: Wait | None) -> float | None:
    record, pod = facts.record, facts.pod
    if record is not None and record.stage is Stage.TERMINATING:
        return requested_to_end(facts)
    if wait is not None and wait.kind is WaitKind.API_WRITE:
        return wait.since
    if wait is not None and wait.kind is WaitKind.RUNTIME and wait.since is not None:
        return wait.since  # whatever was wrong with the pod before
    if (
        record is not None
        and wait is not None
        and (record.stage is Stage.TERMINATED or wait.kind is WaitKind.FINALIZER)
    ):  # all has stopped, and something prevents its removal
        held = (stopped_at(facts), wait.since)
        return max((each for each in held if each is not None), default=None)
    if facts.phase in TERMINAL_PHASES:
        return _ended(facts)
    if wait is None and facts.ready and facts.excluded is not None:
        return facts.excluded.since + facts.wall_offset
    tried = wait is None or wait.kind not in _NOT_TRIED
    if tried and facts.wrong_since is not None:
        return facts.wrong_since
    unready = not_ready_since(facts)
    view = find_view(facts, wait.subject) if wait is not None else None
    restarted = view is not None and view.restarts  # its latest start does not show its first
    if wait is not None and wait.since is not None and not restarted:
        if wait.kind in _OWN_START:
            return wait.since
        if wait.kind is WaitKind.PROBE:  # it may have been Ready for long
            return max(wait.since, unready or wait.since)
    begun = (wait.since if wait is not None else None, unready)
    if since := [each for each in begun if each is not None]:
        return min(since)
    if pod is not None and not facts.ready:
        made = api_time(pod.metadata.get("creationTimestamp"))
        return api_time(facts.status.get("startTime")) or made
    return None


def _ended(facts: PodFacts) -> float | None:
    """Return when a pod ended, or the agent decided to end it."""
    if facts.status.get("reason") == "DeadlineExceeded" and (over := _deadline(facts)) is not None:
        return over
    if facts.ended_at is not None:  # refused or evicted, perhaps by an earlier agent
        return facts.ended_at
    if facts.status.get("reason") == "Evicted":
        decided = [one.at for one in facts.history if one.decision.ends_pod]
        if decided:
            return decided[0]
    finished = [one.finished_at for one in exits(facts) if one.finished_at]
    began = api_time(facts.status.get("startTime"))
    return max(finished, default=None) or not_ready_since(facts) or began


def _deleted_at(facts: PodFacts) -> float | None:
    """Return the moment of the deletion: the API has the one at which the grace period ends."""
    about = facts.pod.metadata if facts.pod is not None else {}
    deadline = api_time(about.get("deletionTimestamp"))
    if deadline is None:
        return None
    return deadline - (about.get("deletionGracePeriodSeconds") or 0)


def _deadline(facts: PodFacts) -> float | None:
    """Return when activeDeadlineSeconds was over."""
    began = api_time(facts.status.get("startTime"))
    limit = facts.pod.spec.get("activeDeadlineSeconds") if facts.pod is not None else None
    return None if began is None or limit is None else began + limit


def _ready_changed(facts: PodFacts) -> float | None:
    found = find(facts.status.get("conditions"), "Ready")
    return None if found is None else api_time(found.get("lastTransitionTime"))
