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
from contextlib import suppress

from kubeletpy.base.api import types as api
from kubeletpy.base.clock import Clock
from kubeletpy.base.structs import Component, Struct, field, replace
from kubeletpy.base.tasks import Backlog, cancel_tasks
from kubeletpy.kubeapi.errors import ApiError, BadRequest, Conflict, Forbidden, Invalid, NotFound
from kubeletpy.kubeapi.protocol import PODS, KubeApi
from kubeletpy.metrics.trace.spans import Traces
from kubeletpy.pods.pod import TERMINAL_PHASES, MalformedPod, Pod
from kubeletpy.status import store
from kubeletpy.status.conditions import is_ready
from kubeletpy.status.container_status import finished_status
from kubeletpy.status.store import (
    LATE_S,
    NO_ANSWER,
    NO_MIRROR,
    WriteProblem,
    may_wait,
    status_patch,
    unreported,
)

log = logging.getLogger(__name__)


class StatusEntry(Struct):
    """The newest status of a pod, and what the API has of it."""

    pod: Pod
    status: api.PodStatus
    in_api: api.PodStatus
    """The status in the API: from the watch, or from the response to our last write."""
    api_uid: str
    version: int = 1
    sent: int = 0
    finished: bool = False
    containers_may_run: bool = True
    changed_at: float = 0.0
    stale_since: float | None = None
    """Unix seconds of the first change that the API does not have yet."""
    writer: asyncio.Task[None] | None = None
    refused: bool = False
    """The last write failed: logged once, not at every retry."""
    problem: WriteProblem | None = None
    answered: int = 0
    """Consecutive refusals; a server that does not answer is not counted."""
    newer: asyncio.Event = field(default_factory=asyncio.Event)
    """Set by each change, for a writer that waits for the next one."""

    def changed(self, now: float) -> None:
        """There is a newer status than the one that was sent. ``now``: Unix seconds."""
        if self.stale_since is None:
            self.stale_since = now
        self.version += 1
        self.newer.set()

    @property
    def unsent(self) -> bool:
        """Whether the API does not have the newest status yet."""
        return self.version != self.sent

    @property
    def may_delete(self) -> bool:
        """Whether everything about a deleted pod is reported, so that its object may be deleted."""
        return (
            self.finished
            and self.pod.being_deleted
            and not self.pod.is_static
            and self.status.get("phase") in TERMINAL_PHASES
            and not self.unsent
        )

    @property
    def may_wait(self) -> bool:
        """Whether the newest status may be written together with the next one."""
        if self.finished and self.pod.being_deleted:
            return False
        reported = self._reported()
        # few statuses may wait: only those are compared in full before they are sent
        return (
            may_wait(self.in_api, reported)
            and status_patch(self.api_uid, self.in_api, reported) is not None
        )

    def patch(self) -> dict[str, object] | None:
        """The patch that brings the API up to the newest status; None when it has it."""
        return status_patch(self.api_uid, self.in_api, self._reported())

    def _reported(self) -> api.PodStatus:
        return store.merge_for_api(
            self.in_api, self.status, containers_may_run=self.containers_may_run
        )


FIRST_RETRY_S = 0.05
"""The Node authorizer sees a new pod some milliseconds late: the first retry is early."""
LAST_RETRY_S = 10.0
SAY_AFTER = 3
"""Consecutive refusals of a write before an event is emitted for the pod."""
TOGETHER_S = 1.0
"""For so long a change waits that the next one shows as well, see :func:`.store.may_wait`."""
TOGETHER_IN_BURSTS_S = 10.0
"""The same for pods that are being deleted, and in bursts, where the next change comes later."""
GIVE_UP_AFTER = 6
"""Consecutive responses that call the last status of a deleted pod invalid, before the pod is
deleted without it. A status that the API never accepts must not keep the pod Terminating
forever."""


