"""The part of a cluster's node controller that one node needs: conditions and their taints.

A node whose lease is not renewed for 40 s gets its conditions set to Unknown; taints follow
conditions, so that the scheduler avoids a node that is not ready. Must never evict a pod.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from kubeletpy.base.api.times import format_time
from kubeletpy.base.api.types import JSON
from kubeletpy_up.errors import ApiError
from kubeletpy_up.registry.registry import Registry
from kubeletpy_up.requests import CONTROLLER
from kubeletpy_up.storage.history import Change

logger = logging.getLogger(__name__)

GRACE_SECONDS = 40.0
"""The node controller's node-monitor-grace-period."""

LEASES = "leases.coordination.k8s.io"
LEASE_NAMESPACE = "kube-node-lease"
_REPORTED = ("Ready", "MemoryPressure", "DiskPressure", "PIDPressure")
_PREFIX = "node.kubernetes.io/"
_PRESSURE = {
    "MemoryPressure": _PREFIX + "memory-pressure",
    "DiskPressure": _PREFIX + "disk-pressure",
    "PIDPressure": _PREFIX + "pid-pressure",
    "NetworkUnavailable": _PREFIX + "network-unavailable",
}
_NOT_READY = _PREFIX + "not-ready"
_UNREACHABLE = _PREFIX + "unreachable"
_UNSCHEDULABLE = _PREFIX + "unschedulable"
_OURS = frozenset({*_PRESSURE.values(), _NOT_READY, _UNREACHABLE, _UNSCHEDULABLE})


def condition_taints(node: JSON) -> list[JSON]:
    """All taints a node should have: its own, and those that its conditions call for. Pure."""
    spec: JSON = node.get("spec") or {}
    conditions = {
        condition.get("type"): condition.get("status")
        for condition in (node.get("status") or {}).get("conditions") or ()
    }
    desired: list[str] = []
    ready = conditions.get("Ready")
    if ready == "Unknown":
        desired.append(_UNREACHABLE)
    elif ready != "True":
        desired.append(_NOT_READY)
    desired += [key for kind, key in _PRESSURE.items() if conditions.get(kind) == "True"]
    if spec.get("unschedulable"):
        desired.append(_UNSCHEDULABLE)
    kept: list[JSON] = []
    present: set[str] = set()
    for taint in spec.get("taints") or ():
        ours = taint.get("key") in _OURS and taint.get("effect") == "NoSchedule"
        if ours and taint["key"] not in desired:
            continue
        if ours:
            present.add(taint["key"])
        kept.append(taint)
    return kept + [{"key": key, "effect": "NoSchedule"} for key in desired if key not in present]


def with_unknown_conditions(node: JSON, now: float) -> JSON:
    """The node with the conditions of one that stopped reporting. Pure; ``now`` in Unix seconds."""
    status: JSON = node.get("status") or {}
    moment = format_time(now)
    conditions = list(status.get("conditions") or [])
    known = {condition.get("type"): index for index, condition in enumerate(conditions)}
    for kind in _REPORTED:
        old: JSON = conditions[known[kind]] if kind in known else {}
        if old.get("status") == "Unknown":
            continue
        changed = {
            "type": kind,
            "status": "Unknown",
            "lastHeartbeatTime": old.get("lastHeartbeatTime") or moment,
            "lastTransitionTime": moment,
            "reason": "NodeStatusUnknown" if old else "NodeStatusNeverUpdated",
            "message": "Kubelet stopped posting node status."
            if old
            else "Kubelet never posted node status.",
        }
        if kind in known:
            conditions[known[kind]] = changed
        else:
            conditions.append(changed)
    return {**node, "status": {**status, "conditions": conditions}}


class NodeLifecycle:
    """Watches a registry's nodes and leases while it runs. Needs a running event loop."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._passes: dict[str, asyncio.Handle] = {}
        self._unsubscribe: Callable[[], None] | None = None

    def start(self) -> None:
        """Start: every known node has the grace period from now to renew its lease."""
        self._loop = asyncio.get_running_loop()
        self._unsubscribe = self._registry.store.subscribe(self._on_change)
        for (_, name), _entry in self._registry.store.entries("nodes"):
            self._heard_of(name)
            self._soon(name)

    async def stop(self) -> None:
        """Stop. Conditions are left unchanged."""
        if self._unsubscribe is not None:
            self._unsubscribe()
            self._unsubscribe = None
        for handle in (*self._timers.values(), *self._passes.values()):
            handle.cancel()
        self._timers.clear()
        self._passes.clear()
        self._loop = None

    def _on_change(self, change: Change) -> None:
        about = change.object["metadata"]
        if change.resource == LEASES and about.get("namespace") == LEASE_NAMESPACE:
            if change.type != "DELETED" and self._known(about["name"]):
                self._heard_of(about["name"])
        elif change.resource == "nodes":
            name = about["name"]
            if change.type == "DELETED":
                self._forget(name)
                return
            if change.type == "ADDED" or self._posted(change):
                self._heard_of(name)
            self._soon(name)

    def _posted(self, change: Change) -> bool:
        # A status written by anybody but us is a sign of life, as a lease is.
        after = (change.object.get("status") or {}).get("conditions") or []
        before = ((change.previous or {}).get("status") or {}).get("conditions") or []
        return after != before and not any(c.get("status") == "Unknown" for c in after)

    def _known(self, name: str) -> bool:
        return self._registry.find("nodes", "", name) is not None

    def _heard_of(self, name: str) -> None:
        if self._loop is None:
            return
        if name in self._timers:
            self._timers[name].cancel()
        self._timers[name] = self._loop.call_later(GRACE_SECONDS, self._silent, name)

    def _forget(self, name: str) -> None:
        timer = self._timers.pop(name, None)
        if timer is not None:
            timer.cancel()

    def _soon(self, name: str) -> None:
        if self._loop is not None and name not in self._passes:
            self._passes[name] = self._loop.call_soon(self._taint, name)

    def _silent(self, name: str) -> None:
        self._timers.pop(name, None)
        node = self._registry.find("nodes", "", name)
        if node is None:
            return
        changed = with_unknown_conditions(node, self._registry.clock.now())
        if changed.get("status") != node.get("status"):
            logger.warning("A node no longer renews its lease", extra={"node": name})
            self._write(changed, "status")

    def _taint(self, name: str) -> None:
        self._passes.pop(name, None)
        node = self._registry.find("nodes", "", name)
        if node is None:
            return
        taints = condition_taints(node)
        spec: JSON = node.get("spec") or {}
        if taints == (spec.get("taints") or []):
            return
        spec = {key: value for key, value in spec.items() if key != "taints"}
        self._write({**node, "spec": {**spec, **({"taints": taints} if taints else {})}}, "")

    def _write(self, node: JSON, subresource: str) -> None:
        name = node["metadata"]["name"]
        try:
            self._registry.update(CONTROLLER, "nodes", node, name=name, subresource=subresource)
        except ApiError as error:
            logger.warning("A node can't be updated", extra={"node": name, "error": str(error)})
