"""The wording of explain: what a pod waits for, as phrases and as one sentence. Pure.

The other modules of the package compare members and pass data on; only this one has the texts.
"""

from __future__ import annotations

from kubeletpy.images.policy import PullPosition, PullProgress
from kubeletpy.metrics.trace.model import Name, TraceCall
from kubeletpy.observe.explain import handlers
from kubeletpy.observe.explain.containers import (
    find_view,
    killed_by,
    last_exit,
    last_message,
    never_ran,
)
from kubeletpy.observe.explain.facts import PodFacts
from kubeletpy.observe.explain.model import Role, Wait, WaitKind
from kubeletpy.observe.explain.texts import cause, duration, one_line, restarts, sizes, until
from kubeletpy.pods.pod import Excluded
from kubeletpy.pods.runtime_status import StartError
from kubeletpy.probes.schedule import ProbeKind
from kubeletpy.volumes.claims.model import VolumeWait, wait_text

ADMISSION = "whether it may run here is not decided yet: other pods give way, or the API is queried"
SHUTDOWN = "the node is shutting down; it starts after the boot, or if the shutdown is canceled"
READINESS_GATE = "nobody has set this condition to True"
FINALIZERS = "all has stopped; these finalizers keep the object in the API"
HOOK_ERROR = "PostStartHookError"
"""The code of a start whose postStart hook failed."""
MAX_STATED = 200
"""Characters of the last message of a container."""
LATE_S = 3.0
"""Seconds that a runtime may take to kill a container and to report it."""
_SENTENCES: dict[WaitKind, str] = {
    **dict.fromkeys(
        (WaitKind.IMAGE_BACKOFF, WaitKind.IMAGE, WaitKind.START_ERROR),
        "{name} can't start: {why}{then}",
    ),
    **dict.fromkeys((WaitKind.HOOK, WaitKind.STOP_ORDER), "{name}: {why}{since}{left}"),
    WaitKind.IMAGE_PULL: "image {subject} {why}{since}",
    WaitKind.SANDBOX: "the runtime is creating the sandbox{since}",
    WaitKind.START_PLACE: "other pods start before it{since}",
    WaitKind.STOP_PLACE: "other pods stop before it{since}",
    WaitKind.INIT_CONTAINER: "{name} {why}{since}",
    WaitKind.READINESS_GATE: "readiness gate {subject}: {why}",
    WaitKind.RUNTIME: "the container runtime can't be used: {why}",
    WaitKind.API_WRITE: "its status has not reached the API{since}: {why}",
    WaitKind.WATCH: "the watch of {subject} has failed{since}: {why}",
    WaitKind.FINALIZER: "finalizer {subject} keeps it{since}",
}
_RELEASES: dict[str | None, str] = {
    TraceCall.TAKE_VOLUMES_DOWN: "its volumes are being taken down",
    TraceCall.REMOVE_CGROUP: "its cgroup is being removed",
}


def device_plugin(resource: str) -> str:
    """Describe a wait for a device plugin that an earlier agent had."""
    return (
        f"waiting for device plugin {resource}, which has not registered since the agent started; "
        "if it does not in time, the pod is refused: check the plugin's pod"
    )


def volume(found: VolumeWait) -> str:
    """Describe the cause of a volume's wait, with the call and the object to check."""
    stated = wait_text(found.wait)
    return stated if found.wait.object in stated else f"{stated} ({found.wait.object})"


def claim_call(call: str, driver: str) -> str:
    """Describe a call to a DRA driver that has not returned yet."""
    return f"{call} of DRA driver {driver} is under way"


def pull(position: PullPosition | None) -> str:
    """Describe the pull of an image, or its wait for other pulls."""
    if position is None or position.ahead is None:
        text = "is being pulled"
        if position is None:
            return text
        if position.progress is not None:
            return f"{text}: {pull_progress(position.progress)}"
        unknown = " (progress is not available from this runtime)"
        return text if position.measurable else text + unknown
    others = f"{position.ahead} before it, {position.running} under way"
    most = "" if position.limit is None else f", at most {position.limit} at once"
    return f"is queued to be pulled ({others}{most})"


