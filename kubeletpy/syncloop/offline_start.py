"""Holds pods that may not start before the API server has shown them.

:mod:`kubeletpy.resources.admission.offline` decides. Held pods are undecided in admission: they are
neither started nor ended, and their directories and volumes stay. They are released once a list of
the API server has been merged: by then those that were deleted have been removed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from kubeletpy.base.api import types as api
from kubeletpy.base.structs import Component
from kubeletpy.base.tasks import wait_within
from kubeletpy.config.flags import OfflineStart
from kubeletpy.kubeapi.offline import ApiContact
from kubeletpy.pods.pod import SOURCE_API, Pod
from kubeletpy.pods.runtime_status import Decision
from kubeletpy.resources.admission import offline
from kubeletpy.syncloop.sources.static_uids import Decided

CHECK_S = 5.0
"""Between two decisions about a pod that waits: the clock may have been set meanwhile, or the
runtime has shown that the pod runs."""


class OfflineStarts(Component):
    """The decisions about pods while the API server has not answered."""

    mode: OfflineStart
    contact: ApiContact
    # Whether anything of a pod runs, by uid.
    runs: Callable[[str], bool]
    # The Node object as last seen.
    node: Callable[[], api.Node]
    # Records a decision about a pod.
    decided: Decided

    def __post_init__(self) -> None:
        self._verdicts: dict[str, offline.OfflineVerdict] = {}
        self._listed = False
        """Whether the API server has sent a list of the pods."""

    def hold(self, pod: Pod) -> Awaitable[None] | None:
        """Return an awaitable until a pod may start, or None if it may start now."""
        if pod.is_static or self._listed or not self.contact.was_alone:
            return None
        return None if self._decide(pod).starts else self._wait(pod)

    def verdict(self, uid: str) -> offline.OfflineVerdict | None:
        """The decision about a pod that waits."""
        found = self._verdicts.get(uid)
        return None if found is None or found.starts else found

    def from_record(self) -> bool:
        """Whether the list of pods that is about to be delivered is not the API server's."""
        self._listed = self._listed or self.contact.made.is_set()
        return not self._listed

    def merged(self, source: str) -> bool:
        """The pods of a source have been merged; return whether the API server's are, at last."""
        if source != SOURCE_API or not self._listed or self.contact.shown.is_set():
            return False
        self.contact.shown.set()
        self._verdicts.clear()
        return self.contact.was_alone

    async def _wait(self, pod: Pod) -> None:
        while not await wait_within(self.contact.shown, CHECK_S):
            if self._decide(pod).starts:
                return

    def _decide(self, pod: Pod) -> offline.OfflineVerdict:
        away = offline.absence(self.contact.before, self.contact.moment())
        taints = (self.node().get("spec") or {}).get("taints") or ()
        verdict = offline.decide(pod, self.mode, away, runs=self.runs(pod.uid), taints=taints)
        if self._verdicts.get(pod.uid) != verdict:
            what = "starts without the API server" if verdict.starts else "waits for the API server"
            self.decided(pod.uid, [Decision(what, offline.offline_text(verdict))])
        self._verdicts[pod.uid] = verdict
        return verdict
