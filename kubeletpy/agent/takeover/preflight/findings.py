"""The report of a preflight as values, and as text and JSON. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from msgspec import to_builtins

from kubeletpy.base.structs import Struct, field, replace
from kubeletpy.config.version_choice import ResolvedVersion
from kubeletpy.pods.pod import Pod
from kubeletpy.pods.runtime_status import PodRuntimeStatus, RuntimePodSummary, SyncIntent
from kubeletpy.resources.admission.handlers import Refusal
from kubeletpy.syncloop.sources.static_uid import UidChoice

# Predictions for pods. A pod is restarted if a container that runs would be stopped. Containers
# that have exited and start again anyway, as in a crash loop, do not count: the kubelet would start
# them, too.


class PodOutcome(StrEnum):
    """The effect of the takeover on a pod."""

    KEPT = "kept"
    """Each container that runs goes on."""
    RESTARTED = "restarted"
    """At least one container that runs is stopped, and started again."""
    STOPPED = "stopped"
    """Its containers are stopped for good."""
    REFUSED = "refused"
    """The agent does not admit it at its start, and neither would a kubelet: it ends as Failed."""
    ENDING = "ending"
    """It is being deleted; its termination goes on."""
    FINISHED = "finished"
    """It has run to completion."""
    STARTING = "starting"
    """Nothing of it runs yet; the agent starts it."""
    UNCLEAR = "unclear"
    """It could not be judged."""


HARMED = frozenset({PodOutcome.RESTARTED, PodOutcome.STOPPED, PodOutcome.REFUSED})
_ADMITTED = frozenset({PodOutcome.KEPT, PodOutcome.RESTARTED, PodOutcome.STARTING})
"""Outcomes of pods that have to be admitted for them."""


class Holdings(Struct, frozen=True):
    """A pod's resources on the node, by the state files.

    Attributes:
        devices: by resource and container: ``example.com/gpu (main)``.
        cpus: exclusive CPUs by container: ``main: 2-3``.
        claims: prepared resource claims.
    """

    devices: tuple[str, ...] = ()
    cpus: tuple[str, ...] = ()
    claims: tuple[str, ...] = ()


class PodVerdict(Struct, frozen=True):
    """One pod.

    Attributes:
        why: reasons for everything that would be done with it.
        adopted: why a static pod without a uid in its manifest keeps that of the running pod.
        containers: container id by name, of those that run.
        volumes: names of its volumes with their kinds.
    """

    namespace: str
    name: str
    uid: str
    outcome: PodOutcome
    why: str = ""
    static: bool = False
    adopted: str = ""
    containers: Mapping[str, str] = field(default_factory=dict)
    volumes: tuple[str, ...] = ()
    holdings: Holdings = field(default_factory=Holdings)


def judge(pod: Pod, status: PodRuntimeStatus, intent: SyncIntent, holdings: Holdings) -> PodVerdict:
    """The verdict on a pod that this node should run.

    Args:
        pod: as its source has it.
        status: what the runtime has of it.
        intent: what the agent's first sync would do.
        holdings: what it has by the state files.
    """
    running = {each.name: each.id for each in status.containers if each.running}
    acts = [each for each in intent.decisions if not each.what.startswith("leave ")]
    why = "; ".join(f"{each.what}: {each.why}" for each in acts)
    outcome = PodOutcome.KEPT
    if pod.being_deleted:
        outcome, why = PodOutcome.ENDING, "it is being deleted"
    elif pod.is_terminal_in_api and not running:
        outcome, why = PodOutcome.FINISHED, f"it is {pod.phase}"
    elif not running and (intent.new_sandbox or status.empty):
        outcome = PodOutcome.STARTING
    elif intent.ends and running:
        outcome = PodOutcome.STOPPED
    elif intent.new_sandbox or running.keys() & set(intent.stopped):
        outcome = PodOutcome.RESTARTED
    return PodVerdict(
        pod.namespace,
        pod.name,
        pod.uid,
        outcome,
        why,
        pod.is_static,
        containers=running,
        volumes=volumes(pod),
        holdings=holdings,
    )


def refused(verdict: PodVerdict, refusal: Refusal) -> PodVerdict:
    """The verdict on a pod that the agent would not admit at its start."""
    if verdict.outcome not in _ADMITTED:
        return verdict
    why = f"not admitted by the start of an agent or kubelet: {refusal.text}"
    return replace(verdict, outcome=PodOutcome.REFUSED, why=why)


def unclear(pod: Pod, why: str) -> PodVerdict:
    """The verdict on a pod that could not be judged."""
    return PodVerdict(
        pod.namespace,
        pod.name,
        pod.uid,
        PodOutcome.UNCLEAR,
        why,
        pod.is_static,
        volumes=volumes(pod),
    )


def orphan(summary: RuntimePodSummary, running: bool, known: bool) -> PodVerdict:
    """The verdict on what the runtime has of a pod that this node should not run.

    Args:
        running: whether a container of it runs.
        known: whether all sources of pods could be read.
    """
    outcome, why = PodOutcome.FINISHED, "its remains in the runtime are removed"
    if running and known:
        outcome = PodOutcome.STOPPED
        why = "neither the API nor a manifest has it; the kubelet stops it, too"
    elif not known:
        outcome, why = PodOutcome.UNCLEAR, "the pods that this node should run are not known"
    return PodVerdict(summary.namespace, summary.name, summary.uid, outcome, why)


def remade(verdict: PodVerdict, running_uid: str, choice: UidChoice | None) -> PodVerdict:
    """The verdict on a static pod that runs under another uid than it will have.

    Args:
        choice: why it does not keep the running pod's; None: its manifest has a uid.
    """
    why = "its manifest has another metadata.uid" if choice is None else choice.text
    why = f"{why}; the running pod ({running_uid}) is stopped, and a new one is started"
    return replace(verdict, outcome=PodOutcome.RESTARTED, why=why)


def volumes(pod: Pod) -> tuple[str, ...]:
    """The pod's volumes: ``data (persistentVolumeClaim)``."""
    found = []
    for volume in pod.spec.get("volumes") or ():
        kinds = [key for key, value in volume.items() if key != "name" and value is not None]
        found.append(f"{volume['name']} ({', '.join(kinds) or 'emptyDir'})")
    return tuple(found)


