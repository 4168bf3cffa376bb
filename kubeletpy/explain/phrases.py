"""The words of explain: what a pod waits for, as phrases and as one sentence. Pure.

All other modules of this room compare members and hand on data; only this one words it.
"""

from __future__ import annotations

from kubeletpy.explain.containers import containers, last_exit
from kubeletpy.explain.facts import PodFacts
from kubeletpy.explain.model import Wait, WaitKind
from kubeletpy.explain.probes import last_words
from kubeletpy.explain.words import duration, until
from kubeletpy.pods.probe_results import ProbeOutcome
from kubeletpy.probes.schedule import ProbeKind
from kubeletpy.trace.names import Call, Name
from kubeletpy.volumes.claims.model import VolumeWait, say

ADMISSION = "whether it may run here is not decided yet: other pods give way, or the API is asked"
READINESS_GATE = "nobody has set this condition to True"
FINALIZERS = "all has stopped; these finalizers keep the object in the API"
NEVER_STARTED = ("StartError", "ContainerCannotRun")
"""Reasons of exits whose program never ran: the runtime's word for it, containerd's first."""
_RELEASES: dict[Name | str | None, str] = {
    Call.TAKE_VOLUMES_DOWN: "its volumes are being taken down",
    Call.REMOVE_CGROUP: "its cgroup is being removed",
}


def volume(found: VolumeWait) -> str:
    """What a volume waits for, with the call and the object that a reader should look at."""
    said = say(found.wait)
    return said if found.wait.object in said else f"{said} ({found.wait.object})"


def static_name(holder: str) -> str:
    """A static pod waits for the one of the same name with that uid."""
    return f"the static pod of the same name before it (uid {holder}) still ends"


def init_container(number: int, total: int) -> str:
    """An init container runs."""
    return f"({number} of {total}) has to succeed first and has been running"


def probe(kind: ProbeKind, said: str, *, fails: bool) -> str:
    """A probe has not succeeded. ``said``: what its newest run found wrong."""
    how = "fails" if fails else "has not succeeded yet"
    return f"its {_probe_name(kind)} {how}{_after_colon(said)}"


def resizing(*, fails: bool) -> str:
    """A resize is being carried out."""
    return "failing" if fails else "in progress"


def api_write(message: str, tries: int) -> str:
    """The API does not take the pod's status."""
    return f"{message} (tried {tries} times)"


def sentence(facts: PodFacts, wait: Wait) -> str:
    name = f"container {wait.subject}"
    then = f"; next try {until(wait.until, facts.now)}" if wait.until is not None else ""
    since = f" for {duration(facts.now - wait.since)}" if wait.since is not None else ""
    match wait.kind:
        case WaitKind.CRASH_BACKOFF:
            due = "" if wait.until is None else f"; it restarts {until(wait.until, facts.now)}"
            return f"{name} {_ends(facts, wait.subject)}{due}"
        case WaitKind.IMAGE_BACKOFF | WaitKind.IMAGE | WaitKind.START_ERROR:
            return f"{name} can't start: {wait.why}{then}"
        case WaitKind.IMAGE_PULL:
            return f"image {wait.subject} is being pulled{since}"
        case WaitKind.SANDBOX:
            return f"the runtime is making the sandbox{since}"
        case WaitKind.GRACE_PERIOD:
            left = "" if wait.until is None else f"; it is killed {until(wait.until, facts.now)}"
            after = "" if wait.since is None else duration(facts.now - wait.since) + " after "
            return f"{name} has not ended {after}being asked to{left}"
        case WaitKind.HOOK | WaitKind.STOP_ORDER:
            left = "" if wait.until is None else f", given up {until(wait.until, facts.now)}"
            return f"{name}: {wait.why}{since}{left}"
        case WaitKind.START_PLACE:
            return f"other pods start before it{since}"
        case WaitKind.STOP_PLACE:
            return f"other pods stop before it{since}"
        case WaitKind.RELEASE:
            return f"{_releasing(wait)}{since}"
        case WaitKind.RUNTIME_CALL:
            return f"{wait.why} {wait.subject}".strip() + f" takes{since}"
        case WaitKind.PROBE:
            after = f", {duration(facts.now - wait.since)} after its start" if wait.since else ""
            return f"{wait.why} ({name}{after})"
        case WaitKind.INIT_CONTAINER:
            return f"init {name} {wait.why}{since}"
        case WaitKind.READINESS_GATE:
            return f"readiness gate {wait.subject}: {wait.why}"
        case WaitKind.RUNTIME:
            return f"the container runtime can't be used: {wait.why}"
        case WaitKind.API_WRITE:
            return f"the API does not take its status{since}: {wait.why}"
        case WaitKind.RESIZE:
            why = f": {wait.why}" if wait.why else ""
            return f"the resize it asks for is {wait.subject}{since}{why}"
        case WaitKind.VOLUME if wait.subject:
            return f"volume {wait.subject}{since}: {wait.why}{then}"
        case WaitKind.FINALIZER:
            return f"finalizer {wait.subject} keeps it{since}"
        case _:
            return f"{wait.why}{then}"


def _ends(facts: PodFacts, name: str) -> str:
    """How a container that is started again and again ends, and why where that is known."""
    ended = last_exit(facts, name)
    if ended is None:
        return "keeps ending"
    view = next((one for one in containers(facts) if one.name == name), None)
    often = times(view.restarts) if view is not None else ""
    if ended.reason in NEVER_STARTED and ended.message:
        return f"can't start: {ended.reason}: {ended.message}"
    for report in facts.probe_reports:
        killing = report.kind is not ProbeKind.READINESS and report.settled is ProbeOutcome.FAILURE
        if report.container == name and killing:
            words = _after_colon(last_words(facts, name, report.kind))
            return f"keeps being killed because its {_probe_name(report.kind)} fails{words}{often}"
    reason = "" if ended.reason in ("", "Error", "Completed") else f" {ended.reason}"
    return f"keeps ending (last exit code {ended.exit_code}{reason}{often})"


def _releasing(wait: Wait) -> str:
    return _RELEASES.get(wait.call, wait.why)


def _probe_name(kind: ProbeKind) -> str:
    return f"{kind.value.lower()} probe"


def _after_colon(words: str) -> str:
    return f": {words}" if words else ""


def times(restarts: int) -> str:
    """So many restarts, to go at the end of a sentence; nothing for none."""
    return f", {restarts} restart{'s' * (restarts != 1)}" if restarts else ""
