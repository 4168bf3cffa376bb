"""Serves the pods API on ``pods-api/pods-api.sock``: ListPods, GetPod and WatchPods of v1alpha1.

The messages are loaded with the first call. No call is answered before all pod sources have
delivered. The number of watchers is bounded, and so are the events that wait for each of them
(:mod:`.watch`) and the time that it may leave one unread. Source:
docs/reference/pods-v1alpha1.json; docs/reference/server.csv; docs/reference/behaviour.md, t5.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Collection, Mapping, Sequence
from functools import cache
from typing import Any

from kubeletpy.base.api import types as api
from kubeletpy.base.wire.api_messages import ApiMessages, Unfit, consisting_of
from kubeletpy.base.wire.api_table import load_table
from kubeletpy.metrics.node import PodsApiMetrics
from kubeletpy.pods.pod import Pod
from kubeletpy.remote.errors import Code
from kubeletpy.remote.local_server import (
    CallRefused,
    LocalServer,
    NodeApi,
    Rate,
    StreamStall,
    parsed,
)
from kubeletpy.server.pods_api.watch import View, last_message, next_event, unconfirmed

log = logging.getLogger(__name__)

PER_SECOND = 100.0
BURST = 10
MAX_AT_ONCE = 64
MAX_WATCHERS = 32
"""Half of the calls at once, so that watchers leave room for the others."""
UNREAD_S = 30.0
"""Seconds that a watcher may leave an event unread before it is cut off."""
CUT_OFF = "watch client channel closed"
INITIALIZING = "Kubelet is initializing"
SERVICE = "v1alpha1.Pods"


class _Watcher:
    """A WatchPods call."""

    def __init__(self) -> None:
        self.sent: dict[str, View] = {}
        """uid -> the state that was last sent."""
        self.changed: dict[str, None] = {}
        """Uids, in the order of their first change that was not sent to it."""
        self.woken = asyncio.Event()


class PodsServer(NodeApi):
    """Serves the pods API on its socket."""

    name = "pods"
    socket_name = "pods-api.sock"

    metrics: PodsApiMetrics
    ready: Callable[[], bool]
    """Whether all pod sources have delivered."""
    pods: Callable[[], Sequence[Pod]]
    """All desired pods."""
    pod: Callable[[str], Pod | None]
    """One of them, by uid."""
    status: Callable[[str], api.PodStatus | None]
    """The newest status of a pod, by uid."""
    known: Callable[[], Collection[str]]
    """The uids of the pods that have a status."""
    reported: Callable[[str], tuple[Pod, api.PodStatus] | None]
    """A pod and its status, by uid, or None once its worker has finished."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._watchers: set[_Watcher] = set()
        self._unfit: set[str] = set()

    def changed(self, uid: str) -> None:
        """Notify watchers that a pod or its status has changed, or that its worker has finished."""
        for watcher in self._watchers:
            watcher.changed[uid] = None
            watcher.woken.set()

    def _made(self) -> LocalServer:
        return LocalServer(
            self._socket,
            MAX_AT_ONCE,
            {SERVICE: {"ListPods": self._list, "GetPod": self._get_pod}},
            streams={SERVICE: {"WatchPods": self._watch}},
            rate=Rate(PER_SECOND, BURST),
            ended=self._ended,
            stall=StreamStall(UNREAD_S, CUT_OFF, self.metrics.dropped.inc),
        )

    def _ended(self, service: str, method: str, code: Code) -> None:
        self.metrics.ended(service.partition(".")[0], method, code.reported)

    def _require_ready(self) -> None:
        """Raise CallRefused while pods may be missing, since a list has to be complete."""
        if not self.ready():
            raise CallRefused(Code.FAILED_PRECONDITION, INITIALIZING)

    async def _list(self, data: bytes) -> bytes:
        self._require_ready()
        from kubeletpy.remote.generated import pods_pb2 as pb

        parsed(pb.ListPodsRequest, data)
        answer = pb.ListPodsResponse()
        pods = sorted(self.pods(), key=lambda pod: pod.uid)
        self._unfit.intersection_update(pod.uid for pod in pods)
        for pod in pods:
            found = self._marshalled(pod.uid, self._object(pod))
            if found is not None:
                answer.pods.append(found)
            await asyncio.sleep(0)  # a node full of pods must not hold up the event loop
        return answer.SerializeToString()

    async def _get_pod(self, data: bytes) -> bytes:
        self._require_ready()
        from kubeletpy.remote.generated import pods_pb2 as pb

        uid = parsed(pb.GetPodRequest, data).podUID
        pod = self.pod(uid)
        if pod is None:
            raise CallRefused(Code.NOT_FOUND, f"pod with UID {uid[:253]} not found")
        found = self._marshalled(uid, self._object(pod))
        if found is None:
            raise CallRefused(Code.INTERNAL, f"pod {pod.key} can't be written in protobuf")
        return pb.GetPodResponse(pod=found).SerializeToString()

    async def _watch(self, data: bytes) -> AsyncGenerator[bytes]:
        self._require_ready()
        from kubeletpy.remote.generated import pods_pb2 as pb

        parsed(pb.WatchPodsRequest, data)
        if len(self._watchers) >= MAX_WATCHERS:
            raise CallRefused(Code.RESOURCE_EXHAUSTED, f"there are {MAX_WATCHERS} watchers already")
        watcher = _Watcher()
        self._watchers.add(watcher)
        try:
            for uid in sorted(self.known()):
                if (event := self._event(watcher, uid)) is not None:
                    yield event
            yield pb.WatchPodsEvent(type=pb.INITIAL_SYNC_COMPLETE).SerializeToString()
            while True:
                await watcher.woken.wait()
                watcher.woken.clear()
                while watcher.changed:
                    uid = next(iter(watcher.changed))
                    del watcher.changed[uid]
                    if (event := self._event(watcher, uid)) is not None:
                        yield event
        finally:
            self._watchers.discard(watcher)

    def _event(self, watcher: _Watcher, uid: str) -> bytes | None:
        """Return the next event about a pod for a watcher, serialized, or None without changes."""
        from kubeletpy.remote.generated import pods_pb2 as pb

        before, reported = watcher.sent.get(uid), self.reported(uid)
        now = None if reported is None else View(*reported)
        event = next_event(before, now)
        if event is None:
            return None
        if now is None:
            assert before is not None
            del watcher.sent[uid]
            found = self._marshalled(uid, last_message(before.pod))
        else:
            found = self._marshalled(uid, now.object)
            if found is None:
                return None
            watcher.sent[uid] = now
        return pb.WatchPodsEvent(type=event.value, pod=found).SerializeToString()

    def _object(self, pod: Pod) -> Mapping[str, Any]:
        status = self.status(pod.uid)
        return View(pod, unconfirmed(pod.status) if status is None else status).object

    def _marshalled(self, uid: str, pod: Mapping[str, Any]) -> bytes | None:
        """Return a pod in protobuf; if a field has a wrong type, log it once and return None."""
        try:
            return marshal(pod)
        except Unfit as error:
            if uid not in self._unfit:
                self._unfit.add(uid)
                extra = {"pod": pod["metadata"].get("name"), "why": str(error)}
                log.warning("the pods API leaves a pod out", extra=extra)
            return None


_POD = "core/Pod"
"""The message in the table of the API's messages, which is read with the first pod."""


def marshal(pod: Mapping[str, Any]) -> bytes:
    """Return a pod as the message ``k8s.io.api.core.v1.Pod``.

    Raises:
        Unfit: a field has a value of another type.
    """
    return _messages().encode(_POD, pod)


@cache
def _messages() -> ApiMessages:
    return ApiMessages(consisting_of(load_table(), (_POD,)))
