"""The answer of an explanation: one sentence on how a pod is or why it does not run, and its code.

Pure. Codes are fixed words for programs, kept from release to release.
"""

from __future__ import annotations

import re
from enum import StrEnum

from kubeletpy.base.host.errors import Cause, CauseKind
from kubeletpy.images.policy import ImageErrorCode
from kubeletpy.observe.explain import containers as explain_containers
from kubeletpy.observe.explain import phrases
from kubeletpy.observe.explain.deaths import DeathKind, pod_end
from kubeletpy.observe.explain.facts import PodFacts
from kubeletpy.observe.explain.model import ContainerStateKey, Wait, WaitKind
from kubeletpy.observe.explain.phrases import MAX_STATED, keeps_ending, sentence, times
from kubeletpy.observe.explain.texts import cause, duration, one_line
from kubeletpy.observe.explain.waits import (
    awaited_probe,
    despite_ready,
    not_ready,
    ready_since,
    requested_to_end,
    waits,
)
from kubeletpy.pods.pod import TERMINAL_PHASES
from kubeletpy.pods.runtime_status import StartError
from kubeletpy.podworkers.records import Stage
from kubeletpy.probes.schedule import ProbeKind
from kubeletpy.volumes.files.paths import mentions_busy


class CauseCode(StrEnum):
    """Causes of a pod's state beyond the kinds of waits, which as codes have hyphens."""

    RUNNING = "running"
    STARTING = "starting"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    EVICTED = "evicted"
    PREEMPTED = "preempted"
    DEADLINE = "deadline-exceeded"
    SHUTDOWN = "node-shutdown"
    REFUSED = "refused"
    ENDING = "ending"
    UNKNOWN_POD = "unknown-pod"
    CRASH = "crash"
    OUT_OF_MEMORY = "out-of-memory"
    NEVER_RAN = "program-cannot-run"
    LIVENESS = "killed-by-liveness-probe"
    STARTUP = "killed-by-startup-probe"
    POST_START = "post-start-hook"
    IMAGE_AUTH = "image-access-denied"
    IMAGE_ABSENT = "image-not-found"
    IMAGE_NAME = "image-name-invalid"
    IMAGE_NEVER = "image-never-pulled"
    IMAGE_NOT_VERIFIED = "image-not-verified"
    REGISTRY = "registry-unreachable"
    CONFIG_MISSING = "config-object-missing"
    CONFIG_KEY = "config-key-missing"
    NODE_FAULT = "node-fault"
    SUBPATH = "subpath"
    CONFIG = "container-config"
    RUNTIME_CLASS = "runtime-class"
    RESOLV_CONF = "resolv-conf"
    NODE_ADDRESS = "node-address"
    RUNS_AS_ROOT = "runs-as-root"
    VOLUME_IN_USE = "volume-in-use"
    TAINT = "deleted-for-taint"
    REMOVED = "gone"
    CONTAINER_ENDED = "container-ended"
    OVER_LIMIT = "over-storage-limit"
    UNSCHEDULABLE = "unschedulable"


_CAUSE_CODES: dict[CauseKind, CauseCode] = {
    CauseKind.MACHINE: CauseCode.NODE_FAULT,
    CauseKind.OBJECT_MISSING: CauseCode.CONFIG_MISSING,
    CauseKind.KEY_MISSING: CauseCode.CONFIG_KEY,
    CauseKind.VOLUME_SECRET: CauseCode.CONFIG_MISSING,
    CauseKind.NOT_VERIFIED: CauseCode.IMAGE_NOT_VERIFIED,
    CauseKind.SUB_PATH: CauseCode.SUBPATH,
    CauseKind.RUNTIME_CLASS: CauseCode.RUNTIME_CLASS,
    CauseKind.RUN_AS_NON_ROOT: CauseCode.RUNS_AS_ROOT,
    CauseKind.RESOLV_CONF: CauseCode.RESOLV_CONF,
    CauseKind.NODE_ADDRESS: CauseCode.NODE_ADDRESS,
}
_START_CODES = {phrases.HOOK_ERROR: CauseCode.POST_START, "RunContainerError": CauseCode.NEVER_RAN}
"""For a start that has just failed; a moment later the status shows its back-off."""
_CONTAINER_WAITS = (WaitKind.START_ERROR, WaitKind.IMAGE, WaitKind.IMAGE_BACKOFF)
_STEP_WAITS = (
    WaitKind.VOLUME,
    WaitKind.DIRECTORY,
    WaitKind.CGROUP,
    WaitKind.CLAIM,
    WaitKind.STOP,
    WaitKind.RETRY,
)
"""Waits for the next try of a step that has failed."""
_DENIED = re.compile(
    r"authoriz|unauthorized|denied|forbidden|no basic auth|authentication required|\b40[13]\b", re.I
)
_ABSENT = re.compile(r"not found|manifest unknown|\b404\b", re.I)
_UNREACHABLE = re.compile(
    r"no such host|connection refused|i/o timeout|timed out|deadline exceeded|dial tcp|"
    r"no route|certificate|server gave HTTP|TLS|\b50\d\b",
    re.I,
)
_NO_HANDLER = re.compile(r'\bno runtime for "|\bruntime handler\b', re.I)
"""The error of a runtime (containerd, CRI-O) without the handler of the pod's RuntimeClass."""
_NO_PROGRAM = re.compile(r'\bexec: "')
"""The error of a runtime (CRI-O) that searches for the program when it creates the container."""


