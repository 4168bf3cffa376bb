"""A fixed word for each cause, for programs: kept from release to release. Pure."""

from __future__ import annotations

import re
from enum import StrEnum

from kubeletpy.base.host.errors import MachineFault
from kubeletpy.images.policy import NOT_VERIFIED, ImageErrorCode
from kubeletpy.observe.explain.containers import exits, last_exit
from kubeletpy.observe.explain.facts import PodFacts
from kubeletpy.observe.explain.model import Wait, WaitKind
from kubeletpy.observe.explain.runs import killed_by, never_ran
from kubeletpy.pods.config_errors import SpecField
from kubeletpy.probes.schedule import ProbeKind
from kubeletpy.volumes.files.busy import mentions_busy


class CauseCode(StrEnum):
    """Causes that a pod's state can have beyond the kinds of waits, whose words have hyphens."""

    RUNNING = "running"
    STARTING = "starting"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    EVICTED = "evicted"
    DEADLINE = "deadline-exceeded"
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
    GONE = "gone"
    CONTAINER_ENDED = "container-ended"
    OVER_LIMIT = "over-storage-limit"
    UNSCHEDULABLE = "unschedulable"


_FIELDS: dict[SpecField | None, CauseCode] = {
    SpecField.SUB_PATH: CauseCode.SUBPATH,
    SpecField.RUN_AS_NON_ROOT: CauseCode.RUNS_AS_ROOT,
    SpecField.RESOLV_CONF: CauseCode.RESOLV_CONF,
    SpecField.NODE_ADDRESS: CauseCode.NODE_ADDRESS,
}
_STARTS = {"PostStartHookError": CauseCode.POST_START, "RunContainerError": CauseCode.NEVER_RAN}
"""Codes of a start that has just failed; a moment later the status shows its back-off."""
_OF_CONTAINERS = (WaitKind.START_ERROR, WaitKind.IMAGE, WaitKind.IMAGE_BACKOFF)
_OF_STEPS = (
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
_NO_OBJECT = re.compile(r'\b(?:configmap|secret)s? "[^"]{0,400}" not found', re.I)
_NO_HANDLER = re.compile(r'\bno runtime for "|\bruntime handler\b', re.I)
"""The error of a runtime (containerd, CRI-O) without the handler of the pod's RuntimeClass."""
_NO_PROGRAM = re.compile(r'\bexec: "')
"""The error of a runtime (CRI-O) that searches for the program when it creates the container."""
_NO_KEY = re.compile(r"couldn't find key|references non-existent .{0,20}key", re.I)


def fault_of(facts: PodFacts, wait: Wait) -> MachineFault | None:
    """The machine's fault behind what a pod waits for; None: another reason."""
    if wait.kind in _OF_CONTAINERS:
        error = facts.start_errors.get(wait.subject)
        return None if error is None else error.fault
    if wait.kind is WaitKind.VOLUME and facts.volumes:
        of_volume = (each.wait for each in facts.volumes if each.volume == wait.subject)
        return next((each.fault for each in of_volume if each.fault is not None), None)
    if wait.kind in _OF_STEPS and wait.call is None and facts.outcome is not None:
        return facts.outcome.fault
    return None


def wait_code(facts: PodFacts, wait: Wait) -> str:
    """The cause of a pod whose main obstacle is that wait."""
    if fault_of(facts, wait) is not None:
        return CauseCode.NODE_FAULT
    match wait.kind:
        case WaitKind.IMAGE | WaitKind.IMAGE_BACKOFF:
            return image_code(wait.why)
        case WaitKind.CRASH_BACKOFF:
            return crash_code(facts, wait.subject)
        case WaitKind.VOLUME | WaitKind.RELEASE if facts.ending:
            return CauseCode.VOLUME_IN_USE if mentions_busy(wait.why) else wait.kind.value
        case WaitKind.START_ERROR | WaitKind.VOLUME:
            return _config_code(facts, wait)
        case WaitKind.PROBE:
            return f"{wait.why.removeprefix('its ').partition(' ')[0]}-probe"
        case WaitKind.RETRY if _of_runtime_class(facts, wait):
            return CauseCode.RUNTIME_CLASS
        case WaitKind.RETRY if facts.outcome is not None and facts.outcome.about in _FIELDS:
            return _FIELDS[facts.outcome.about]
        case _:
            return wait.kind.replace(" ", "-").lower()


def image_code(why: str) -> str:
    """The code for an image that is not available; ``why`` begins with the waiting reason."""
    reason, _, message = why.partition(": ")
    if reason == ImageErrorCode.INVALID_NAME:
        return CauseCode.IMAGE_NAME
    if reason == ImageErrorCode.NEVER_PULL:
        return CauseCode.IMAGE_NOT_VERIFIED if NOT_VERIFIED in message else CauseCode.IMAGE_NEVER
    # names of images must not decide: they may contain any of the words
    message = re.sub(r'"[^"]{0,1000}"', "", message)
    for code, pattern in (
        (CauseCode.IMAGE_AUTH, _DENIED),
        (CauseCode.REGISTRY, _UNREACHABLE),
        (CauseCode.IMAGE_ABSENT, _ABSENT),
    ):
        if pattern.search(message):
            return code
    return WaitKind.IMAGE.value


def crash_code(facts: PodFacts, name: str) -> str:
    """The code for a container that keeps ending."""
    error = facts.start_errors.get(name)
    if error is not None and error.cause.startswith("PostStartHookError"):
        return CauseCode.POST_START
    if (ended := last_exit(facts, name)) is not None and never_ran(ended):
        return CauseCode.NEVER_RAN
    if (kind := killed_by(facts, name)) is not None:
        return CauseCode.LIVENESS if kind is ProbeKind.LIVENESS else CauseCode.STARTUP
    killed = ended is not None and ended.reason == "OOMKilled"
    return CauseCode.OUT_OF_MEMORY if killed else CauseCode.CRASH


def terminal_code(facts: PodFacts) -> CauseCode:
    """The code for a pod that has ended or was refused."""
    reason = facts.status.get("reason") or ""
    if facts.phase == "Succeeded":
        return CauseCode.SUCCEEDED
    if reason == "Evicted":
        return CauseCode.EVICTED
    if reason == "DeadlineExceeded":
        return CauseCode.DEADLINE
    return CauseCode.REFUSED if reason and not exits(facts) else CauseCode.FAILED


def _of_runtime_class(facts: PodFacts, wait: Wait) -> bool:
    if facts.outcome is not None and facts.outcome.about is SpecField.RUNTIME_CLASS:
        return True
    named = facts.pod is not None and facts.pod.spec.get("runtimeClassName")
    return bool(named and _NO_HANDLER.search(wait.why))


def _config_code(facts: PodFacts, wait: Wait) -> str:
    error = facts.start_errors.get(wait.subject)
    if wait.kind is WaitKind.START_ERROR and error is not None:
        if error.about in _FIELDS:
            return _FIELDS[error.about]
        if error.code in _STARTS:
            return _STARTS[error.code]
        if error.code == "CreateContainerError" and _NO_PROGRAM.search(wait.why):
            return CauseCode.NEVER_RAN
    if _NO_KEY.search(wait.why):
        return CauseCode.CONFIG_KEY
    if _NO_OBJECT.search(wait.why):
        return CauseCode.CONFIG_MISSING
    return CauseCode.CONFIG if wait.kind is WaitKind.START_ERROR else WaitKind.VOLUME.value
