"""Lets pods in: has them judged as they are allocated, holds what takes a while, refuses the rest.

The decisions are made by the ``Admit`` it is given. Must never let a pod start that is held or was
refused, nor count a pod as allocated before it is admitted.
Source: docs/reference/behaviour.md, l.
"""

from __future__ import annotations

from collections.abc import Callable

from kubeletpy.kubeapi.events.recorder import WARNING, EventRecorder, pod_reference
from kubeletpy.pods.pod import Pod
from kubeletpy.resources.admission.checks import Rejection
from kubeletpy.resources.allocation.allocation_manager import AllocationManager
from kubeletpy.syncloop.held_pods import HeldPods
from kubeletpy.syncloop.rejection import Admit, Deferred


class Admitting:
    """For pods other than mirrors."""

    def __init__(
        self,
        admit: Admit,
        allocations: AllocationManager,
        recorder: EventRecorder,
        *,
        reject: Callable[[Pod, Rejection], None],
        active: Callable[[], list[Pod]],
        current: Callable[[str], Pod | None],
        start: Callable[[str], None],
        show_held: Callable[[Pod], None],
        on_admitted: Callable[[Pod], None],
    ) -> None:
        """Args:
        reject: has the pod's worker report a refusal.
        active: the pods that use the node.
        current: the newest object of a pod in the configuration.
        show_held: called with each pod that is held.
        on_admitted: called with each pod that is admitted.
        start: called with the uid of a pod that was held and may run now.
        """
        self._admit = admit
        self._allocations = allocations
        self._recorder = recorder
        self._reject = reject
        self._active = active
        self._current = current
        self._start = start
        self._show_held = show_held
        self._on_admitted = on_admitted
        self.held = HeldPods(self._settled)

    def may_start(self, pod: Pod) -> bool:
        """Whether the pod may run now; if not, it is refused, or held until that is settled."""
        as_before = self._allocations.admitting(pod)
        others = [other for other in self.admitted_pods() if other.uid != pod.uid]
        answer = self._admit(as_before, others)
        if isinstance(answer, Rejection):
            self._refuse(pod, answer)
            return False
        if isinstance(answer, Deferred):
            self.held.hold_until(pod.uid, self._settle(as_before, answer))
            self._show_held(as_before)
            return False
        self._allocations.admitted(as_before)
        self._on_admitted(pod)
        return True

    async def _settle(self, pod: Pod, answer: Deferred) -> Rejection | None:
        """Await the outcome; an admitted pod is allocated what it was judged with."""
        rejection = await answer.settle(self.admitted_pods)
        if rejection is None:
            self._allocations.admitted(pod)
        return rejection

    def admitted_pods(self) -> list[Pod]:
        """The admitted pods that use the node, as they are allocated."""
        undecided = self.held.undecided
        active = self._active()
        return [self._allocations.allocated(pod) for pod in active if pod.uid not in undecided]

    def _settled(self, uid: str, rejection: Rejection | None) -> None:
        pod = self._current(uid)
        if pod is None:
            return
        if rejection is not None:
            self._refuse(pod, rejection)
        else:
            self._on_admitted(pod)
            self._allocations.added((pod,))
            self._start(uid)

    def _refuse(self, pod: Pod, rejection: Rejection) -> None:
        self.held.refuse(pod.uid)
        self._allocations.refused(pod.uid)
        self._recorder.event(pod_reference(pod), WARNING, rejection.reason, rejection.message)
        self._reject(pod, rejection)
