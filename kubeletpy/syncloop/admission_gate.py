"""Admission in the sync loop: judges pods, preempts others, holds the undecided, refuses the rest.

:class:`Admitting` is the loop's side, :class:`AdmissionGate` judges for it; between them stands
:data:`Admit` (docs/reference/behaviour.md, a5, l). :mod:`kubeletpy.resources.admission` decides.
Admission never makes the loop wait: what takes a while is returned as something to wait for. A pod
that is held or was refused never starts, nor counts as allocated before it is admitted.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence

from kubeletpy.base.api import types as api
from kubeletpy.base.clock import Clock
from kubeletpy.base.structs import Component, Struct
from kubeletpy.base.tasks import cancel_tasks, run_all
from kubeletpy.kubeapi.events.reasons import AdmissionReason, Reason, metric_label
from kubeletpy.kubeapi.events.recorder import WARNING, EventRecorder, pod_reference
from kubeletpy.metrics.pods import PodWorkerMetrics
from kubeletpy.pods.pod import Pod
from kubeletpy.podworkers.records import KillOptions
from kubeletpy.resources.admission import checks
from kubeletpy.resources.admission.declared_features import lacking_for_update
from kubeletpy.resources.admission.handlers import (
    Refusal,
    before_placement,
    judge_any,
    missing_features,
    refused_at_start,
)
from kubeletpy.resources.allocation.allocation_manager import AllocationManager

log = logging.getLogger(__name__)

Settled = Callable[[str, checks.Rejection | None], None]


class HeldPods(Component):
    """Pods whose admission is undecided or refused, by uid: neither may get a worker.

    Admission takes a while when others must give way first, or the node is fetched again. A pod
    that has left the configuration is not kept.
    """

    # Called with the UID of a pod and the outcome of its admission; None: it may run.
    settled: Settled

    def __post_init__(self) -> None:
        self._tasks: dict[str, asyncio.Task[checks.Rejection | None]] = {}
        self._refused: set[str] = set()

    @property
    def waiting(self) -> frozenset[str]:
        """Pods that are neither admitted nor refused yet."""
        return frozenset(self._tasks)

    @property
    def undecided(self) -> frozenset[str]:
        """Pods that take nothing of the node: those waiting, but for the ones just admitted.

        An admitted pod counts as soon as its own admission is decided. The next pod may be decided
        in the same turn of the event loop, before this outcome is recorded.
        """
        return frozenset(uid for uid, task in self._tasks.items() if not _admits(task))

    def holds(self, uid: str) -> bool:
        """Whether a pod may not be started now."""
        return uid in self._tasks or uid in self._refused

    def hold_until(self, uid: str, answer: Awaitable[checks.Rejection | None]) -> None:
        """Hold a pod until the answer arrives."""
        task = asyncio.ensure_future(answer)
        self._tasks[uid] = task
        task.add_done_callback(lambda done: self._done(uid, done))

    def refuse(self, uid: str) -> None:
        """Never start this pod."""
        self._refused.add(uid)

    def forget(self, uid: str) -> None:
        """The pod has left, or is being deleted."""
        self._refused.discard(uid)
        task = self._tasks.pop(uid, None)
        if task is not None:
            task.cancel()

    async def close(self) -> None:
        """Stop waiting for answers; the pods stay undecided."""
        tasks = list(self._tasks.values())
        self._tasks.clear()
        await cancel_tasks(tasks)

    def _done(self, uid: str, task: asyncio.Task[checks.Rejection | None]) -> None:
        if self._tasks.get(uid) is not task:
            return
        del self._tasks[uid]
        if task.cancelled():
            return
        error = task.exception()
        if error is None:
            self.settled(uid, task.result())
            return
        # a task boundary: a fault in one pod's admission must not end the agent, nor hide the pod
        log.error("admission of pod failed", extra={"uid": uid}, exc_info=error)
        message = f"Unexpected error while attempting to recover from admission failure: {error}"
        self.settled(uid, checks.Rejection(AdmissionReason.UNEXPECTED_ADMISSION_ERROR, message))


def _admits(task: asyncio.Task[checks.Rejection | None]) -> bool:
    if not task.done() or task.cancelled() or task.exception() is not None:
        return False
    return task.result() is None


Others = Callable[[], Sequence[Pod]]
"""The other active pods of the node, as of the time of the call."""


class Deferred(Struct, frozen=True):
    """The answer takes a while: await ``settle``; the pod must not be started before that."""

    settle: Callable[[Others], Awaitable[checks.Rejection | None]]


Admit = Callable[[Pod, Sequence[Pod]], checks.Rejection | Deferred | None]
"""The interface of loop and gate: judge a pod alongside the other active pods; None: it may run."""

Settle = Callable[[], Awaitable[checks.Rejection | None]]
"""Waits for what placing a pod takes: files, and plugins that may be slow."""
Place = Callable[[Pod], "checks.Rejection | Settle | None"]
"""Places a pod on the machine; None: it is placed."""


Hold = Callable[[Pod], Awaitable[None] | None]
"""Returns what a pod has to wait for before it is judged; None: nothing."""


class AdmissionGate(Component):
    """The sync loop's :data:`~kubeletpy.syncloop.admission_gate.Admit`."""

    state: Callable[[], checks.NodeState]
    recorder: EventRecorder
    clock: Clock
    metrics: PodWorkerMetrics
    # The node as the API last showed it.
    node: Callable[[], api.Node | None]
    # Reads it from the API; None when it does not answer.
    newest_node: Callable[[], Awaitable[api.Node | None]]
    # Kills a pod and waits until it has ended; raises TimeoutError.
    kill: Callable[[Pod, KillOptions], Awaitable[None]]
    # Places a pod on the machine. Others are admitted meanwhile: a pod that waits for a plugin
    # blocks no other.
    place: Place
    # How many devices are in use, by resource, if the pod with this uid has some of them.
    held: Callable[[str], Mapping[str, int]] = lambda uid: checks.NOTHING
    # Waits for the end of a shutdown that may still be canceled, for a pod that has not run here.
    shutdown_over: Hold = lambda pod: None
    # Waits for plugins of a pod that come back after the start of the agent, before it is placed.
    plugins: Hold = lambda pod: None
    # Waits for the API server to show a pod that may have been replaced meanwhile.
    offline: Hold = lambda pod: None
    # Whether others give way for a resize of a critical pod; False: the scheduler preempts for
    # resizes (gate InPlacePodVerticalScalingSchedulerPreemption).
    resizes_preempt: bool = True

    def __post_init__(self) -> None:
        self._one_by_one = asyncio.Lock()
        self._preempting: dict[str, asyncio.Future[None]] = {}
        """Preemptions for resizes, by uid of the resized pod."""
        self._needs: dict[str, tuple[api.Pod, checks.Needs]] = {}

    def __call__(self, pod: Pod, others: Sequence[Pod]) -> checks.Rejection | Deferred | None:
        """Judge a pod alongside the other active pods."""
        self._forget_all_but(others)
        if (shown := self.offline(pod)) is not None:
            return Deferred(
                lambda of_others: self._wait(pod, of_others, self._until_shown(pod, shown))
            )
        if (over := self.shutdown_over(pod)) is not None:
            return Deferred(lambda of_others: self._wait(pod, of_others, over))
        if rejection := before_placement(pod, self.state()):
            return self._counted(rejection)
        if (returned := self.plugins(pod)) is not None:
            return Deferred(lambda of_others: self._wait(pod, of_others, returned))
        placed = self.place(pod)
        if isinstance(placed, checks.Rejection):
            return self._counted(placed)
        if placed is not None:
            return Deferred(lambda of_others: self._settle(pod, of_others, placed))
        verdict = self._judge(pod, others, self.node())
        if isinstance(verdict, checks.AskForNode | checks.Preempt):
            return Deferred(lambda of_others: self._settle(pod, of_others))
        return self._answer(verdict)

    def fits(self, pod: Pod, others: Sequence[Pod]) -> checks.Rejection | None:
        """Judge a pod as it would be after a resize, alongside the others.

        For a critical pod others are made to give way, unless the scheduler does that; until they
        have, it does not fit.
        """
        match self._judge(pod, others, self.node()):
            case checks.Admitted():
                return None
            case checks.Preempt(shortages) if self.resizes_preempt:
                return self._start_preemption(pod, others, shortages)
            case checks.Preempt(shortages):
                return shortages[0].rejection()
            case checks.Refused(rejection) | checks.AskForNode(rejection):
                return rejection

    def updated(self, old: Pod, new: Pod) -> None:
        """A pod's object has changed: an event names features that the change needs and the node
        lacks.

        Source: docs/reference/events.csv: FailedNodeDeclaredFeaturesCheck.
        """
        state = self.state()
        if state.declared_features is None:
            return
        if missing := lacking_for_update(old, new, state.declared_features, state.version):
            reason, text = Reason.FAILED_NODE_DECLARED_FEATURES_CHECK, missing_features(missing)
            self.recorder.event(pod_reference(new), WARNING, reason, text)

    def foresee(self, pod: Pod, others: Sequence[Pod]) -> tuple[checks.Verdict, Sequence[Pod]]:
        """Judge a pod that has not come; second, whom it would preempt. Changes nothing."""
        verdict = self._judge(pod, others, self.node(), newest=True)
        if not isinstance(verdict, checks.Preempt):
            return verdict, ()
        chosen = checks.victims_or_refusal(pod, others, verdict.shortages, self._needs_of)
        return (
            (checks.Refused(chosen), ())
            if isinstance(chosen, checks.Rejection)
            else (verdict, chosen)
        )

    def at_next_start(self, pods: Sequence[Pod]) -> Mapping[str, Refusal]:
        """The pods, of those that use the node as allocated, that a start would not admit again."""
        return refused_at_start(
            pods, self.node(), self.state(), held=self.held, needs_of=self._needs_of
        )

    async def close(self) -> None:
        """Stop waiting for pods that give way for a resize; they end anyway."""
        await cancel_tasks(self._preempting.values())

    def _start_preemption(
        self, pod: Pod, others: Sequence[Pod], shortages: Sequence[checks.Shortage]
    ) -> checks.Rejection:
        if pod.uid not in self._preempting:
            chosen = checks.victims_or_refusal(pod, others, shortages, self._needs_of)
            if isinstance(chosen, checks.Rejection):
                return chosen
            task = asyncio.ensure_future(self._kill_victims(pod, chosen, shortages))
            self._preempting[pod.uid] = task
            task.add_done_callback(lambda _: self._preempting.pop(pod.uid, None))
        return shortages[0].rejection()

    async def _until_shown(self, pod: Pod, shown: Awaitable[None]) -> None:
        await shown
        for hold in (self.shutdown_over, self.plugins):
            if (waits := hold(pod)) is not None:
                await waits

    async def _wait(
        self, pod: Pod, others: Others, returned: Awaitable[None]
    ) -> checks.Rejection | None:
        """Judge a pod once what it waited for has come, or has had its time."""
        await returned
        if rejection := before_placement(pod, self.state()):
            return self._counted(rejection)
        placed = self.place(pod)
        if isinstance(placed, checks.Rejection):
            return self._counted(placed)
        return await self._settle(pod, others, placed)

    async def _settle(
        self, pod: Pod, others: Others, placed: Settle | None = None
    ) -> checks.Rejection | None:
        """Judge again once the pods that came earlier are settled, and do what it takes."""
        if placed is not None and (rejection := await placed()):
            return self._counted(rejection)
        async with self._one_by_one:
            node = self.node()
            verdict = self._judge(pod, others(), node)
            if isinstance(verdict, checks.AskForNode):
                node = await self.newest_node() or node
                verdict = self._judge(pod, others(), node, newest=True)
            if isinstance(verdict, checks.Preempt):
                return await self._preempt(pod, others(), verdict.shortages)
            return self._answer(verdict)

    def _judge(
        self, pod: Pod, others: Sequence[Pod], node: api.Node | None, *, newest: bool = False
    ) -> checks.Verdict:
        return judge_any(
            pod,
            others,
            node,
            self.state(),
            node_is_newest=newest,
            needs_of=self._needs_of,
            held=self.held(pod.uid),
        )

    def _answer(self, verdict: checks.Verdict) -> checks.Rejection | None:
        match verdict:
            case checks.Refused(rejection) | checks.AskForNode(rejection):
                return self._counted(rejection)
            case checks.Admitted() | checks.Preempt():
                return None

    def _counted(self, rejection: checks.Rejection) -> checks.Rejection:
        self.metrics.admission_rejections.labels(metric_label(rejection.reason)).inc()
        return rejection

    async def _preempt(
        self, pod: Pod, others: Sequence[Pod], shortages: Sequence[checks.Shortage]
    ) -> checks.Rejection | None:
        chosen = checks.victims_or_refusal(pod, others, shortages, self._needs_of)
        if isinstance(chosen, checks.Rejection):
            return self._counted(chosen)
        await self._kill_victims(pod, chosen, shortages)
        return None

    async def _kill_victims(
        self, pod: Pod, chosen: Sequence[Pod], shortages: Sequence[checks.Shortage]
    ) -> None:
        log.info(
            "pods give way to a critical pod",
            extra={"pod": pod.key, "victims": [victim.key for victim in chosen]},
        )
        signal = shortages[0].resource if shortages else ""
        await run_all(*(self._kill_victim(victim, signal) for victim in chosen))

    async def _kill_victim(self, victim: Pod, signal: str) -> None:
        self.recorder.event(
            pod_reference(victim), WARNING, Reason.PREEMPTING, checks.PREEMPTED_MESSAGE
        )
        now = self.clock.now()
        options = KillOptions(
            evict=True,
            status_override=lambda status: checks.preempted(status, now, victim.generation),
        )
        try:
            await self.kill(victim, options)
        except TimeoutError:
            log.warning("preempted pod takes longer than its grace", extra={"pod": victim.key})
            return
        self.metrics.preemptions.labels(signal).inc()

    def _needs_of(self, pod: Pod) -> checks.Needs:
        """The resources that a pod already on the node takes."""
        kept = self._needs.get(pod.uid)
        if kept is not None and kept[0] is pod.object:
            return kept[1]
        needs = checks.needs_in_force(pod)
        self._needs[pod.uid] = (pod.object, needs)
        return needs

    def _forget_all_but(self, others: Sequence[Pod]) -> None:
        if len(self._needs) > 2 * len(others) + 16:
            uids = {other.uid for other in others}
            self._needs = {uid: kept for uid, kept in self._needs.items() if uid in uids}