class StatusWriter(Component):
    """Writes the status of a pod to the API, retrying until it has arrived, and deletes the pod.

    ``target`` finds the object that shows a pod in the API, ``forget`` is called when the API no
    longer has the pod; the other arguments are
    :class:`~kubeletpy.status.status_manager.ApiStatusManager`'s.
    """

    kube_api: KubeApi
    clock: Clock
    rng: random.Random
    traces: Traces
    backlog: Backlog
    target: Callable[[Pod], Pod | None]
    forget: Callable[[StatusEntry], None]
    is_known: Callable[[Pod], bool]
    on_written: Callable[[float], None]
    on_refused: Callable[[Pod, str], None]

    async def write(self, entry: StatusEntry) -> None:
        """Write until the API is up to date, and delete the object when it may go."""
        delay = FIRST_RETRY_S
        try:
            while entry.unsent or entry.may_delete:
                try:
                    if entry.unsent:
                        await self._wait_for_more(entry)
                        if not await self._send(entry):
                            return
                    else:
                        await self._delete(entry)
                        return
                    delay = FIRST_RETRY_S
                    entry.refused, entry.problem, entry.answered = False, None, 0
                except ApiError as error:
                    if await self._is_absent(entry, error):
                        log.debug("pod is absent", extra={"pod": entry.pod.key, "why": str(error)})
                        if not entry.pod.is_static:  # its status waits for another mirror
                            self.forget(entry)
                        return
                    self._record_refusal(entry, error)
                    if self._gives_up(entry, error):
                        continue
                    await asyncio.sleep(delay * (0.75 + self.rng.random() / 2))
                    delay = min(delay * 2, LAST_RETRY_S)
        finally:
            entry.writer = None

    async def _wait_for_more(self, entry: StatusEntry) -> None:
        """While the newest status may wait, wait for the next one, for a bounded time."""
        longer = entry.pod.being_deleted or self.backlog
        at_most = TOGETHER_IN_BURSTS_S if longer else TOGETHER_S
        with suppress(TimeoutError):
            async with asyncio.timeout(at_most):
                while entry.may_wait:
                    entry.newer.clear()
                    await entry.newer.wait()

    async def _send(self, entry: StatusEntry) -> bool:
        target = self.target(entry.pod)
        if target is None:
            return False  # a static pod without a mirror yet: reconcile() follows once it exists
        if target.uid != entry.api_uid:
            entry.api_uid, entry.in_api = target.uid, target.status
        version, patch = entry.version, entry.patch()
        if patch is not None:
            began, written = asyncio.get_running_loop().time(), entry.status
            answer = await self.kube_api.patch(
                PODS, target.name, patch, target.namespace, subresource="status"
            )
            try:
                entry.in_api = Pod(answer).status  # type: ignore[arg-type]
            except MalformedPod as error:
                log.error(
                    "the API's answer to a status write is not a pod",
                    extra={"pod": target.key, "why": str(error)},
                )
            phase, ready = written.get("phase") or "Pending", is_ready(written)
            self.traces.written(
                entry.pod.uid,
                began,
                f"{phase}, Ready" if ready else phase,
                ready=ready,
                ended=_has_ended(written),
            )
            self.on_written(asyncio.get_running_loop().time() - entry.changed_at)
        else:
            _trace_unwritten(self.traces, entry)
        entry.sent = version
        entry.stale_since = self.clock.now() if entry.unsent else None
        return True

    async def _delete(self, entry: StatusEntry) -> None:
        pod = entry.pod
        await self.kube_api.delete(
            PODS, pod.name, pod.namespace, grace_period_seconds=0, uid=pod.uid
        )
        self.forget(entry)

    async def _is_absent(self, entry: StatusEntry, error: ApiError) -> bool:
        """Whether the API no longer has the pod: nothing of that name, or another pod.

        Writes name the uid, so a conflict may mean the latter: for a delete, and for a patch
        because the uid is a field that may not change. It may also mean that writers collided. The
        Node authorizer forbids a write if the other pod, such as one of a StatefulSet, is not bound
        to this node.
        """
        if isinstance(error, Forbidden):
            return not self.is_known(entry.pod)
        if not (isinstance(error, Conflict) or _names_another(error)):
            return isinstance(error, NotFound)
        try:
            found = await self.kube_api.get(PODS, entry.pod.name, entry.pod.namespace)
            return Pod(found).uid != entry.api_uid  # type: ignore[arg-type]
        except NotFound:
            return True
        except (ApiError, MalformedPod):
            return False  # unknown; the write is retried

    def _gives_up(self, entry: StatusEntry, error: ApiError) -> bool:
        """Whether the pod's deletion continues without its last status."""
        if not isinstance(error, BadRequest | Invalid) or entry.answered < GIVE_UP_AFTER:
            return False
        if not (entry.finished and entry.pod.being_deleted) or not entry.unsent:
            return False
        log.error(
            "the API rejects the last status of a deleted pod: the pod is deleted without it",
            extra={"pod": entry.pod.key, "why": str(error)},
        )
        entry.sent, entry.answered = entry.version, 0
        return True

    def _record_refusal(self, entry: StatusEntry, error: ApiError) -> None:
        since, count = self.clock.now(), 1
        if entry.problem is not None:
            since, count = entry.problem.since, entry.problem.count + 1
        entry.problem = WriteProblem(since, str(error), count)
        entry.answered = entry.answered + 1 if error.code and error.code < 500 else 0
        if entry.answered == SAY_AFTER:
            self.on_refused(entry.pod, str(error))
        if not entry.refused and entry.sent:
            log.warning(
                "could not write the status of a pod; trying again",
                extra={"pod": entry.pod.key, "why": str(error)},
            )
        entry.refused = bool(entry.sent)


