"""The answer in one sentence: why the pod does not run, or how it runs. Pure."""

from __future__ import annotations

from kubeletpy.observe.explain import phrases
from kubeletpy.observe.explain.causes import cause
from kubeletpy.observe.explain.codes import CauseCode, crash_code, terminal_code, wait_code
from kubeletpy.observe.explain.containers import containers, ephemeral, exits
from kubeletpy.observe.explain.facts import PodFacts
from kubeletpy.observe.explain.model import ContainerStateKey, Wait, WaitKind
from kubeletpy.observe.explain.phrases import MAX_SAID, keeps_ending, sentence, times
from kubeletpy.observe.explain.runs import ended_alone, restless
from kubeletpy.observe.explain.since import asked_to_end, ready_since
from kubeletpy.observe.explain.texts import duration, one_line
from kubeletpy.observe.explain.waits import despite_ready, not_ready, waits
from kubeletpy.pods.pod import TERMINAL_PHASES
from kubeletpy.podworkers.records import Stage

_OF_STARTS = (
    WaitKind.CRASH_BACKOFF,
    WaitKind.IMAGE_BACKOFF,
    WaitKind.START_ERROR,
    WaitKind.IMAGE,
)
_OF_ANY_END = (
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
    """The sentence, and whether everything is as it should be."""
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
    views = containers(facts)
    blocker = _first(facts)
    if facts.phase in TERMINAL_PHASES:
        return _ended(facts, blocker)
    if facts.pod is not None and facts.pod.being_deleted:
        what = f": {sentence(facts, blocker)}" if blocker is not None else ""
        return f"deleted{phrases.for_taint(facts)}, but its end has not begun{what}", False
    if facts.ready:
        since = ready_since(facts)
        how = f", for {duration(facts.now - since)}" if since is not None else ""
        if blocker is not None and despite_ready(blocker, ephemeral(views)):
            return f"running and ready{how}; but {sentence(facts, blocker)}", False
        if (view := restless(facts)) is not None:
            return f"running{how}, but {keeps_ending(facts, view.name)}", False
        if facts.spared is not None:
            return f"running and ready{how}; but {phrases.spared(facts.spared)}", False
        return f"running and ready{how}{times(sum(view.restarts for view in views))}", True
    if blocker is not None:
        begun_word = "running, not ready" if facts.phase == "Running" else "not running"
        if blocker.kind in _OF_STARTS:
            runs = any(view.state is ContainerStateKey.RUNNING for view in views)
            begun_word = "not all of it runs" if runs else "not running"
        if blocker.kind is WaitKind.INIT_CONTAINER or (
            blocker.kind is WaitKind.PROBE and facts.phase == "Pending"
        ):
            begun_word = "initializing"
        return f"{begun_word}: {sentence(facts, blocker)}", False
    if facts.phase == "Running":
        ended, names = ended_alone(facts), ", ".join(not_ready(views))
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
    begun = asked_to_end(facts) or facts.now
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
        said = f": {cause(message)}" if message else ""
        how = f"refused by this node: {reason}{said}{holders}; that is final"
    if blocker is not None and blocker.kind is WaitKind.API_WRITE:
        return f"{how}; but {sentence(facts, blocker)}", False
    return how, facts.phase == "Succeeded"


def cause_code(facts: PodFacts, *, healthy: bool) -> str:
    """The code of the cause that the sentence describes.

    Args:
        healthy: as returned by :func:`verdict`.
    """
    blocker = _first(facts)
    record = facts.record
    if facts.phase in TERMINAL_PHASES and not _held_up(facts, blocker):
        return terminal_code(facts)
    if facts.deleted_for is not None and (blocker is None or blocker.kind in _OF_ANY_END):
        return CauseCode.TAINT
    if healthy:
        return CauseCode.RUNNING
    if blocker is None and (view := restless(facts)) is not None:
        return crash_code(facts, view.name)
    if blocker is not None:
        return wait_code(facts, blocker)
    if facts.ready and facts.spared is not None:
        return CauseCode.OVER_LIMIT
    if facts.pod is None:
        return CauseCode.UNKNOWN_POD
    if record is not None and record.stage is Stage.SYNC and ended_alone(facts) is not None:
        return CauseCode.CONTAINER_ENDED
    return CauseCode.ENDING if facts.ending else CauseCode.STARTING


def _held_up(facts: PodFacts, blocker: Wait | None) -> bool:
    """Whether its continued existence matters more than how it has ended."""
    if blocker is None or blocker.kind is WaitKind.API_WRITE:
        return blocker is not None
    record, pod = facts.record, facts.pod
    if record is None or not record.termination_requested:
        return False
    return record.stage is Stage.TERMINATED or (pod is not None and pod.being_deleted)


def subject(facts: PodFacts, first: Wait | None) -> str:
    """The container or object that the sentence is about; may be empty."""
    if first is not None:
        return first.subject
    if (view := restless(facts)) is not None:
        return view.name
    ended = ended_alone(facts)
    return ended[0].name if ended is not None else ""


def _first(facts: PodFacts) -> Wait | None:
    return next(iter(waits(facts)), None)


def _reason(facts: PodFacts) -> str:
    reason, message = facts.status.get("reason") or "", facts.status.get("message") or ""
    if not reason and facts.phase == "Failed":
        bad = next((e for e in exits(facts) if e.exit_code), None)
        if bad is not None:
            said = bad.message or facts.log_ends.get(bad.container, "")
            words = f': "{one_line(said, MAX_SAID)}"' if said else ""
            return f", container {bad.container} exited with {bad.exit_code}{words}"
    if not reason:
        return ""
    return f", {reason}: {cause(message)}" if message else f", {reason}"