def cause_behind(facts: PodFacts, wait: Wait) -> Cause | None:
    """Return the cause of what a pod waits for as data, or None if its error carries none."""
    if wait.kind in _CONTAINER_WAITS:
        error = facts.start_errors.get(wait.subject)
        return None if error is None else error.cause
    if wait.kind is WaitKind.VOLUME and facts.volumes:
        failures = (each.wait.failure for each in facts.volumes if each.volume == wait.subject)
        return next(filter(None, failures), None)
    if wait.kind in _STEP_WAITS and wait.call is None and facts.outcome is not None:
        return facts.outcome.cause
    return None


def wait_code(facts: PodFacts, wait: Wait) -> str:
    """Return the code for a pod whose main obstacle is that wait."""
    found = cause_behind(facts, wait)
    if found is not None and found.kind in _CAUSE_CODES:
        return _CAUSE_CODES[found.kind]
    match wait.kind:
        case WaitKind.IMAGE | WaitKind.IMAGE_BACKOFF:
            return image_code(facts.start_errors[wait.subject])
        case WaitKind.CRASH_BACKOFF:
            return crash_code(facts, wait.subject)
        case WaitKind.VOLUME | WaitKind.RELEASE if facts.ending:
            return CauseCode.VOLUME_IN_USE if mentions_busy(wait.why) else wait.kind.value
        case WaitKind.START_ERROR:
            return _start_code(facts.start_errors[wait.subject])
        case WaitKind.PROBE:
            view = explain_containers.find_view(facts, wait.subject)
            kind = None if view is None else awaited_probe(facts, view)
            return f"{(kind or ProbeKind.READINESS).value.lower()}-probe"
        case WaitKind.RETRY if _lacks_handler(facts, wait):
            return CauseCode.RUNTIME_CLASS
        case _:
            return wait.kind.replace(" ", "-").lower()


def image_code(error: StartError) -> str:
    """Return the code for a missing image, by the registry's or the runtime's message."""
    if error.code == ImageErrorCode.INVALID_NAME:
        return CauseCode.IMAGE_NAME
    if error.code == ImageErrorCode.NEVER_PULL:
        return CauseCode.IMAGE_NEVER
    # names of images must not decide: they may match any of the patterns
    message = re.sub(r'"[^"]{0,1000}"', "", cause(error.message))
    for code, pattern in (
        (CauseCode.IMAGE_AUTH, _DENIED),
        (CauseCode.REGISTRY, _UNREACHABLE),
        (CauseCode.IMAGE_ABSENT, _ABSENT),
    ):
        if pattern.search(message):
            return code
    return WaitKind.IMAGE.value


def crash_code(facts: PodFacts, name: str) -> str:
    """Return the code for a container that keeps ending."""
    error = facts.start_errors.get(name)
    previous = None if error is None else error.previous
    if previous is not None and previous.code == phrases.HOOK_ERROR:
        return CauseCode.POST_START
    ended = explain_containers.last_exit(facts, name)
    if ended is not None and explain_containers.never_ran(ended):
        return CauseCode.NEVER_RAN
    if (kind := explain_containers.killed_by(facts, name)) is not None:
        return CauseCode.LIVENESS if kind is ProbeKind.LIVENESS else CauseCode.STARTUP
    killed = ended is not None and ended.reason == "OOMKilled"
    return CauseCode.OUT_OF_MEMORY if killed else CauseCode.CRASH


_NODE_ENDS = {
    DeathKind.EVICTED: CauseCode.EVICTED,
    DeathKind.PREEMPTED: CauseCode.PREEMPTED,
    DeathKind.DEADLINE: CauseCode.DEADLINE,
    DeathKind.SHUTDOWN: CauseCode.SHUTDOWN,
}
"""Codes of pods that the node has ended, whether a container ran or not."""