def _names_another(error: ApiError) -> bool:
    """Whether a patch was for another pod's uid: the API calls that invalid."""
    causes = error.details.get("causes") if isinstance(error, Invalid) else None
    return isinstance(causes, list) and any(
        isinstance(cause, dict) and cause.get("field") == "metadata.uid" for cause in causes
    )


TerminationObserver = Callable[[str, int, str], None]
"""Called with (list field name, exit code, reason) for each newly seen container termination."""


class ApiStatusManager(Component):
    """Keeps the newest status of each pod and writes it to the API: one write in flight per pod."""

    # None (standalone): statuses are kept, not written.
    kube_api: KubeApi | None
    clock: Clock
    # Finds the mirror of a static pod: its status is written there.
    mirror_of: Callable[[Pod], Pod | None]
    on_termination: TerminationObserver = lambda field, code, reason: None
    # Called with the seconds from a status change to its arrival at the API.
    on_written: Callable[[float], None] = lambda seconds: None
    # Called once when the API keeps refusing a pod's status.
    on_refused: Callable[[Pod, str], None] = lambda pod, why: None
    # The newest object of a pod: a worker may still have the one of a record, which the API's has
    # replaced. None: no source has the pod any more.
    newest: Callable[[Pod], Pod | None] = lambda pod: pod
    # Called with the UID of a pod when :meth:`reported` may have changed.
    on_change: Callable[[str], None] = lambda uid: None
    traces: Traces = field(default_factory=Traces)
    # Pods that wait to start or stop.
    backlog: Backlog = field(default_factory=Backlog)
    rng: random.Random = field(default_factory=random.Random)

    def __post_init__(self) -> None:
        self._writer: StatusWriter | None = None
        if self.kube_api is not None:
            self._writer = StatusWriter(
                self.kube_api,
                self.clock,
                self.rng,
                self.traces,
                self.backlog,
                target=self._target,
                forget=self._forget,
                is_known=lambda pod: self.newest(pod) is not None,
                on_written=self.on_written,
                on_refused=self.on_refused,
            )
        self._entries: dict[str, StatusEntry] = {}
        self._closed = False

    def get_status(self, uid: str) -> api.PodStatus | None:
        """The newest status kept for a pod (static pods: under their own uid).

        For a static pod it is its mirror's, if that was seen only after the kept one was computed.
        """
        entry = self._entries.get(uid)
        return None if entry is None else _newest(entry, self._target(entry.pod))

    def reported(self, uid: str) -> tuple[Pod, api.PodStatus] | None:
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
        """Whether the API has the newest status of a pod; also true for a pod without one.

        A status from a record of the API may contain what the API has not seen.
        """
        entry = self._entries.get(uid)
        if self._is_alone:
            return False
        return self._writer is None or entry is None or not entry.unsent

    async def delivered(self, uids: Iterable[str]) -> None:
        """Wait until the API has the newest status of each pod, or can't have it.

        A static pod without a mirror is such a case. Never returns while the API does not answer.
        """
        known = list(uids)
        while writing := [e.writer for uid in known if (e := self._entries.get(uid)) and e.writer]:
            await asyncio.wait(writing)

    def problem(self, uid: str) -> WriteProblem | None:
        """Why the newest status of a pod has not reached the API, if writing it fails or hangs."""
        entry = self._entries.get(uid)
        if entry is None or self._writer is None or not entry.unsent:
            return None if entry is None else entry.problem
        found, since = entry.problem, entry.stale_since
        if found is None:
            if since is None or self.clock.now() - since < LATE_S:
                return None
            why = NO_MIRROR if self._target(entry.pod) is None else NO_ANSWER
            found = WriteProblem(since, why, 0)
        first = found.since if since is None else min(since, found.since)
        return replace(found, since=first, unreported=unreported(entry.in_api, entry.status))

    def set_status(
        self, pod: Pod, status: api.PodStatus, *, containers_may_run: bool = True
    ) -> None:
        """Keep a new status and have it written. Never blocks.

        ``containers_may_run``: while true, a terminal phase is kept but not yet shown to the API.
        """
        self._update_entry(pod, status, containers_may_run=containers_may_run, finished=False)

    def finish(self, pod: Pod) -> None:
        """The worker is done with the pod: settle what is still open in its status, write it and,
        if the pod was deleted, delete it from the API."""
        entry = self._entries.get(pod.uid)
        known = pod.status if entry is None else entry.status
        done = finished_status(pod, known, self.clock.now())
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
            self.on_change(pod.uid)
            return
        if entry.containers_may_run and _newest(entry, target) is not entry.status:
            self.on_change(pod.uid)
            return  # the sync that the mirror causes computes the status to be written
        entry.api_uid, entry.in_api = target.uid, target.status
        if entry.writer is None and entry.patch() is not None:
            entry.changed(self.clock.now())
        self._wake(entry)
        self.on_change(pod.uid)

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
        self.on_change(uid)

    @property
    def _is_alone(self) -> bool:
        """Whether pods come from a record: their statuses are not what the API has."""
        return self.kube_api is not None and self.kube_api.alone

    def _target(self, pod: Pod) -> Pod | None:
        """The object that shows the pod in the API: for a static pod its mirror, if it matches."""
        if not pod.is_static:
            return self.newest(pod) or pod
        mirror = self.mirror_of(pod)
        return mirror if mirror is not None and pod.is_reported_by(mirror) else None

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
        kept = store.prepare(pod, status, known, self.clock.now())
        self._count_terminations(known, kept)
        if entry is None:
            shown = target or pod  # one from a record does not show what the API has
            in_api: api.PodStatus = {} if self._is_alone else shown.status
            entry = self._entries[pod.uid] = StatusEntry(pod, kept, in_api, shown.uid, version=0)
        followed_mirror = known is not entry.status
        changed = entry.version == 0 or followed_mirror or not store.same(entry.status, kept)
        entry.pod = pod
        if target is not None and followed_mirror and not self._is_alone:
            entry.api_uid, entry.in_api = target.uid, target.status
        if changed:
            entry.status = kept
        entry.finished = entry.finished or finished
        shows_more = entry.containers_may_run and not containers_may_run
        entry.containers_may_run = containers_may_run and not entry.finished
        if changed or shows_more or finished:
            entry.changed(self.clock.now())
            entry.changed_at = asyncio.get_running_loop().time()
        if self._writer is None or self._is_alone:
            _trace_unwritten(self.traces, entry)
        self._wake(entry)
        self.on_change(pod.uid)

    def _count_terminations(self, old: api.PodStatus, new: api.PodStatus) -> None:
        for list_name in store.CONTAINER_LISTS:
            entries: list[api.ContainerStatus] = new.get(list_name) or []  # type: ignore[assignment]
            before: list[api.ContainerStatus] = old.get(list_name) or []  # type: ignore[assignment]
            known = {_termination_key(entry) for entry in before}
            for entry in entries:
                ended = (entry.get("state") or {}).get("terminated")
                if ended is not None and _termination_key(entry) not in known:
                    self.on_termination(
                        list_name, ended.get("exitCode", 0), ended.get("reason", "")
                    )

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
            self.on_change(entry.pod.uid)


def _newest(entry: StatusEntry, target: Pod | None) -> api.PodStatus:
    """The status that the next one of a pod follows.

    A static pod's first status may have been computed before its mirror was seen. An earlier agent
    wrote the mirror's then: it contains what the runtime does not, such as readiness.
    """
    if target is None or not entry.pod.is_static or entry.sent or entry.api_uid == target.uid:
        return entry.status
    has_run = target.status.get("containerStatuses") or target.status.get("initContainerStatuses")
    return store.mirrored(target) if has_run else entry.status


def _has_ended(status: api.PodStatus) -> bool:
    return status.get("phase") in TERMINAL_PHASES


def _trace_unwritten(traces: Traces, entry: StatusEntry) -> None:
    shown = entry.status
    traces.needs_no_write(entry.pod.uid, ready=is_ready(shown), ended=_has_ended(shown))


def _termination_key(entry: api.ContainerStatus) -> tuple[str, str, bool]:
    ended = "terminated" in (entry.get("state") or {})
    return entry.get("name", ""), entry.get("containerID", ""), ended
