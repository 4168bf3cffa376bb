"""Collects facts about pods from the agent's components. Must never change anything in them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING

from kubeletpy.admission.host_ports import holders
from kubeletpy.api import types as api
from kubeletpy.clock import Clock
from kubeletpy.devices.model import AwaitedPlugins
from kubeletpy.dra.model import ClaimWait
from kubeletpy.kubeapi.failing_watches import FailingWatch
from kubeletpy.pods.granted import HeldResource
from kubeletpy.pods.pod import CONFIG_SEEN, TERMINAL_PHASES, Pod
from kubeletpy.pods.pod_manager import PodManager
from kubeletpy.pods.probe_results import ProbeResults
from kubeletpy.pods.spared import Spared
from kubeletpy.podworkers.queries import WorkerQueries
from kubeletpy.podworkers.reason_cache import ReasonCache
from kubeletpy.podworkers.records import WorkerRecord
from kubeletpy.podworkers.status_cache import PodStatusCache
from kubeletpy.podworkers.workers import PodWorkers
from kubeletpy.probes.probe_manager import KubeProbeManager
from kubeletpy.status.status_manager import ApiStatusManager
from kubeletpy.volumes.claims.model import VolumeWait

if TYPE_CHECKING:
    from kubeletpy.explain.facts import PodFacts
    from kubeletpy.images.pull_position import PullPosition


NODE_PORTS = "NodePorts"
"""The reason of a pod that requests host ports that others have."""
MAX_HOLDERS = 10


class Snapshots:
    """Facts about the pods of a node."""

    def __init__(
        self,
        pods: PodManager,
        workers: PodWorkers,
        queries: WorkerQueries,
        statuses: ApiStatusManager,
        *,
        cache: PodStatusCache,
        reasons: ReasonCache,
        probes: KubeProbeManager,
        clock: Clock,
        runtime_error: Callable[[], str],
        network_error: Callable[[], str],
        awaits_admission: Callable[[str], bool],
        awaited_plugins: Callable[[Pod], AwaitedPlugins | None] = lambda pod: None,
        volume_waits: Callable[[str], Sequence[VolumeWait]] = lambda uid: (),
        claim_waits: Callable[[str], Sequence[ClaimWait]] = lambda uid: (),
        failing_watches: Callable[[str], Sequence[FailingWatch]] = lambda uid: (),
        held: Callable[[Pod], Sequence[HeldResource]] = lambda pod: (),
        missing_secrets: Callable[[str], Sequence[str]] = lambda uid: (),
        node: Callable[[], api.Node | None] = lambda: None,
        pulls: Callable[[str], Mapping[str, PullPosition]] = lambda uid: {},
        runtime_good_at: Callable[[], float | None] = lambda: None,
        spared: Callable[[str], Spared | None] = lambda uid: None,
    ) -> None:
        """Args:
        failing_watches: those that keep failing, of services and of objects that a pod (by uid)
            uses and that were never read.
        node: as the API has it, for its taints.
        spared: how a critical pod (by uid) exceeds a limit of its own storage.
        runtime_good_at: when the runtime was last well, on the event loop's clock.
        """
        self._pods = pods
        self._workers = workers
        self._queries = queries
        self._statuses = statuses
        self._cache = cache
        self._reasons = reasons
        self._probes = probes
        self._clock = clock
        self._runtime_error = runtime_error
        self._network_error = network_error
        self._awaits_admission = awaits_admission
        self._awaited_plugins = awaited_plugins
        self._volume_waits = volume_waits
        self._claim_waits = claim_waits
        self._failing_watches = failing_watches
        self._held = held
        self._missing_secrets = missing_secrets
        self._node = node
        self._pulls = pulls
        self._runtime_good_at = runtime_good_at
        self._spared = spared

    def uids(self) -> list[str]:
        """Every pod that is desired or has a worker, by namespace and name."""
        uids = self._pods.uids() | set(self._queries.all())
        return sorted(uids, key=lambda uid: (self._name(uid), uid))

    def ending(self) -> list[str]:
        """Pods that should end and are still in the runtime or in the API."""
        found = []
        for uid, record in self._queries.all().items():
            if record.finished:
                pod = self._pods.get(uid)
                if pod is not None and pod.being_deleted:
                    found.append(uid)
            elif record.termination_requested:
                found.append(uid)
        return found

    def find(self, namespace: str, name: str) -> str | None:
        """The uid of a pod: a desired one is preferred to one that is still terminating."""
        pod = self._pods.by_name(namespace, name)
        if pod is not None:
            return pod.uid
        found = [uid for uid in self._queries.all() if self._name(uid) == (namespace, name)]
        return found[-1] if found else None

    def facts(self, uid: str) -> PodFacts:
        """Everything known about a pod now."""
        now = self._clock.now()
        loop_now = asyncio.get_running_loop().time()
        record = self._queries.record(uid)
        current = self._pods.current(uid)
        pod = current[0] if current else record.pod if record else None
        entry = self._cache.get(uid)
        namespace, name = self._name(uid)
        wait = self._workers.next_sync_in(uid)
        status = self._statuses.get_status(uid)
        from kubeletpy.explain.facts import PodFacts
        from kubeletpy.explain.taints import deleted_for, refused_for

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
            history=self._workers.notes.history.decisions(uid),
            last_sync=self._workers.notes.last.get(uid),
            next_sync_at=None if wait is None else now + wait,
            start_errors=dict(self._reasons.get(uid)),
            write_problem=self._statuses.problem(uid),
            trace=self._workers.traces.pod_trace(uid),
            runtime_error=self._runtime_error(),
            runtime_good_at=self._runtime_good_at(),
            network_error=self._network_error(),
            name_holder=self._name_holder(pod, record),
            awaits_admission=self._awaits_admission(uid),
            awaited_plugins=self._awaited_plugins(pod) if pod is not None else None,
            volumes=tuple(self._volume_waits(uid)),
            claims=tuple(self._claim_waits(uid)),
            failing_watches=tuple(self._failing_watches(uid)),
            pulls=self._pulls(uid),
            held=tuple(self._held(pod)) if pod is not None else (),
            probes=self._probes.results(pod) if pod is not None else ProbeResults(),
            probe_reports=self._probes.reports(uid),
            wrong_since=self._workers.notes.troubles.since(uid, now),
            spared=self._spared(uid),
            ended_at=self._workers.notes.troubles.ended_at(uid),
            missing_secrets=tuple(self._missing_secrets(uid)),
            port_holders=self._port_holders(pod, status),
            taints=() if pod is None else refused_for(pod, status or {}, self._node()),
            deleted_for=None if pod is None else deleted_for(pod, self._node()),
        )

    def seen_at(self, uid: str) -> str:
        """The annotation with the time when the pod was first seen; "" when unknown."""
        record = self._queries.record(uid)
        current = self._pods.current(uid)
        pod = current[0] if current else record.pod if record else None
        return "" if pod is None else pod.annotations.get(CONFIG_SEEN, "")

    def _port_holders(self, pod: Pod | None, status: api.PodStatus | None) -> tuple[str, ...]:
        """For a pod that was refused for its host ports: who has them now."""
        if pod is None or status is None or status.get("reason") != NODE_PORTS:
            return ()
        others = [
            each
            for each in self._pods.pods()
            if each.uid != pod.uid
            and (self._statuses.get_status(each.uid) or {}).get("phase") not in TERMINAL_PHASES
        ]
        found = [
            f"{number}/{protocol}: {other.namespace}/{other.name}"
            for (_, protocol, number), other in islice(holders(pod, others), MAX_HOLDERS)
        ]
        return tuple(dict.fromkeys(found))

    def _name_holder(self, pod: Pod | None, record: WorkerRecord | None) -> str:
        if pod is None or not pod.is_static or (record is not None and record.started_at):
            return ""
        holder = self._queries.name_holder(pod.full_name)
        return "" if holder == pod.uid else holder

    def _name(self, uid: str) -> tuple[str, str]:
        current = self._pods.current(uid)
        if current is not None:
            return current[0].metadata["namespace"], current[0].name
        record = self._queries.record(uid)
        name, _, namespace = (record.full_name if record else uid).rpartition("_")
        return namespace, name
