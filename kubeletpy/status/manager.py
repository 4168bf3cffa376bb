"""Keeps the newest status of each pod and writes it to the API.

One write is in flight per pod; the newest status wins; a refused or lost write is tried again with
backoff for as long as the pod is there. The final DELETE of a pod goes out only after its last
status arrived. Must never compute a status: :mod:`.generate` does.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from kubeletpy.api import types as api
from kubeletpy.clock import Clock
from kubeletpy.kubeapi.errors import ApiError, BadRequest, Invalid, NotFound
from kubeletpy.kubeapi.protocol import PODS, KubeApi
from kubeletpy.pods.pod import MalformedPod, Pod
from kubeletpy.status import store
from kubeletpy.status.finish import finished_status
from kubeletpy.status.patch import status_patch
from kubeletpy.trace.spans import Traces

log = logging.getLogger(__name__)

FIRST_RETRY_S = 0.05
"""The Node authorizer may not know a new pod for some milliseconds: the first retry comes soon."""
LAST_RETRY_S = 10.0
TERMINAL = ("Succeeded", "Failed")
SAY_AFTER = 3
"""Answers in a row that refuse a write, until the pod's events say so."""
GIVE_UP_AFTER = 6
"""Answers in a row that call the last status of a deleted pod invalid, until it is deleted without
it: what the API will never take must not keep the pod Terminating for ever."""

TerminationObserver = Callable[[str, int, str], None]
"""Told (list field name, exit code, reason) of each container termination newly seen."""


@dataclass(frozen=True, slots=True)
class WriteProblem:
    """Why a pod's status has not reached the API."""

    since: float
    """Unix seconds of the first failure in a row."""
    message: str
    count: int