def pull_progress(progress: PullProgress) -> str:
    """Describe how far a pull is: amounts, rate, time left, and a layer that does not move."""
    left = "" if progress.left is None else f", {duration(progress.left)} left"
    done, total = sizes(progress.done, progress.total)
    if progress.unpacking:
        return f"{total} have arrived and are being unpacked{left}"
    percent = 100 * progress.done // max(progress.total, 1)
    rate = f", {sizes(int(progress.rate))[0]}/s" if progress.rate else ""
    text = f"{done} of {total} ({percent} %){rate}{left}"
    if progress.stuck_layer:
        stuck = duration(round(progress.stuck_for))
        text += f"; layer {progress.stuck_layer} of {progress.layers} has been stuck for {stuck}"
    if progress.waiting:
        text += "; it waits for layers of other pulls"
    return text


def mounted_image(facts: PodFacts, error: StartError, quote: str = "") -> str:
    """Name the image that could not be mounted, and its volume; empty for other errors."""
    image = error.mounted_image
    if not image:
        return ""
    volumes = facts.pod.spec.get("volumes") or () if facts.pod is not None else ()
    names = [
        str(each.get("name"))
        for each in volumes
        if (each.get("image") or {}).get("reference") == image
    ]
    return f"image {quote}{image}{quote}" + (f" of volume {', '.join(names)}" if names else "")


def excluded(found: Excluded) -> str:
    """Describe how a critical pod exceeds a limit of its own storage."""
    used, limit = sizes(found.used, found.limit)
    return one_line(
        f"{found.of} uses {used}, more than its limit of {limit}; it is critical or static, "
        "and not evicted for that"
    )


def hook(facts: PodFacts, container: str, call: Name) -> str:
    """Describe a hook that runs: its command or address, and whether it has no time limit."""
    endless = call is TraceCall.POST_START and handlers.pause(facts, container, call) is None
    limit = "nothing limits it" if endless else ""
    details = "; ".join(filter(None, (handlers.hook(facts, container, call), limit)))
    return f"{call} ({details})" if details else str(call)


def static_name(holder: str) -> str:
    """Describe a static pod's wait for the end of its namesake, which has that uid."""
    return f"the static pod of the same name before it (uid {holder}) still ends"


def init_container(number: int, total: int) -> str:
    """Describe an init container that is running, the end of which others wait for."""
    return f"({number} of {total}) has to succeed first and has been running"


def probe(kind: ProbeKind, message: str, *, fails: bool) -> str:
    """Describe a probe that has not succeeded. ``message``: the problem of its latest run."""
    how = "fails" if fails else "has not succeeded yet"
    return f"its {_probe_name(kind)} {how}{_after_colon(message)}"


def resizing(*, fails: bool) -> str:
    """Describe a resize that is being carried out."""
    return "failing" if fails else "in progress"


def api_write(message: str, tries: int, unreported: str = "") -> str:
    """Describe a failing write of the pod's status. ``unreported``: what the API lacks so far."""
    often = {0: "", 1: " (tried once)"}.get(tries, f" (tried {tries} times)")
    return f"{message}{often}" + (f"; not reported: {unreported}" if unreported else "")