def terminal_code(facts: PodFacts) -> CauseCode:
    """Return the code for a pod that has ended or was refused."""
    reason = facts.status.get("reason") or ""
    if facts.phase == "Succeeded":
        return CauseCode.SUCCEEDED
    kind = pod_end(reason, "", deleted=False, removed=False, from_api=True).kind
    if kind in _NODE_ENDS:
        return _NODE_ENDS[kind]
    return CauseCode.REFUSED if reason and not explain_containers.exits(facts) else CauseCode.FAILED


def _lacks_handler(facts: PodFacts, wait: Wait) -> bool:
    named = facts.pod is not None and facts.pod.spec.get("runtimeClassName")
    return bool(named and _NO_HANDLER.search(wait.why))


def _start_code(error: StartError) -> CauseCode:
    if error.code == "CreateContainerError" and _NO_PROGRAM.search(cause(error.message)):
        return CauseCode.NEVER_RAN
    return _START_CODES.get(error.code, CauseCode.CONFIG)


_START_WAITS = (
    WaitKind.CRASH_BACKOFF,
    WaitKind.IMAGE_BACKOFF,
    WaitKind.START_ERROR,
    WaitKind.IMAGE,
)
_TERMINATION_WAITS = (
    WaitKind.GRACE_PERIOD,
    WaitKind.HOOK,
    WaitKind.STOP_ORDER,
    WaitKind.STOP_PLACE,
    WaitKind.SANDBOX,
    WaitKind.RUNTIME_CALL,
    WaitKind.RELEASE,
)
"""Waits that are part of a normal termination, not its reason."""


def verdict(facts: PodFacts) -> tuple[str, bool]:
    """Return the sentence, and whether everything is as it should be."""
    record = facts.record
    if record is None or (record.stage is Stage.SYNC and record.started_at is None):
        return _not_begun(facts)
    match record.stage:
        case Stage.SYNC:
            return _syncing(facts)
        case Stage.TERMINATING:
            return _terminating(facts)
        case Stage.TERMINATED:
            return _releasing(facts)
        case _:
            return _finished(facts)


def _not_begun(facts: PodFacts) -> tuple[str, bool]:
    if facts.phase in TERMINAL_PHASES:
        return _ended(facts, None)
    blocker = _first(facts)
    if blocker is not None:
        return f"not started: {sentence(facts, blocker)}", False
    if facts.pod is None:
        return "only the runtime has it, no source does: it is going to be stopped", False
    return "not started yet: its worker has not taken it up", False


def _syncing(facts: PodFacts) -> tuple[str, bool]:
    views = explain_containers.containers(facts)
    blocker = _first(facts)
    if facts.phase in TERMINAL_PHASES:
        return _ended(facts, blocker)
    if facts.pod is not None and facts.pod.being_deleted:
        what = f": {sentence(facts, blocker)}" if blocker is not None else ""
        return f"deleted{phrases.for_taint(facts)}, but its end has not begun{what}", False
    if facts.ready:
        since = ready_since(facts)
        how = f", for {duration(facts.now - since)}" if since is not None else ""
        if blocker is not None and despite_ready(blocker, explain_containers.ephemeral(views)):
            return f"running and ready{how}; but {sentence(facts, blocker)}", False
        if (view := explain_containers.restless(facts)) is not None:
            return f"running{how}, but {keeps_ending(facts, view.name)}", False
        if facts.excluded is not None:
            return f"running and ready{how}; but {phrases.excluded(facts.excluded)}", False
        return f"running and ready{how}{times(sum(view.restarts for view in views))}", True
    if blocker is not None:
        state = "running, not ready" if facts.phase == "Running" else "not running"
        if blocker.kind in _START_WAITS:
            runs = any(view.state is ContainerStateKey.RUNNING for view in views)
            state = "not all of it runs" if runs else "not running"
        if blocker.kind is WaitKind.INIT_CONTAINER or (
            blocker.kind is WaitKind.PROBE and facts.phase == "Pending"
        ):
            state = "initializing"
        return f"{state}: {sentence(facts, blocker)}", False
    if facts.phase == "Running":
        ended, names = explain_containers.ended_alone(facts), ", ".join(not_ready(views))
        if ended is not None and (not names or not ended[1]):
            view, again, why = ended
            then = "is about to be started again" if again else "is not started again"
            return f"running, not ready: container {view.name} has ended and {then}: {why}", False
        return f"running, not ready: waiting for {names or 'a container'}", False
    return "starting", False


