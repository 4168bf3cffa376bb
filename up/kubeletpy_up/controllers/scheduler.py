"""The scheduler: binds each pending pod to a node it fits on, as soon as there is one.

Event driven: it runs when a pod or a node changes, never on a timer. Must never move a pod.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable

from kubeletpy.base.api.types import JSON
from kubeletpy.pods.pod import TERMINAL_PHASES
from kubeletpy_up.controllers.placement import Placement, pick_node
from kubeletpy_up.controllers.pod_devices import devices_of, elsewhere, protected, reserved
from kubeletpy_up.controllers.pod_volumes import Outlook, Reservation, claims_of, outlook
from kubeletpy_up.controllers.reconciler import write_event
from kubeletpy_up.errors import ApiError
from kubeletpy_up.kinds import devices
from kubeletpy_up.kinds import pods as pod_rules
from kubeletpy_up.kinds.storage import CLAIMS, CLASSES, VOLUMES
from kubeletpy_up.registry.registry import Registry
from kubeletpy_up.requests import SCHEDULER
from kubeletpy_up.storage.history import Change

logger = logging.getLogger(__name__)

NAME = "default-scheduler"
_MAKE_ROOM = frozenset({"nodes", CLAIMS, VOLUMES, CLASSES, devices.CLAIMS})
"""Resources whose changes may let a pending pod run."""


def is_waiting(pod: JSON) -> bool:
    """Whether a pod is ours to schedule."""
    spec: JSON = pod.get("spec") or {}
    return (
        not spec.get("nodeName")
        and not pod["metadata"].get("deletionTimestamp")
        and not spec.get("schedulingGates")
        and (spec.get("schedulerName") or NAME) == NAME
        and (pod.get("status") or {}).get("phase") not in TERMINAL_PHASES
    )


class Scheduler:
    """Schedules a registry's pods while it runs. Needs a running event loop."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._loop: asyncio.AbstractEventLoop | None = None
        self._pass: asyncio.Handle | None = None
        self._unsubscribe: Callable[[], None] | None = None
        self._reported: dict[str, str] = {}

    def start(self) -> None:
        """Start; pods that are already pending are scheduled next."""
        self._loop = asyncio.get_running_loop()
        self._unsubscribe = self._registry.store.subscribe(self._on_change)
        self._soon()

    async def stop(self) -> None:
        """Stop. Pods are left unchanged."""
        if self._unsubscribe is not None:
            self._unsubscribe()
            self._unsubscribe = None
        if self._pass is not None:
            self._pass.cancel()
            self._pass = None
        self._loop = None

    def _on_change(self, change: Change) -> None:
        if change.resource in _MAKE_ROOM:
            self._soon()
        elif change.resource == "pods":
            if change.type == "DELETED":
                self._reported.pop(change.object["metadata"]["uid"], None)
            if change.type != "MODIFIED" or self._matters(change):
                self._soon()

    def _matters(self, change: Change) -> bool:
        phase = (change.object.get("status") or {}).get("phase")
        old = ((change.previous or {}).get("status") or {}).get("phase")
        if (phase in TERMINAL_PHASES and old not in TERMINAL_PHASES) or is_waiting(change.object):
            return True
        return _resources_of(change.object) != _resources_of(change.previous or {})

    def _soon(self) -> None:
        # Not inside the write that notified us: one pass covers all changes of this turn.
        if self._loop is not None and self._pass is None:
            self._pass = self._loop.call_soon(self._run)

    def _run(self) -> None:
        self._pass = None
        waiting = [pod for pod in self._all("pods") if is_waiting(pod)]
        if not waiting:
            return
        waiting.sort(key=_order)
        nodes = self._all("nodes")
        for pod in waiting:
            try:
                self._place(pod, nodes)
            except (ApiError, ValueError) as error:
                meta = pod["metadata"]
                about = {"namespace": meta["namespace"], "pod": meta["name"], "error": str(error)}
                logger.warning("A pod can't be scheduled", extra=about)

    def _place(self, pod: JSON, nodes: list[JSON]) -> None:
        """Bind a pod. If its volumes must be bound first, reserve them and try again afterwards."""
        find = self._registry.find
        everything = self._all("pods")
        claims = claims_of(pod, find)
        problem, claimed = devices_of(pod, find)
        if (problem := claims.problem or problem) and nodes:
            text = f"0/{len(nodes)} nodes are available: {problem}."
            self._settle(pod, Placement("", text))
            return
        volumes = self._all(VOLUMES) if claims.waiting else []
        namespace = pod["metadata"]["namespace"]
        others = [p for p in everything if p["metadata"]["namespace"] == namespace]
        seen: dict[str, Outlook] = {}

        def more_misfits(node: JSON) -> tuple[str, ...]:
            name = node["metadata"]["name"]
            seen[name] = outlook(claims, node, volumes, find, others)
            return seen[name].reasons + elsewhere(claimed, node)

        placement = pick_node(pod, nodes, everything, more_misfits)
        if placement.node and claims.waiting:
            self._reserve(seen[placement.node].reservation)
            return
        if placement.node:
            self._take(pod, claimed)
        self._settle(pod, placement)

    def _all(self, resource: str) -> list[JSON]:
        return [entry.object for _, entry in self._registry.store.entries(resource)]

    def _take(self, pod: JSON, claims: Iterable[JSON]) -> None:
        """Reserve a pod's allocated claims for it."""
        registry, namespace = self._registry, pod["metadata"]["namespace"]
        for claim in claims:
            name, key = claim["metadata"]["name"], devices.CLAIMS
            kept = registry.update(SCHEDULER, key, protected(claim), namespace, name=name)
            desired = reserved(kept, pod)
            registry.update(SCHEDULER, key, desired, namespace, name=name, subresource="status")

    def _reserve(self, desired: Reservation) -> None:
        for resource, objects in ((VOLUMES, desired.volumes), (CLAIMS, desired.claims)):
            for obj in objects:
                about = obj["metadata"]
                if self._registry.find(resource, about.get("namespace", ""), about["name"]) != obj:
                    namespace = about.get("namespace")
                    self._registry.update(SCHEDULER, resource, obj, namespace, name=about["name"])

    def _settle(self, pod: JSON, placement: Placement) -> None:
        about = pod["metadata"]
        if placement.node:
            binding = {
                "metadata": {"name": about["name"], "uid": about["uid"]},
                "target": {"kind": "Node", "name": placement.node},
            }
            self._registry.create(
                SCHEDULER,
                "pods",
                binding,
                about["namespace"],
                name=about["name"],
                subresource="binding",
            )
            self._reported.pop(about["uid"], None)
            text = f"Successfully assigned {about['namespace']}/{about['name']} to {placement.node}"
            self._event(pod, "Normal", "Scheduled", "Binding", text)
            return
        if self._reported.get(about["uid"]) == placement.message:
            return
        self._reported[about["uid"]] = placement.message
        condition = {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": placement.message,
            "observedGeneration": about.get("generation") or 0,
        }
        now = self._registry.clock.now()
        changed = pod_rules.set_condition(pod, condition, now)
        self._registry.update(
            SCHEDULER, "pods", changed, about["namespace"], name=about["name"], subresource="status"
        )
        self._event(pod, "Warning", "FailedScheduling", "Scheduling", placement.message)

    def _event(self, pod: JSON, kind: str, reason: str, action: str, message: str) -> None:
        about = {"kind": "Pod", "apiVersion": "v1", "metadata": pod["metadata"]}
        write_event(
            self._registry,
            SCHEDULER,
            NAME,
            about,
            severity=kind,
            reason=reason,
            message=message,
            action=action,
        )


def _resources_of(pod: JSON) -> list[JSON | None]:
    """The resources of a pod's containers, desired and actual: a resize may free some."""
    spec, status = pod.get("spec") or {}, pod.get("status") or {}
    holders = [spec, status, *(spec.get("containers") or ()), *(spec.get("initContainers") or ())]
    holders += [*(status.get("containerStatuses") or ())]
    return [holder.get("resources") for holder in holders]


def _order(pod: JSON) -> tuple[int, str, str]:
    about = pod["metadata"]
    priority = (pod.get("spec") or {}).get("priority") or 0
    return (-priority, about["creationTimestamp"], about["name"])