def sentence(facts: PodFacts, wait: Wait) -> str:
    """Describe a wait as the part of a sentence that names the container or object."""
    view = find_view(facts, wait.subject)
    init = wait.kind is WaitKind.INIT_CONTAINER or (view is not None and view.kind is Role.INIT)
    name = f"init container {wait.subject}" if init else f"container {wait.subject}"
    then = f"; next try {until(wait.until, facts.now)}" if wait.until is not None else ""
    since = f" for {duration(facts.now - wait.since)}" if wait.since is not None else ""
    end = "ends" if wait.call is TraceCall.POST_START else "given up"
    left = f", {end} {until(wait.until, facts.now)}" if wait.until is not None else ""
    match wait.kind:
        case WaitKind.CRASH_BACKOFF:
            due = "" if wait.until is None else f"; it restarts {until(wait.until, facts.now)}"
            return f"{name} {_ends(facts, wait.subject)}{due}"
        case WaitKind.GRACE_PERIOD:
            killed = _then_killed(wait, facts.now)
            after = (
                "although" if wait.since is None else f"{duration(facts.now - wait.since)} after"
            )
            return f"{name} has not ended {after} its stop was requested{killed}"
        case WaitKind.CLAIM if wait.subject:
            return f"resource claim {wait.subject}: {wait.why}" + (
                since + left if wait.call else then
            )
        case WaitKind.RELEASE:
            return f"{_RELEASES.get(wait.call, wait.why)}{since}"
        case WaitKind.RUNTIME_CALL:
            return f"{wait.why} {wait.subject}".strip() + f" has been running{since}"
        case WaitKind.PROBE:
            if view is None or view.since is None:
                return f"{wait.why} ({name})"
            return f"{wait.why} ({name}, {duration(facts.now - view.since)} after its start)"
        case WaitKind.RESIZE:
            return f"its resize is {wait.subject}{since}{_after_colon(wait.why)}"
        case WaitKind.VOLUME if wait.subject:
            return f"volume {wait.subject}{since}: {wait.why}{then}"
    text = _SENTENCES.get(wait.kind, "{why}{then}")
    parts = {"name": name, "subject": wait.subject, "why": wait.why}
    return text.format(since=since, then=then, left=left, **parts)


def for_taint(facts: PodFacts) -> str:
    """Return the taint that a pod is deleted for, in brackets, or "" if it is not."""
    if facts.deleted_for is None:
        return ""
    named = ", ".join(map(str, facts.deleted_for))
    return f" (for the node's taint {named})" if named else " (for a taint that the node had)"


def _ends(facts: PodFacts, name: str) -> str:
    """Describe how a container that keeps restarting ends, and why if that is known."""
    ended = last_exit(facts, name)
    if ended is None:
        return "keeps exiting"
    view = find_view(facts, name)
    often = times(view.restarts) if view is not None else ""
    if never_ran(ended):
        return f"can't start: {ended.reason}: {cause(ended.message)}"
    error = facts.start_errors.get(name)
    previous = None if error is None else error.previous
    if previous is not None and previous.code == HOOK_ERROR:
        stated = cause(previous.message)
        return f"keeps being stopped because its postStart hook fails: {stated}{often}"
    if (kind := killed_by(facts, name)) is not None:
        problem = _after_colon(last_message(facts, name, kind))
        return f"keeps being killed because its {_probe_name(kind)} fails{problem}{often}"
    if ended.cause is not None and ended.cause.alarming and ended.reason != "OOMKilled":
        return f"keeps ending: {ended.cause.text}{often}"
    reason = "" if ended.reason in ("", "Error", "Completed") else f" {ended.reason}"
    if ended.reason == "OOMKilled":
        reason += _limit(facts, name)
    last = ended.message or facts.log_ends.get(name, "")
    stated = _after_colon(f'"{one_line(last, MAX_STATED)}"') if last else ""
    return f"keeps exiting (last exit code {ended.exit_code}{reason}{often}){stated}"


def keeps_ending(facts: PodFacts, name: str) -> str:
    """Describe a container that runs now and has ended again and again until recently."""
    return f"container {name} {_ends(facts, name)}"


def _limit(facts: PodFacts, name: str) -> str:
    """Return the memory limit that a container hit, which may be that of its pod."""
    if facts.pod is None:
        return ""
    found = facts.pod.find_container(name)
    for owner, spec in (("its", found[1] if found else {}), ("the pod's", facts.pod.spec)):
        limit = ((spec.get("resources") or {}).get("limits") or {}).get("memory")
        if limit:
            return f" at {owner} memory limit of {limit}"
    return ""


def _then_killed(wait: Wait, now: float) -> str:
    """Return when a grace period ends, or since when the runtime is late after its end."""
    if wait.until is None:
        return ""
    late = now - wait.until
    if late <= LATE_S:
        return f"; it is killed {until(wait.until, now)}"
    return f"; its grace period ended {duration(late)} ago, and the runtime has not answered since"


def _probe_name(kind: ProbeKind) -> str:
    return f"{kind.value.lower()} probe"


def _after_colon(text: str) -> str:
    return f": {text}" if text else ""


def times(count: int) -> str:
    """Return the number of restarts for the end of a sentence, or "" for none."""
    return f", {restarts(count)}" if count else ""
