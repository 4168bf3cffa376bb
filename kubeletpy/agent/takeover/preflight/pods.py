"""Predicts what happens to each pod of a node when this agent takes over. Pure.

A pod is restarted if a container that runs would be stopped. Containers that have exited and start
again anyway, as in a crash loop, do not count: the kubelet would start them too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from enum import StrEnum

from kubeletpy.base.structs import Struct, field, replace
from kubeletpy.pods.pod import Pod
from kubeletpy.pods.runtime_status import PodRuntimeStatus, RuntimePodSummary
from kubeletpy.pods.sync_results import SyncIntent
from kubeletpy.resources.admission.at_start import Refusal
from kubeletpy.syncloop.sources.static_uid import UidChoice


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
