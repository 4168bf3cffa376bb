"""The API's mirrors of static pods: made, replaced and removed in the background.

A static pod never waits for the API: it starts without its mirror. One request per mirror is in
flight at a time; the newest request wins. Source: docs/reference/behaviour.md, a8.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Callable
from typing import Any

from kubeletpy.base.structs import Component, field
from kubeletpy.base.tasks import cancel_tasks
from kubeletpy.kubeapi.errors import AlreadyExists, ApiError, Conflict, NotFound
from kubeletpy.kubeapi.protocol import PODS, KubeApi
from kubeletpy.pods.pod import CONFIG_HASH, CONFIG_MIRROR, Pod

log = logging.getLogger(__name__)

FIRST_RETRY = 1.0
LAST_RETRY = 30.0

NodeUid = Callable[[], str | None]
"""The uid of our node object; None while it is unknown or being deleted."""


def is_current(pod: Pod, mirror: Pod) -> bool:
    """Whether a mirror shows its static pod as it is; if not, it is to be replaced."""
    return (
        not mirror.being_deleted
        and mirror.full_name == pod.full_name
        and mirror.annotations.get(CONFIG_MIRROR) == pod.annotations.get(CONFIG_HASH)
    )


def mirror_object(pod: Pod, node_name: str, node_uid: str) -> dict[str, Any]:
    """The mirror to create: the static pod, owned by the node."""
    metadata: dict[str, Any] = {
        key: value
        for key, value in pod.metadata.items()
        if key in ("name", "namespace", "labels", "annotations")
    }
    metadata["annotations"] = {
        **pod.annotations,
        CONFIG_MIRROR: pod.annotations.get(CONFIG_HASH, pod.uid),
    }
    metadata["ownerReferences"] = [
        {"apiVersion": "v1", "kind": "Node", "name": node_name, "uid": node_uid, "controller": True}
    ]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": pod.spec}


class ApiMirrorKeeper(Component):
    """Maintains the API's mirrors of static pods."""

    api: KubeApi
    node_name: str
    node_uid: NodeUid
    # Whether a static pod is still in the configuration.
    desired: Callable[[Pod], bool] = lambda pod: True
    rng: random.Random = field(default_factory=random.Random)

    def __post_init__(self) -> None:
        self._requests: dict[str, tuple[Pod | None, Pod | None]] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def reconcile(self, pod: Pod, mirror: Pod | None) -> None:
        """Have the mirror made or replaced if needed. Never blocks."""
        if mirror is not None and is_current(pod, mirror):
            return
        if self.node_uid() is not None:
            self._request(pod.full_name, pod, mirror)

    def delete(self, mirror: Pod) -> None:
        """Remove a mirror whose static pod was removed. Never blocks."""
        self._request(mirror.full_name, None, mirror)

    async def close(self) -> None:
        """Stop the requests in flight."""
        await cancel_tasks(self._tasks.values())

    def _request(self, full_name: str, pod: Pod | None, mirror: Pod | None) -> None:
        self._requests[full_name] = (pod, mirror)
        if full_name not in self._tasks:
            task = asyncio.get_running_loop().create_task(self._work(full_name))
            self._tasks[full_name] = task
            task.add_done_callback(lambda _done: self._tasks.pop(full_name, None))

    async def _work(self, full_name: str) -> None:
        delay = FIRST_RETRY
        while (request := self._requests.pop(full_name, None)) is not None:
            pod, mirror = request
            if pod is not None and not self.desired(pod):
                continue
            try:
                await self._carry_out(pod, mirror)
                delay = FIRST_RETRY
            except ApiError as error:
                log.info("mirror pod not written", extra={"pod": full_name, "error": str(error)})
                self._requests.setdefault(full_name, request)
                await asyncio.sleep(delay * self.rng.uniform(1.0, 1.5))
                delay = min(delay * 2, LAST_RETRY)

    async def _carry_out(self, pod: Pod | None, mirror: Pod | None) -> None:
        if mirror is not None and (pod is None or not is_current(pod, mirror)):
            # removed or replaced by now: the watch reports it, and the pod is synced again
            with contextlib.suppress(NotFound, Conflict):
                await self.api.delete(
                    PODS, mirror.name, mirror.namespace, grace_period_seconds=0, uid=mirror.uid
                )
        node_uid = self.node_uid()
        if pod is None or node_uid is None:
            return
        try:
            await self.api.create(PODS, mirror_object(pod, self.node_name, node_uid), pod.namespace)
        except AlreadyExists:
            await self._check_existing(pod)

    async def _check_existing(self, pod: Pod) -> None:
        """A mirror exists that the watch has not shown yet: fine if it is of this manifest."""
        found = await self.api.get(PODS, pod.name, pod.namespace)
        annotations = (found.get("metadata") or {}).get("annotations") or {}
        if annotations.get(CONFIG_MIRROR) != pod.annotations.get(CONFIG_HASH):
            raise ApiError(f"another pod {pod.key} exists", code=409, reason="AlreadyExists")