@dataclass(slots=True)
class _Entry:
    pod: Pod
    status: api.PodStatus
    in_api: api.PodStatus
    """What the API is known to show: from the watch, or from the answer to our last write."""
    api_uid: str
    version: int = 1
    sent: int = 0
    finished: bool = False
    containers_may_run: bool = True
    changed_at: float = 0.0
    writer: asyncio.Task[None] | None = None
    refused: bool = False
    """The last write failed: said once, not at every retry."""
    problem: WriteProblem | None = None
    answered: int = 0
    """Answers in a row that refused; a server that does not answer is not counted."""


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
        traces: Traces | None = None,
        rng: random.Random | None = None,
    ) -> None:
        """Without ``kube_api`` (standalone) statuses are kept, not written.

        ``mirror_of`` finds the mirror of a static pod: its status is written there.
        ``on_written`` is told the seconds from a status change to its arrival at the API,
        ``on_refused`` once that the API keeps refusing a pod's status.
        """
        self._api = kube_api
        self._clock = clock
        self._mirror_of = mirror_of
        self._on_termination = on_termination
        self._on_written = on_written
        self._on_refused = on_refused
        self._traces = Traces() if traces is None else traces
        self._rng = rng or random.Random()
        self._entries: dict[str, _Entry] = {}
        self._closed = False

    def get_status(self, uid: str) -> api.PodStatus | None:
        """The newest status kept for a pod."""
        entry = self._entries.get(uid)
        return None if entry is None else entry.status

    @property
    def pending(self) -> int:
        """How many pods have a status that the API has not got yet."""
        return sum(entry.writer is not None for entry in self._entries.values())

    def is_told(self, uid: str) -> bool:
        """Whether the API has the newest status of a pod; also true of a pod without one."""
        entry = self._entries.get(uid)
        return self._api is None or entry is None or entry.sent == entry.version

    def problem(self, uid: str) -> WriteProblem | None:
        """Why the newest status of a pod has not reached the API, when writing it fails."""
        entry = self._entries.get(uid)
        return None if entry is None else entry.problem

    def set_status(
        self, pod: Pod, status: api.PodStatus, *, containers_may_run: bool = True
    ) -> None:
        """Keep a status and have it written; see the Protocol."""
        self._keep(pod, status, containers_may_run=containers_may_run, finished=False)

    def finish(self, pod: Pod) -> None:
        """Settle the status of a pod whose worker is done; see the Protocol."""
        entry = self._entries.get(pod.uid)
        known = pod.status if entry is None else entry.status
        self._keep(pod, finished_status(pod, known), containers_may_run=False, finished=True)

    def reconcile(self, pod: Pod) -> None:
        """The API's object changed: take it as the base, and mend what someone else overwrote.

        For a mirror pod pass the static pod after the pod manager knows the mirror.
        """
        entry = self._entries.get(pod.uid)
        if entry is None:
            return
        entry.pod = pod
        target = self._target(pod)
        if target is None:
            return
        entry.api_uid, entry.in_api = target.uid, target.status
        if entry.writer is None and self._patch(entry) is not None:
            entry.version += 1
        self._wake(entry)

    def forget_except(self, uids: Iterable[str]) -> None:
        """Drop the statuses of pods that are gone."""
        keep = set(uids)
        for uid in [uid for uid in self._entries if uid not in keep]:
            self._drop(uid)

    async def close(self) -> None:
        """Stop writing. What was not sent is computed anew by the next start of the agent."""
        self._closed = True
        writers = [entry.writer for entry in self._entries.values() if entry.writer is not None]
        for writer in writers:
            writer.cancel()
        await asyncio.gather(*writers, return_exceptions=True)

    def _drop(self, uid: str) -> None:
        entry = self._entries.pop(uid, None)
        if entry is not None and entry.writer is not None:
            entry.writer.cancel()

    def _target(self, pod: Pod) -> Pod | None:
        """What shows the pod in the API: of a static pod its mirror, if it is of this manifest."""
        if not pod.is_static:
            return pod
        mirror = self._mirror_of(pod)
        return mirror if mirror is not None and pod.is_shown_by(mirror) else None

    def _keep(
        self, pod: Pod, status: api.PodStatus, *, containers_may_run: bool, finished: bool
    ) -> None:
        entry = self._entries.get(pod.uid)
        target = self._target(pod)
        known = entry.status if entry else (target or pod).status
        problem = store.illegal_transition(pod, known, status)
        if problem is not None:
            log.error("status of pod dropped", extra={"pod": pod.key, "why": problem})
            return
        kept = store.prepare(pod, status, known, self._clock.now())
        self._count_terminations(known, kept)
        if entry is None:
            entry = self._entries[pod.uid] = _Entry(
                pod, kept, (target or pod).status, (target or pod).uid, version=0
            )
        changed = entry.version == 0 or not store.same(entry.status, kept)
        entry.pod = pod
        if changed:
            entry.status = kept
        entry.finished = entry.finished or finished
        shows_more = entry.containers_may_run and not containers_may_run
        entry.containers_may_run = containers_may_run and not entry.finished
        if changed or shows_more or finished:
            entry.version += 1
            entry.changed_at = asyncio.get_running_loop().time()
        self._wake(entry)

    def _count_terminations(self, old: api.PodStatus, new: api.PodStatus) -> None:
        for field in (
            "containerStatuses",
            "initContainerStatuses",
            "ephemeralContainerStatuses",
        ):
            entries: list[api.ContainerStatus] = new.get(field) or []  # type: ignore[assignment]
            before: list[api.ContainerStatus] = old.get(field) or []  # type: ignore[assignment]
            known = {_termination_key(entry) for entry in before}
            for entry in entries:
                ended = (entry.get("state") or {}).get("terminated")
                if ended is not None and _termination_key(entry) not in known:
                    self._on_termination(field, ended.get("exitCode", 0), ended.get("reason", ""))

    def _wake(self, entry: _Entry) -> None:
        if self._api is None or self._closed or entry.writer is not None:
            return
        if entry.version != entry.sent or self._may_delete(entry):
            entry.writer = asyncio.get_running_loop().create_task(
                self._write(self._api, entry), name=f"status-{entry.pod.key}"
            )

    def _patch(self, entry: _Entry) -> dict[str, object] | None:
        shown = store.merge_for_api(
            entry.in_api, entry.status, containers_may_run=entry.containers_may_run
        )
        return status_patch(entry.api_uid, entry.in_api, shown)

    def _may_delete(self, entry: _Entry) -> bool:
        return (
            entry.finished
            and entry.pod.being_deleted
            and not entry.pod.is_static
            and entry.status.get("phase") in TERMINAL
            and entry.version == entry.sent
        )

    async def _write(self, kube_api: KubeApi, entry: _Entry) -> None:
        delay = FIRST_RETRY_S
        try:
            while entry.version != entry.sent or self._may_delete(entry):
                try:
                    if entry.version != entry.sent:
                        if not await self._send(kube_api, entry):
                            return
                    else:
                        await self._delete(kube_api, entry)
                        return
                    delay = FIRST_RETRY_S
                    entry.refused, entry.problem, entry.answered = False, None, 0
                except NotFound as error:
                    log.debug("pod is gone", extra={"pod": entry.pod.key, "why": str(error)})
                    self._forget(entry)
                    return
                except ApiError as error:
                    self._say_refused(entry, error)
                    if self._gives_up(entry, error):
                        continue
                    await asyncio.sleep(delay * (0.75 + self._rng.random() / 2))
                    delay = min(delay * 2, LAST_RETRY_S)
        finally:
            entry.writer = None

    async def _send(self, kube_api: KubeApi, entry: _Entry) -> bool:
        target = self._target(entry.pod)
        if target is None:
            return False  # a static pod whose mirror is not there yet: reconcile() comes with it
        if target.uid != entry.api_uid:
            entry.api_uid, entry.in_api = target.uid, target.status
        version, patch = entry.version, self._patch(entry)
        if patch is not None:
            began, written = asyncio.get_running_loop().time(), entry.status
            answer = await kube_api.patch(
                PODS, target.name, patch, target.namespace, subresource="status"
            )
            try:
                entry.in_api = Pod(answer).status  # type: ignore[arg-type]
            except MalformedPod as error:
                log.error(
                    "the API answered a status write with no pod",
                    extra={"pod": target.key, "why": str(error)},
                )
            ended = _is_ready(written) or written.get("phase") in TERMINAL
            self._traces.written(entry.pod.uid, began, _in_words(written), ready=ended)
            self._on_written(asyncio.get_running_loop().time() - entry.changed_at)
        entry.sent = version
        return True

    async def _delete(self, kube_api: KubeApi, entry: _Entry) -> None:
        pod = entry.pod
        await kube_api.delete(PODS, pod.name, pod.namespace, grace_period_seconds=0, uid=pod.uid)
        self._forget(entry)

    def _forget(self, entry: _Entry) -> None:
        if self._entries.get(entry.pod.uid) is entry:
            del self._entries[entry.pod.uid]

    def _gives_up(self, entry: _Entry, error: ApiError) -> bool:
        """Whether the pod's deletion goes on without its last status."""
        if not isinstance(error, BadRequest | Invalid) or entry.answered < GIVE_UP_AFTER:
            return False
        if not (entry.finished and entry.pod.being_deleted) or entry.version == entry.sent:
            return False
        log.error(
            "the API will not take the last status of a deleted pod: it is deleted without it",
            extra={"pod": entry.pod.key, "why": str(error)},
        )
        entry.sent, entry.answered = entry.version, 0
        return True

    def _say_refused(self, entry: _Entry, error: ApiError) -> None:
        since, count = self._clock.now(), 1
        if entry.problem is not None:
            since, count = entry.problem.since, entry.problem.count + 1
        entry.problem = WriteProblem(since, str(error), count)
        entry.answered = entry.answered + 1 if error.code and error.code < 500 else 0
        if entry.answered == SAY_AFTER:
            self._on_refused(entry.pod, str(error))
        if not entry.refused and entry.sent:
            log.warning(
                "could not write the status of a pod; trying again",
                extra={"pod": entry.pod.key, "why": str(error)},
            )
        entry.refused = bool(entry.sent)


def _is_ready(status: api.PodStatus) -> bool:
    return any(
        condition["type"] == "Ready" and condition.get("status") == "True"
        for condition in status.get("conditions") or ()
    )


def _in_words(status: api.PodStatus) -> str:
    phase = status.get("phase") or "Pending"
    return f"{phase}, Ready" if _is_ready(status) else phase


def _termination_key(entry: api.ContainerStatus) -> tuple[str, str, bool]:
    ended = "terminated" in (entry.get("state") or {})
    return entry.get("name", ""), entry.get("containerID", ""), ended
