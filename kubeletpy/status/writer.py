"""Writes the status of one pod to the API, retrying until it has arrived, and deletes the pod.

A refused or lost write is retried with backoff for as long as the pod exists. Must never decide
what the status is.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable
from contextlib import suppress

from kubeletpy.base.clock import Clock
from kubeletpy.base.tasks import Backlog
from kubeletpy.kubeapi.errors import ApiError, BadRequest, Conflict, Invalid, NotFound
from kubeletpy.kubeapi.protocol import PODS, KubeApi
from kubeletpy.metrics.trace.spans import Traces
from kubeletpy.pods.pod import TERMINAL_PHASES, MalformedPod, Pod
from kubeletpy.status.conditions import is_ready
from kubeletpy.status.entry import StatusEntry
from kubeletpy.status.write_problem import WriteProblem

log = logging.getLogger(__name__)

FIRST_RETRY_S = 0.05
"""The Node authorizer sees a new pod some milliseconds late: the first retry is early."""
LAST_RETRY_S = 10.0
SAY_AFTER = 3
"""Consecutive refusals of a write before an event is emitted for the pod."""
TOGETHER_S = 1.0
"""For so long a change waits that the next one shows as well, see :func:`.patch.may_wait`."""
TOGETHER_IN_BURSTS_S = 10.0
"""The same for pods that are being deleted, and in bursts, where the next change comes later."""
GIVE_UP_AFTER = 6
"""Consecutive responses that call the last status of a deleted pod invalid, before the pod is
deleted without it. A status that the API never accepts must not keep the pod Terminating
forever."""


class StatusWriter:
    """Carries statuses to a Kubernetes API.

    ``target`` finds the object that shows a pod in the API, ``forget`` is called when the API no
    longer has the pod; the other arguments are
    :class:`~kubeletpy.status.status_manager.ApiStatusManager`'s.
    """

    def __init__(
        self,
        kube_api: KubeApi,
        clock: Clock,
        rng: random.Random,
        traces: Traces,
        backlog: Backlog,
        *,
        target: Callable[[Pod], Pod | None],
        forget: Callable[[StatusEntry], None],
        on_written: Callable[[float], None],
        on_refused: Callable[[Pod, str], None],
    ) -> None:
        self._api = kube_api
        self._clock = clock
        self._rng = rng
        self._traces = traces
        self._backlog = backlog
        self._target = target
        self._forget = forget
        self._on_written = on_written
        self._on_refused = on_refused

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
                            self._forget(entry)
                        return
                    self._record_refusal(entry, error)
                    if self._gives_up(entry, error):
                        continue
                    await asyncio.sleep(delay * (0.75 + self._rng.random() / 2))
                    delay = min(delay * 2, LAST_RETRY_S)
        finally:
            entry.writer = None

    async def _wait_for_more(self, entry: StatusEntry) -> None:
        """While the newest status may wait, wait for the next one, for a bounded time."""
        longer = entry.pod.being_deleted or self._backlog
        at_most = TOGETHER_IN_BURSTS_S if longer else TOGETHER_S
        with suppress(TimeoutError):
            async with asyncio.timeout(at_most):
                while entry.may_wait:
                    entry.newer.clear()
                    await entry.newer.wait()

    async def _send(self, entry: StatusEntry) -> bool:
        target = self._target(entry.pod)
        if target is None:
            return False  # a static pod without a mirror yet: reconcile() follows once it exists
        if target.uid != entry.api_uid:
            entry.api_uid, entry.in_api = target.uid, target.status
        version, patch = entry.version, entry.patch()
        if patch is not None:
            began, written = asyncio.get_running_loop().time(), entry.status
            answer = await self._api.patch(
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
            self._traces.written(
                entry.pod.uid,
                began,
                f"{phase}, Ready" if ready else phase,
                ready=ready,
                ended=phase in TERMINAL_PHASES,
            )
            self._on_written(asyncio.get_running_loop().time() - entry.changed_at)
        entry.sent = version
        entry.stale_since = self._clock.now() if entry.unsent else None
        return True

    async def _delete(self, entry: StatusEntry) -> None:
        pod = entry.pod
        await self._api.delete(PODS, pod.name, pod.namespace, grace_period_seconds=0, uid=pod.uid)
        self._forget(entry)

    async def _is_absent(self, entry: StatusEntry, error: ApiError) -> bool:
        """Whether the API no longer has the pod: nothing of that name, or another pod.

        Writes name the uid, so a conflict may mean the latter: for a delete, and for a patch
        because the uid is a field that may not change. It may also mean that writers collided.
        """
        if not (isinstance(error, Conflict) or _names_another(error)):
            return isinstance(error, NotFound)
        try:
            found = await self._api.get(PODS, entry.pod.name, entry.pod.namespace)
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


def _names_another(error: ApiError) -> bool:
    """Whether a patch was for another pod's uid: the API calls that invalid."""
    causes = error.details.get("causes") if isinstance(error, Invalid) else None
    return isinstance(causes, list) and any(
        isinstance(cause, dict) and cause.get("field") == "metadata.uid" for cause in causes
    )