def _terminating(facts: PodFacts) -> tuple[str, bool]:
    record = facts.record
    assert record is not None
    blocker = _first(facts)
    begun = requested_to_end(facts) or facts.now
    head = f"terminating for {duration(facts.now - begun)}{phrases.for_taint(facts)}"
    if blocker is None:
        return f"{head}, with a grace period of {record.grace or 1}s", False
    return f"{head}: {sentence(facts, blocker)}", False


def _releasing(facts: PodFacts) -> tuple[str, bool]:
    blocker = _first(facts)
    head = "its containers have stopped"
    if blocker is None:
        return f"{head}; what it held is being released", False
    return f"{head}, but it is not released: {sentence(facts, blocker)}", False


def _finished(facts: PodFacts) -> tuple[str, bool]:
    pod = facts.pod
    blocker = _first(facts)
    if blocker is not None and pod is not None and pod.being_deleted:
        return f"stopped and released, but still in the API: {sentence(facts, blocker)}", False
    if pod is not None and pod.being_deleted:
        return "stopped and released; its removal from the API was requested", True
    return _ended(facts, blocker)


def _ended(facts: PodFacts, blocker: Wait | None) -> tuple[str, bool]:
    how = f"it has ended: {facts.phase}{_reason(facts)}"
    if terminal_code(facts) is CauseCode.REFUSED:
        reason, message = facts.status.get("reason"), facts.status.get("message") or ""
        holders = f" ({'; '.join(facts.port_holders)})" if facts.port_holders else ""
        stated = f": {cause(message)}" if message else ""
        how = f"refused by this node: {reason}{stated}{holders}; that is final"
    if blocker is not None and blocker.kind is WaitKind.API_WRITE:
        return f"{how}; but {sentence(facts, blocker)}", False
    return how, facts.phase == "Succeeded"


def cause_code(facts: PodFacts, *, healthy: bool) -> str:
    """Return the code of the cause that the sentence describes.

    Args:
        facts: of the pod.
        healthy: as returned by :func:`verdict`.
    """
    blocker = _first(facts)
    record = facts.record
    if facts.phase in TERMINAL_PHASES and not _hides_end(facts, blocker):
        return terminal_code(facts)
    if facts.deleted_for is not None and (blocker is None or blocker.kind in _TERMINATION_WAITS):
        return CauseCode.TAINT
    if healthy:
        return CauseCode.RUNNING
    if blocker is None and (view := explain_containers.restless(facts)) is not None:
        return crash_code(facts, view.name)
    if blocker is not None:
        return wait_code(facts, blocker)
    if facts.ready and facts.excluded is not None:
        return CauseCode.OVER_LIMIT
    if facts.pod is None:
        return CauseCode.UNKNOWN_POD
    if (
        record is not None
        and record.stage is Stage.SYNC
        and explain_containers.ended_alone(facts) is not None
    ):
        return CauseCode.CONTAINER_ENDED
    return CauseCode.ENDING if facts.ending else CauseCode.STARTING


def _hides_end(facts: PodFacts, blocker: Wait | None) -> bool:
    """Return whether a wait matters more than how the pod has ended."""
    if blocker is None or blocker.kind is WaitKind.API_WRITE:
        return blocker is not None
    record, pod = facts.record, facts.pod
    if record is None or not record.termination_requested:
        return False
    return record.stage is Stage.TERMINATED or (pod is not None and pod.being_deleted)


def subject(facts: PodFacts, first: Wait | None) -> str:
    """Return the container or object that the sentence is about; may be empty."""
    if first is not None:
        return first.subject
    if (view := explain_containers.restless(facts)) is not None:
        return view.name
    ended = explain_containers.ended_alone(facts)
    return ended[0].name if ended is not None else ""


def _first(facts: PodFacts) -> Wait | None:
    return next(iter(waits(facts)), None)


def _reason(facts: PodFacts) -> str:
    reason, message = facts.status.get("reason") or "", facts.status.get("message") or ""
    if not reason and facts.phase == "Failed":
        bad = next((e for e in explain_containers.exits(facts) if e.exit_code), None)
        if bad is not None:
            stated = bad.message or facts.log_ends.get(bad.container, "")
            output = f': "{one_line(stated, MAX_STATED)}"' if stated else ""
            how = f": {bad.cause.text}" if bad.cause and bad.cause.alarming else ""
            return f", container {bad.container} exited with {bad.exit_code}{how}{output}"
    if not reason:
        return ""
    return f", {reason}: {cause(message)}" if message else f", {reason}"