class Admitting(Component):
    """Admits pods other than mirrors, as they are allocated: the sync loop's side of admission."""

    admit: Admit
    allocations: AllocationManager
    recorder: EventRecorder
    # Has the pod's worker report a refusal.
    reject: Callable[[Pod, checks.Rejection], None]
    # The pods that use the node.
    active: Callable[[], list[Pod]]
    # The newest object of a pod in the configuration.
    current: Callable[[str], Pod | None]
    # Called with the uid of a pod that was held and may run now.
    start: Callable[[str], None]
    # Called with each pod that is held.
    show_held: Callable[[Pod], None]
    # Called with each pod that is admitted.
    on_admitted: Callable[[Pod], None]

    def __post_init__(self) -> None:
        self.held = HeldPods(self._settled)

    def may_start(self, pod: Pod) -> bool:
        """Whether the pod may run now; if not, it is refused, or held until that is settled."""
        as_before = self.allocations.admitting(pod)
        others = [other for other in self.admitted_pods() if other.uid != pod.uid]
        answer = self.admit(as_before, others)
        if isinstance(answer, checks.Rejection):
            self._refuse(pod, answer)
            return False
        if isinstance(answer, Deferred):
            self.held.hold_until(pod.uid, self._settle(as_before, answer))
            self.show_held(as_before)
            return False
        self.allocations.admitted(as_before)
        self.on_admitted(pod)
        return True

    async def _settle(self, pod: Pod, answer: Deferred) -> checks.Rejection | None:
        """Await the outcome; an admitted pod is allocated what it was judged with."""
        rejection = await answer.settle(self.admitted_pods)
        if rejection is None:
            self.allocations.admitted(pod)
        return rejection

    def admitted_pods(self) -> list[Pod]:
        """The admitted pods that use the node, as they are allocated."""
        undecided = self.held.undecided
        active = self.active()
        return [self.allocations.allocated(pod) for pod in active if pod.uid not in undecided]

    def _settled(self, uid: str, rejection: checks.Rejection | None) -> None:
        pod = self.current(uid)
        if pod is None:
            return
        if rejection is not None:
            self._refuse(pod, rejection)
        else:
            self.on_admitted(pod)
            self.allocations.added((pod,))
            self.start(uid)

    def _refuse(self, pod: Pod, rejection: checks.Rejection) -> None:
        self.held.refuse(pod.uid)
        self.allocations.refused(pod.uid)
        self.recorder.event(pod_reference(pod), WARNING, rejection.reason, rejection.message)
        self.reject(pod, rejection)
