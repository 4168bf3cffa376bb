"""Keeps the newest status of each pod and writes it to the API.

One write is in flight per pod; the newest status wins; a refused or lost write is retried with
backoff for as long as the pod exists. The final DELETE of a pod is sent only after its last status
has arrived. Must never compute a status: :mod:`.generate` does.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Iterable

from kubeletpy.base.api import types as api
from kubeletpy.base.clock import Clock
from kubeletpy.base.structs import replace
from kubeletpy.base.tasks import Backlog, cancel_tasks
from kubeletpy.kubeapi.protocol import KubeApi
from kubeletpy.metrics.trace.spans import Traces
from kubeletpy.pods.pod import Pod
from kubeletpy.status import store
from kubeletpy.status.entry import StatusEntry
from kubeletpy.status.finish import finished_status
from kubeletpy.status.write_problem import LATE_S, NO_ANSWER, NO_MIRROR, WriteProblem, unreported
from kubeletpy.status.writer import StatusWriter

log = logging.getLogger(__name__)

TerminationObserver = Callable[[str, int, str], None]
"""Called with (list field name, exit code, reason) for each newly seen container termination."""


class ApiStatusManager:
    """:class:`~kubeletpy.status.protocol.StatusManager` over a Kubernetes API."""

    def __init__(
        self,
        kube_api: KubeApi | None,
        clock: Clock,
        *,
        mirror_of: Callable[[Pod], Pod | None],
        on_termination: TerminationObserver = lambda field, code, reason: None,
        on_written: Callable[[float], None] = lambda seconds: None,
        on_refused: Callable[[Pod, str], None] = lambda pod, why: None,
        on_change: Callable[[str], None] = lambda uid: None,
        traces: Traces | None = None,
        backlog: Backlog | None = None,
        rng: random.Random | None = None,
    ) -> None:
        """Without ``kube_api`` (standalone) statuses are kept, not written.

        ``mirror_of`` finds the mirror of a static pod: its status is written there. ``on_written``
        is called with the seconds from a status change to its arrival at the API. ``on_refused`` is
        called once when the API keeps refusing a pod's status, ``on_change`` with the uid of a pod
        when :meth:`shown` may have changed. ``backlog``: pods that wait to start or stop.
        """
        self._clock = clock
        self._mirror_of = mirror_of
        self._on_termination = on_termination
        self._on_change = on_change
        self._writer: StatusWriter | None = None
        if kube_api is not None:
            self._writer = StatusWriter(
                kube_api,
                clock,
                rng or random.Random(),
                Traces() if traces is None else traces,
                Backlog() if backlog is None else backlog,
                target=self._target,
                forget=self._forget,
                on_written=on_written,
                on_refused=on_refused,
            )
        self._entries: dict[str, StatusEntry] = {}
        self._closed = False

    def get_status(self, uid: str) -> api.PodStatus | None:
        """The newest status kept for a pod; see the Protocol."""
        entry = self._entries.get(uid)
        return None if entry is None else _newest(entry, self._target(entry.pod))

    def shown(self, uid: str) -> tuple[Pod, api.PodStatus] | None:
        """A pod and the newest status, which belongs to it; None once its worker is done."""
        entry = self._entries.get(uid)
        return None if entry is None or entry.finished else (entry.pod, entry.status)

    def uids(self) -> list[str]:
        """The pods that have a status."""
        return list(self._entries)

    @property
    def pending(self) -> int:
        """How many pods have a status that the API does not have yet."""
        return sum(entry.writer is not None for entry in self._entries.values())

    def is_reported(self, uid: str) -> bool:
        """Whether the API has the newest status of a pod; also true for a pod without one."""
        entry = self._entries.get(uid)
        return self._writer is None or entry is None or not entry.unsent

    def problem(self, uid: str) -> WriteProblem | None:
        """Why the newest status of a pod has not reached the API, if writing it fails or hangs."""
        entry = self._entries.get(uid)
        if entry is None or self._writer is None or not entry.unsent:
            return None if entry is None else entry.problem
        found, since = entry.problem, entry.stale_since
        if found is None:
            if since is None or self._clock.now() - since < LATE_S:
                return None
            why = NO_MIRROR if self._target(entry.pod) is None else NO_ANSWER
            found = WriteProblem(since, why, 0)
        first = found.since if since is None else min(since, found.since)
        return replace(found, since=first, unreported=unreported(entry.in_api, entry.status))

    def set_status(
        self, pod: Pod, status: api.PodStatus, *, containers_may_run: bool = True
    ) -> None:
        """Keep a status and have it written; see the Protocol."""
        self._update_entry(pod, status, containers_may_run=containers_may_run, finished=False)

    def finish(self, pod: Pod) -> None:
        """Settle the status of a pod whose worker is done; see the Protocol."""
        entry = self._entries.get(pod.uid)
        known = pod.status if entry is None else entry.status
        done = finished_status(pod, known, self._clock.now())
        self._update_entry(pod, done, containers_may_run=False, finished=True)

    def reconcile(self, pod: Pod) -> None:
        """The API's object changed: take it as the base, and restore what others overwrote.

        For a mirror pod, pass the static pod once the pod manager has the mirror.
        """
        entry = self._entries.get(pod.uid)
        if entry is None:
            return
        entry.pod = pod
        target = self._target(pod)
        if target is None:
            self._on_change(pod.uid)
            return
        if entry.containers_may_run and _newest(entry, target) is not entry.status:
            self._on_change(pod.uid)
            return  # the sync that the mirror causes computes the status to be written
        entry.api_uid, entry.in_api = target.uid, target.status
        if entry.writer is None and entry.patch() is not None:
            entry.changed(self._clock.now())
        self._wake(entry)
        self._on_change(pod.uid)

    def forget_except(self, uids: Iterable[str]) -> None:
        """Drop the statuses of pods that were removed."""
        keep = set(uids)
        for uid in [uid for uid in self._entries if uid not in keep]:
            self._drop(uid)

    async def close(self) -> None:
        """Stop writing. Unsent statuses are computed again when the agent next starts."""
        self._closed = True
        await cancel_tasks(entry.writer for entry in self._entries.values())

    def _drop(self, uid: str) -> None:
        entry = self._entries.pop(uid, None)
        if entry is None:
            return
        if entry.writer is not None:
            entry.writer.cancel()
        self._on_change(uid)

    def _target(self, pod: Pod) -> Pod | None:
        """The object that shows the pod in the API: for a static pod its mirror, if it matches."""
        if not pod.is_static:
            return pod
        mirror = self._mirror_of(pod)
        return mirror if mirror is not None and pod.is_shown_by(mirror) else None

    def _update_entry(
        self, pod: Pod, status: api.PodStatus, *, containers_may_run: bool, finished: bool
    ) -> None:
        entry = self._entries.get(pod.uid)
        target = self._target(pod)
        known = _newest(entry, target) if entry else (target or pod).status
        problem = store.illegal_transition(pod, known, status)
        if problem is not None:
            log.error("status of pod dropped", extra={"pod": pod.key, "why": problem})
            return
        kept = store.prepare(pod, status, known, self._clock.now())
        self._count_terminations(known, kept)
        if entry is None:
            entry = self._entries[pod.uid] = StatusEntry(
                pod, kept, (target or pod).status, (target or pod).uid, version=0
            )
        followed_mirror = known is not entry.status
        changed = entry.version == 0 or followed_mirror or not store.same(entry.status, kept)
        entry.pod = pod
        if target is not None and followed_mirror:
            entry.api_uid, entry.in_api = target.uid, target.status
        if changed:
            entry.status = kept
        entry.finished = entry.finished or finished
        shows_more = entry.containers_may_run and not containers_may_run
        entry.containers_may_run = containers_may_run and not entry.finished
        if changed or shows_more or finished:
            entry.changed(self._clock.now())
            entry.changed_at = asyncio.get_running_loop().time()
        self._wake(entry)
        self._on_change(pod.uid)

    def _count_terminations(self, old: api.PodStatus, new: api.PodStatus) -> None:
        for field in store.CONTAINER_LISTS:
            entries: list[api.ContainerStatus] = new.get(field) or []  # type: ignore[assignment]
            before: list[api.ContainerStatus] = old.get(field) or []  # type: ignore[assignment]
            known = {_termination_key(entry) for entry in before}
            for entry in entries:
                ended = (entry.get("state") or {}).get("terminated")
                if ended is not None and _termination_key(entry) not in known:
                    self._on_termination(field, ended.get("exitCode", 0), ended.get("reason", ""))

    def _wake(self, entry: StatusEntry) -> None:
        if self._writer is None or self._closed or entry.writer is not None:
            return
        if entry.unsent or entry.may_delete:
            entry.writer = asyncio.get_running_loop().create_task(
                self._writer.write(entry), name=f"status-{entry.pod.key}"
            )

    def _forget(self, entry: StatusEntry) -> None:
        if self._entries.get(entry.pod.uid) is entry:
            del self._entries[entry.pod.uid]
            self._on_change(entry.pod.uid)


def _newest(entry: StatusEntry, target: Pod | None) -> api.PodStatus:
    """The status that the next one of a pod follows.

    A static pod's first status may have been computed before its mirror was seen. An earlier agent
    wrote the mirror's then: it contains what the runtime does not, such as readiness.
    """
    if target is None or not entry.pod.is_static or entry.sent or entry.api_uid == target.uid:
        return entry.status
    has_run = target.status.get("containerStatuses") or target.status.get("initContainerStatuses")
    return store.mirrored(target) if has_run else entry.status


def _termination_key(entry: api.ContainerStatus) -> tuple[str, str, bool]:
    ended = "terminated" in (entry.get("state") or {})
    return entry.get("name", ""), entry.get("containerID", ""), ended