def counts(verdicts: tuple[PodVerdict, ...]) -> dict[PodOutcome, int]:
    """How many pods have each outcome."""
    found = Counter(one.outcome for one in verdicts)
    return {each: found[each] for each in PodOutcome}


def sentence(verdicts: tuple[PodVerdict, ...]) -> str:
    """``30 pods kept, 0 restarted``, and the other outcomes that occur."""
    found = counts(verdicts)
    kept, restarted = found.pop(PodOutcome.KEPT), found.pop(PodOutcome.RESTARTED)
    text = f"{kept} {'pod' if kept == 1 else 'pods'} kept, {restarted} restarted"
    return text + "".join(f", {number} {each}" for each, number in found.items() if number)


class Severity(StrEnum):
    """How much a finding matters."""

    TAKEN = "taken"
    """State that the agent takes over."""
    NOTE = "note"
    """For information; nothing is lost."""
    DIFFERS = "differs"
    """The agent ignores it, or does otherwise than the kubelet."""
    UNCLEAR = "unclear"
    """It could not be read or judged."""
    BLOCKS = "blocks"
    """The agent would not start, or not work."""


UNSAFE = frozenset({Severity.UNCLEAR, Severity.BLOCKS})


class Area(StrEnum):
    """The subjects of findings, in the order of the report."""

    KUBELET = "kubelet"
    SETTINGS = "settings"
    CREDENTIALS = "credentials"
    VERSION = "version"
    RIGHTS = "rights"
    RUNTIME = "runtime"
    STATE = "state"
    PODS = "pods"
    SPEED = "speed"
    """Advice, which decides nothing."""


class Finding(Struct, frozen=True):
    """One fact that matters before the agent takes over.

    Attributes:
        subject: the file, unit, flag, field, gate or process that it is about.
        what: what was found there.
        consequence: what follows for the node, and what to do; may be empty.
    """

    area: Area
    severity: Severity
    subject: str
    what: str
    consequence: str = ""

    @property
    def text(self) -> str:
        """The finding in one line."""
        stated = f"{self.subject}: {self.what}" if self.what else self.subject
        return f"{stated}: {self.consequence}" if self.consequence else stated


