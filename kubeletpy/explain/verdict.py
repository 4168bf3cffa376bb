"""The answer in one sentence: why the pod does not run, or how it runs. Pure."""

from __future__ import annotations

from kubeletpy.explain.containers import containers, exits, last_exit
from kubeletpy.explain.facts import PodFacts
from kubeletpy.explain.model import Wait
from kubeletpy.explain.probes import probes
from kubeletpy.explain.waits import not_ready, waits
from kubeletpy.explain.words import duration, one_line, until
from kubeletpy.podworkers.records import Stage

REFUSED = "Pod was rejected: "
TERMINAL = ("Succeeded", "Failed")
NEVER_STARTED = ("StartError", "ContainerCannotRun")
"""Reasons of exits whose program never ran: the runtime's word for it, containerd's first."""
KILLING = ("liveness", "startup")
_RELEASES = {
    "take volumes down": "its volumes are being taken down",
    "remove cgroup": "its cgroup is being removed",
}


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
    message = facts.status.get("message") or ""
    if facts.phase == "Failed" and message.startswith(REFUSED):
        reason = facts.status.get("reason") or "no reason"
        return f"refused by this node: {reason}: {one_line(message.removeprefix(REFUSED))}", False
    if facts.phase in TERMINAL:
        return f"it has ended: {facts.phase}{_reason(facts)}", facts.phase == "Succeeded"
    blocker = _first(facts)
    if blocker is not None:
        return f"not started: {_sentence(facts, blocker)}", False
    if facts.pod is None:
        return "only the runtime knows it: nobody asks for it, and it is going to be stopped", False
    return "not started yet: its worker has not taken it up", False


def _syncing(facts: PodFacts) -> tuple[str, bool]:
    views = containers(facts)
    if facts.phase in TERMINAL:
        return f"it has ended: {facts.phase}{_reason(facts)}", facts.phase == "Succeeded"
    blocker = _first(facts)
    if facts.ready:
        begun = [view.since for view in views if view.kind == "container" and view.since]
        how = f", for {duration(facts.now - max(begun))}" if begun else ""
        if blocker is not None and blocker.kind in ("runtime", "API write", "resize"):
            return f"running and ready{how}; but {_sentence(facts, blocker)}", False
        return f"running and ready{how}{_restarts(facts)}", True
    if blocker is not None:
        begun_word = "running, not ready" if facts.phase == "Running" else "not running"
        if blocker.kind in ("crash backoff", "image backoff", "start error", "image"):
            begun_word = "not running" if len(views) == 1 else "not all of it runs"
        if blocker.kind == "init container":
            begun_word = "initializing"
        return f"{begun_word}: {_sentence(facts, blocker)}", False
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
    return f"{head}: {_sentence(facts, blocker)}", False


def _releasing(facts: PodFacts) -> tuple[str, bool]:
    blocker = _first(facts)
    head = "its containers have stopped"
    if blocker is None:
        return f"{head}; what it held is being released", False
    return f"{head}, but it is not released: {_sentence(facts, blocker)}", False


def _finished(facts: PodFacts) -> tuple[str, bool]:
    pod = facts.pod
    blocker = _first(facts)
    if blocker is not None and pod is not None and pod.being_deleted:
        return f"stopped and released, but still in the API: {_sentence(facts, blocker)}", False
    if pod is not None and pod.being_deleted:
        return "stopped and released; the API has been asked to remove it", True
    return f"it has ended: {facts.phase}{_reason(facts)}", facts.phase == "Succeeded"


def _first(facts: PodFacts) -> Wait | None:
    found = waits(facts)
    return found[0] if found else None


def _sentence(facts: PodFacts, wait: Wait) -> str:
    name = f"container {wait.subject}"
    then = f"; next try {until(wait.until, facts.now)}" if wait.until is not None else ""
    since = f" for {duration(facts.now - wait.since)}" if wait.since is not None else ""
    match wait.kind:
        case "crash backoff":
            due = "" if wait.until is None else f"; it restarts {until(wait.until, facts.now)}"
            return f"{name} {_ends(facts, wait.subject)}{due}"
        case "image backoff" | "image" | "start error":
            return f"{name} can't start: {wait.why}{then}"
        case "image pull":
            return f"image {wait.subject} is being pulled{since}"
        case "sandbox":
            return f"the runtime is making the sandbox{since}"
        case "grace period":
            left = "" if wait.until is None else f"; it is killed {until(wait.until, facts.now)}"
            after = "" if wait.since is None else duration(facts.now - wait.since) + " after "
            return f"{name} has not ended {after}being asked to{left}"
        case "hook" | "stop order":
            left = "" if wait.until is None else f", given up {until(wait.until, facts.now)}"
            return f"{name}: {wait.why}{since}{left}"
        case "start place":
            return f"other pods start before it{since}"
        case "stop place":
            return f"other pods stop before it{since}"
        case "release":
            return f"{_RELEASES[wait.why]}{since}"
        case "runtime call":
            return f"{wait.why} {wait.subject}".strip() + f" takes{since}"
        case "probe":
            after = f", {duration(facts.now - wait.since)} after its start" if wait.since else ""
            return f"{wait.why} ({name}{after})"
        case "init container":
            return f"init {name} {wait.why}{since}"
        case "readiness gate":
            return f"readiness gate {wait.subject}: {wait.why}"
        case "runtime":
            return f"the container runtime can't be used: {wait.why}"
        case "API write":
            return f"the API does not take its status{since}: {wait.why}"
        case "resize":
            why = f": {wait.why}" if wait.why else ""
            return f"the resize it asks for is {wait.subject}{since}{why}"
        case "finalizer":
            return f"finalizer {wait.subject} keeps it{since}"
        case _:
            return f"{wait.why}{then}"


def _ends(facts: PodFacts, name: str) -> str:
    """How a container that is started again and again ends, and why where that is known."""
    ended = last_exit(facts, name)
    if ended is None:
        return "keeps ending"
    view = next((one for one in containers(facts) if one.name == name), None)
    times = _times(view.restarts) if view is not None else ""
    if ended.reason in NEVER_STARTED and ended.message:
        return f"can't start: {ended.reason}: {ended.message}"
    for probe in probes(facts):
        if probe.container == name and probe.kind in KILLING and probe.settled == "failure":
            words = f": {probe.words}" if probe.words and probe.last != "success" else ""
            return f"keeps being killed because its {probe.kind} probe fails{words}{times}"
    reason = "" if ended.reason in ("", "Error", "Completed") else f" {ended.reason}"
    return f"keeps ending (last exit code {ended.exit_code}{reason}{times})"


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
    return _times(sum(view.restarts for view in containers(facts)))


def _times(restarts: int) -> str:
    return f", {restarts} restart{'s' * (restarts != 1)}" if restarts else ""
