"""The node as the cluster sees it: labels and taints from the API, our own amounts.

A watch follows this one object, so that an administrator's changes are seen at once. Must never
request another node: the Node authorizer would refuse.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from typing import cast

from kubeletpy.base.api import types as api
from kubeletpy.base.api.times import format_time
from kubeletpy.base.api.types import JSON
from kubeletpy.base.clock import Clock
from kubeletpy.base.structs import Component, field
from kubeletpy.base.tasks import wait_within
from kubeletpy.kubeapi.errors import ApiError
from kubeletpy.kubeapi.events.reasons import Reason
from kubeletpy.kubeapi.events.recorder import NORMAL, EventRecorder, node_reference
from kubeletpy.kubeapi.protocol import NODES, KubeApi, WatchEvent
from kubeletpy.kubeapi.reflector import Reflector
from kubeletpy.kubeapi.tracked_object import revision

log = logging.getLogger(__name__)


class OwnNode(Component):
    """The node's facts for admission."""

    name: str
    kube_api: KubeApi | None
    recorder: EventRecorder
    clock: Clock
    initial: api.Node
    """The object as it would be registered; its allocatable and features always take precedence
    over the API's, which may be from an earlier configuration."""
    written: Callable[[], api.Node | None] = lambda: None
    """The object that the API returned for our last write."""
    reported: Callable[[], None] = lambda: None
    """Called each time the API has shown the node."""
    rng: random.Random = field(default_factory=random.Random)

    def __post_init__(self) -> None:
        self._watched: api.Node | None = None
        self._deleted_revision = -1
        """The Node was deleted at this revision, unless the API has shown it since."""
        self._deleted_at = 0.0
        self._former = ""
        """Uid of the object that the present one has replaced; its revision may be newer."""
        self._unschedulable = False
        self._made: tuple[api.Node, api.Node] | None = None
        self._reflector: Reflector | None = None
        if self.kube_api is not None:
            self._reflector = Reflector(
                self.kube_api,
                NODES,
                on_replace=self._replace,
                on_event=self._event,
                field_selector=f"metadata.name={self.name}",
                rng=self.rng,
            )

    def as_reported(self) -> api.Node | None:
        """The newest object that the API has shown, unchanged; None before it has shown any."""
        written = self.written()
        if written is not None and self._former and _uid(written) == self._former:
            written = None
        return _newer(self._watched, written)

    def uid(self) -> str:
        """The uid of the Node object; empty until the API has shown it."""
        known = self.as_reported()
        return "" if known is None else _uid(known)

    def live_uid(self) -> str:
        """The uid of the Node object, as owner of others; empty while the API has none."""
        return "" if self.deleted() else self.uid()

    def deleted(self) -> bool:
        """Whether the API had the Node object, and has it no more."""
        known = self.as_reported()
        return known is not None and revision(known) <= self._deleted_revision

    def problem(self) -> str:
        """That the Node object was deleted, and what to do; empty while the API has it."""
        if not self.deleted():
            return ""
        return (
            f"the API has no Node object {self.name} any more: it was deleted at "
            f"{format_time(self._deleted_at)}. The agent does not register a deleted node again by "
            "itself: it may have been removed on purpose. To have it back, restart the agent, or "
            "create the Node object: the agent then serves it at once"
        )

    def not_found(self) -> None:
        """The API has answered that it has no such Node object."""
        known = self.as_reported()
        if known is not None:
            self._note_deletion(revision(known))

    def current(self) -> api.Node:
        """The node as far as known, with our own amounts: for decisions, not for comparisons.

        While the API has none, as it will be registered.
        """
        known = self.as_reported()
        if known is None:
            return self.initial
        if self._made is None or self._made[0] is not known:
            self._made = known, with_own_amounts(known, self.initial)
        return self._made[1]

    async def newest(self) -> api.Node | None:
        """Read the node from the API; None when it cannot answer."""
        if self.kube_api is None:
            return None
        try:
            found = cast(api.Node, await self.kube_api.get(NODES, self.name))
        except ApiError as error:
            log.debug("node not read", extra={"why": str(error)})
            return None
        self._note_node(found)
        return with_own_amounts(found, self.initial)

    async def run(self) -> None:
        """Follow the object until cancelled."""
        if self._reflector is not None:
            await self._reflector.run()

    async def wait_synced(self, within: float) -> None:
        """Wait at most ``within`` seconds until the API has shown the node, or has none."""
        if self._reflector is None:
            return
        if not await wait_within(self._reflector.synced, within):
            log.warning(
                "the Node object can't be watched; pods are admitted by its last known state"
            )

    def _replace(self, objects: list[JSON]) -> None:
        for found in objects:
            self._note_watched(found)
        if not objects and self._watched is not None:
            # a first list may be older than the registration
            self.not_found()

    def _event(self, event: WatchEvent) -> None:
        if event.type != "DELETED":
            self._note_watched(event.object)
        elif event.object["metadata"].get("name") == self.name:
            known = self.as_reported()
            at = revision(cast(api.Node, event.object))
            self._note_deletion(at if known is None else max(at, revision(known)))

    def _note_watched(self, found: JSON) -> None:
        node = cast(api.Node, found)
        if node["metadata"].get("name") == self.name:
            self._deleted_revision = -1
            if (uid := self.uid()) and uid != _uid(node):
                self._former, self._watched = uid, None
        self._note_node(node)

    def _note_deletion(self, at: int) -> None:
        if self.deleted():
            return
        self._deleted_revision = at
        self._deleted_at = self.clock.now()
        log.warning(
            "the Node object was deleted: it is not registered again unless the agent is restarted",
            extra={"node": self.name},
        )
        self.reported()

    def _note_node(self, found: api.Node) -> None:
        if found["metadata"].get("name") != self.name:
            return
        self._watched = _newer(found, self._watched)
        unschedulable = bool((found.get("spec") or {}).get("unschedulable"))
        if unschedulable != self._unschedulable:
            self._unschedulable = unschedulable
            reason = Reason.NODE_NOT_SCHEDULABLE if unschedulable else Reason.NODE_SCHEDULABLE
            message = f"Node {self.name} status is now: {reason}"
            reference = node_reference(self.name, found["metadata"].get("uid", ""))
            self.recorder.event(reference, NORMAL, reason, message)
        self.reported()


def with_own_amounts(reported: api.Node, own: api.Node) -> api.Node:
    """A node as the API shows it, with the allocatable and features of our own configuration.

    ``own``: as it would be registered now.
    """
    status = reported.get("status") or {}
    merged: api.NodeStatus = {
        **status,
        "allocatable": {**(status.get("allocatable") or {}), **own["status"]["allocatable"]},
        "features": own["status"].get("features") or {},
    }
    return {**reported, "status": merged}


def _uid(node: api.Node) -> str:
    return str(node["metadata"].get("uid") or "")


def _newer(one: api.Node | None, other: api.Node | None) -> api.Node | None:
    if one is None or other is None:
        return one if other is None else other
    return one if revision(one) >= revision(other) else other