class KubeletFound(Struct, frozen=True):
    """The kubelet whose node would be taken over.

    Attributes:
        source: where its command line was found, for people.
        program: path of its program; empty when only flags are known.
        arguments: its flags. They may hold secrets: never shown.
        directory: its working directory, against which relative paths are resolved.
        files: the unit file, its drop-ins and its environment files.
        pid: of the running process; 0 when it does not run.
    """

    source: str
    program: str
    arguments: tuple[str, ...]
    directory: str = "/"
    files: tuple[str, ...] = ()
    pid: int = 0


class PreflightReport(Struct, frozen=True):
    """Everything that a preflight has found.

    Attributes:
        pods: None: the pods of the node could not be determined.
        version: what the agent would run as; None: the report is incomplete.
    """

    kubelet: KubeletFound | None
    findings: tuple[Finding, ...]
    pods: tuple[PodVerdict, ...] | None = None
    version: ResolvedVersion | None = None

    @property
    def safe(self) -> bool:
        """Whether nothing would be restarted and nothing is unclear."""
        if self.kubelet is None or self.pods is None:
            return False
        harmed = HARMED | {PodOutcome.UNCLEAR}
        return not any(each.severity in UNSAFE for each in self.findings) and not any(
            each.outcome in harmed for each in self.pods
        )


# Texts of a report.


def text(report: PreflightReport) -> str:
    """The report for people; its last line is the answer in one sentence."""
    lines = [_head(report)]
    for area in Area:
        found = [
            f"  {each.severity:<9} {each.text}" for each in report.findings if each.area is area
        ]
        if area is Area.PODS:
            found += [_pod_line(each) for each in report.pods or ()]
        if found:
            lines += ["", f"{area}:", *found]
    return "\n".join([*lines, "", summary(report), ""])


def document(report: PreflightReport) -> dict[str, Any]:
    """The report for programs."""
    kubelet, pods = report.kubelet, report.pods
    return {
        "safe": report.safe,
        "summary": summary(report),
        "kubelet": None
        if kubelet is None
        else {
            "source": kubelet.source,
            "program": kubelet.program,
            "pid": kubelet.pid or None,
            "files": list(kubelet.files),
        },
        "findings": to_builtins(report.findings),
        "counts": None if pods is None else {str(k): n for k, n in counts(pods).items()},
        "pods": None if pods is None else [_pod(each) for each in pods],
    }


def summary(report: PreflightReport) -> str:
    """The answer in one sentence."""
    number = Counter(each.severity for each in report.findings)
    differing, unclear = number[Severity.DIFFERS], number[Severity.UNCLEAR]
    parts = [
        "the pods could not be determined" if report.pods is None else sentence(report.pods),
        f"{differing} {'difference' if differing == 1 else 'differences'}",
        f"{unclear} unclear",
        f"{number[Severity.BLOCKS]} blocking",
    ]
    return f"{parts[0]}; {', '.join(parts[1:])}."


def _head(report: PreflightReport) -> str:
    kubelet = report.kubelet
    if kubelet is None:
        return "kubelet: not found"
    program = f", {kubelet.program}" if kubelet.program else ""
    return f"kubelet: {kubelet.source}{program}"


def _pod_line(pod: PodVerdict) -> str:
    held = pod.holdings
    about = [
        "static" if pod.static else "",
        f"running: {', '.join(pod.containers)}" if pod.containers else "",
        f"volumes: {', '.join(pod.volumes)}" if pod.volumes else "",
        f"devices: {', '.join(held.devices)}" if held.devices else "",
        f"CPUs: {', '.join(held.cpus)}" if held.cpus else "",
        f"claims: {', '.join(held.claims)}" if held.claims else "",
    ]
    reasons = "; ".join(each for each in (pod.adopted, pod.why) if each)
    why = f": {reasons}" if reasons else ""
    details = "; ".join(each for each in about if each)
    reported = f" ({details})" if details else ""
    return f"  {pod.outcome:<9} {pod.namespace}/{pod.name}{reported}{why}"


def _pod(pod: PodVerdict) -> dict[str, Any]:
    """The pod with its holdings beside its other fields."""
    found: dict[str, Any] = to_builtins(pod)
    holdings = found.pop("holdings")
    return {**found, **holdings}
