"""The answer in one sentence: why the pod does not run, or how it runs. Pure."""

from __future__ import annotations

from kubeletpy.explain.containers import containers, exits
from kubeletpy.explain.facts import PodFacts
from kubeletpy.explain.model import Role, Wait, WaitKind
from kubeletpy.explain.phrases import sentence, times
from kubeletpy.explain.waits import not_ready, waits
from kubeletpy.explain.words import duration, one_line
from kubeletpy.podworkers.records import Stage

TERMINAL = ("Succeeded", "Failed")


def verdict(facts: PodFacts) -> tuple[str, bool]:
    """The sentence, and whether all is as it should be."""
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
    reason, message = facts.status.get("reason"), facts.status.get("message") or ""
    if facts.phase == "Failed" and reason and not exits(facts):
        return f"refused by this node: {reason}: {one_line(message)}", False
    if facts.phase in TERMINAL:
        return f"it has ended: {facts.phase}{_reason(facts)}", facts.phase == "Succeeded"
    blocker = _first(facts)
    if blocker is not None:
        return f"not started: {sentence(facts, blocker)}", False
    if facts.pod is None:
        return "only the runtime knows it: nobody asks for it, and it is going to be stopped", False
    return "not started yet: its worker has not taken it up", False


def _syncing(facts: PodFacts) -> tuple[str, bool]:
    views = containers(facts)
    if facts.phase in TERMINAL:
        return f"it has ended: {facts.phase}{_reason(facts)}", facts.phase == "Succeeded"
    blocker = _first(facts)
    if facts.ready:
        begun = [view.since for view in views if view.kind is Role.CONTAINER and view.since]
        how = f", for {duration(facts.now - max(begun))}" if begun else ""
        if blocker is not None and blocker.kind in (
            WaitKind.RUNTIME,
            WaitKind.API_WRITE,
            WaitKind.RESIZE,
        ):
            return f"running and ready{how}; but {sentence(facts, blocker)}", False
        return f"running and ready{how}{_restarts(facts)}", True
    if blocker is not None:
        begun_word = "running, not ready" if facts.phase == "Running" else "not running"
        if blocker.kind in (
            WaitKind.CRASH_BACKOFF,
            WaitKind.IMAGE_BACKOFF,
            WaitKind.START_ERROR,
            WaitKind.IMAGE,
        ):
            begun_word = "not running" if len(views) == 1 else "not all of it runs"
        if blocker.kind is WaitKind.INIT_CONTAINER:
            begun_word = "initializing"
        return f"{begun_word}: {sentence(facts, blocker)}", False
    if facts.phase == "Running":
        names = ", ".join(not_ready(views)) or "a container"
        return f"running, not ready: waiting for {names}", False
    return "starting", False


def _terminating(facts: PodFacts) -> tuple[str, bool]:
    record = facts.record
    assert record is not None
    blocker = _first(facts)
    since = facts.now - (record.terminating_at or facts.now)
    head = f"terminating for {duration(since)}"
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
        return "stopped and released; the API has been asked to remove it", True
    return f"it has ended: {facts.phase}{_reason(facts)}", facts.phase == "Succeeded"


def _first(facts: PodFacts) -> Wait | None:
    found = waits(facts)
    return found[0] if found else None


def _reason(facts: PodFacts) -> str:
    reason, message = facts.status.get("reason") or "", facts.status.get("message") or ""
    if not reason and facts.phase == "Failed":
        bad = next((e for e in exits(facts) if e.exit_code), None)
        if bad is not None:
            return f", container {bad.container} exited with {bad.exit_code}"
    if not reason:
        return ""
    return f", {reason}: {one_line(message)}" if message else f", {reason}"


def _restarts(facts: PodFacts) -> str:
    return times(sum(view.restarts for view in containers(facts)))
