"""Takes the facts about pods out of the agent's rooms. Must never change anything in them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from kubeletpy.clock import Clock
from kubeletpy.explain.facts import PodFacts
from kubeletpy.pods.pod import CONFIG_SEEN, Pod
from kubeletpy.pods.pod_manager import PodManager
from kubeletpy.pods.probe_results import ProbeResults
from kubeletpy.podworkers.reason_cache import ReasonCache
from kubeletpy.podworkers.records import WorkerRecord
from kubeletpy.podworkers.status_cache import PodStatusCache
from kubeletpy.podworkers.workers import PodWorkers
from kubeletpy.probes.protocol import ProbeManager
from kubeletpy.status.manager import ApiStatusManager


@dataclass(frozen=True, slots=True)
class Rooms:
    """What is looked into."""

    pods: PodManager
    workers: PodWorkers
    statuses: ApiStatusManager
    cache: PodStatusCache
    reasons: ReasonCache
    probes: ProbeManager
    clock: Clock
    runtime_error: Callable[[], str]
    network_error: Callable[[], str]
    awaits_admission: Callable[[str], bool] = lambda uid: False


class Snapshots:
    """Facts about the pods of a node."""

    def __init__(self, rooms: Rooms) -> None:
        self._rooms = rooms

    def uids(self) -> list[str]:
        """Every pod that is asked for or that has a worker, by namespace and name."""
        rooms = self._rooms
        known = {
            uid: self._name(uid) for uid in rooms.pods.uids() | set(rooms.workers.machine.records)
        }
        return sorted(known, key=lambda uid: (known[uid], uid))

    def ending(self) -> list[str]:
        """Pods whose end was asked for and that are not gone: from the runtime, or from the API."""
        found = []
        for uid, record in self._rooms.workers.machine.records.items():
            if record.finished:
                pod = self._rooms.pods.get(uid)
                if pod is not None and pod.being_deleted:
                    found.append(uid)
            elif record.termination_requested:
                found.append(uid)
        return found

    def find(self, namespace: str, name: str) -> str | None:
        """The uid of a pod: the one that is asked for before one that still ends."""
        rooms = self._rooms
        pod = rooms.pods.by_name(namespace, name)
        if pod is not None:
            return pod.uid
        found = [
            uid for uid in rooms.workers.machine.records if self._name(uid) == (namespace, name)
        ]
        return found[-1] if found else None

    def facts(self, uid: str) -> PodFacts:
        """All that is known of a pod now."""
        rooms, now = self._rooms, self._rooms.clock.now()
        loop_now = asyncio.get_running_loop().time()
        record = rooms.workers.record(uid)
        current = rooms.pods.current(uid)
        pod = current[0] if current else record.pod if record else None
        entry = rooms.cache.get(uid)
        namespace, name = self._name(uid)
        wait = rooms.workers.next_step_in(uid)
        status = rooms.statuses.get_status(uid)
        return PodFacts(
            now=now,
            uid=uid,
            namespace=namespace,
            name=name,
            wall_offset=now - loop_now,
            pod=pod,
            mirror=current[1] if current else None,
            record=record,
            status=status if status is not None else pod.status if pod is not None else {},
            runtime=entry.status if entry else None,
            history=rooms.workers.notes.history.of(uid),
            last_step=rooms.workers.notes.last.get(uid),
            next_step_at=None if wait is None else now + wait,
            start_errors=dict(rooms.reasons.get(uid)),
            write_problem=rooms.statuses.problem(uid),
            trace=rooms.workers.traces.of(uid),
            runtime_error=rooms.runtime_error(),
            network_error=rooms.network_error(),
            name_holder=self._name_holder(pod, record),
            awaits_admission=rooms.awaits_admission(uid),
            probes=rooms.probes.results(pod) if pod is not None else ProbeResults(),
            probe_reports=rooms.probes.reports(uid),
        )

    def seen_at(self, uid: str) -> str:
        """The annotation that says when the pod was first seen, "" when it is unknown."""
        record = self._rooms.workers.record(uid)
        current = self._rooms.pods.current(uid)
        pod = current[0] if current else record.pod if record else None
        return "" if pod is None else pod.annotations.get(CONFIG_SEEN, "")

    def _name_holder(self, pod: Pod | None, record: WorkerRecord | None) -> str:
        if pod is None or not pod.is_static or (record is not None and record.started_at):
            return ""
        holder = self._rooms.workers.machine.names.started(pod.full_name) or ""
        return "" if holder == pod.uid else holder

    def _name(self, uid: str) -> tuple[str, str]:
        current = self._rooms.pods.current(uid)
        if current is not None:
            return current[0].metadata["namespace"], current[0].name
        record = self._rooms.workers.record(uid)
        name, _, namespace = (record.full_name if record else uid).rpartition("_")
        return namespace, name
