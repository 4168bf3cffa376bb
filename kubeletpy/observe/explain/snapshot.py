"""Facts about pods, collected from the agent's components, and the last facts about removed pods.

Must never change anything in a component. The modules that explain are loaded on the first request.
"""

from __future__ import annotations

import asyncio
import json
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING

from kubeletpy.base.api import types as api
from kubeletpy.base.clock import Clock
from kubeletpy.base.structs import Component, Struct, replace
from kubeletpy.kubeapi.watch_state import FailingWatch
from kubeletpy.node.build import RuntimeStart
from kubeletpy.pods.pod import CONFIG_SEEN, TERMINAL_PHASES, Excluded, HeldResource, Pod
from kubeletpy.pods.pod_manager import PodManager, static_name
from kubeletpy.pods.runtime_status import ProbeResults
from kubeletpy.podworkers.history import ReasonCache
from kubeletpy.podworkers.records import WorkerRecord
from kubeletpy.podworkers.state_machine import WorkerQueries
from kubeletpy.podworkers.status_cache import PodStatusCache
from kubeletpy.podworkers.workers import PodWorkers
from kubeletpy.probes.probe_manager import KubeProbeManager
from kubeletpy.resources.admission.checks import holders
from kubeletpy.resources.admission.offline import OfflineVerdict
from kubeletpy.resources.devices.model import AwaitedPlugins
from kubeletpy.resources.dra.model import ClaimWait
from kubeletpy.status.status_manager import ApiStatusManager
from kubeletpy.volumes.claims.model import VolumeWait

if TYPE_CHECKING:
    from kubeletpy.images.policy import PullPosition
    from kubeletpy.observe.explain.deaths import DeathCause
    from kubeletpy.observe.explain.facts import PodFacts


NODE_PORTS = "NodePorts"
"""The reason of a pod that requests host ports that others have."""
MAX_HOLDERS = 10
"""Pods that are named."""
KEPT_S = 3600.0
MAX_PODS = 100
MAX_SIZE = 4 << 20
"""Maximum of all kept pod objects, in characters of JSON. A typical pod has 2,000 to 10,000."""
MAX_POD = MAX_SIZE // 4
"""A larger pod is not kept: a tenant could fill the node's memory with removed pods."""


class Snapshots(Struct, frozen=True):
    """Facts about the pods of a node. The callables that take a text take a pod's uid."""

    pods: PodManager
    workers: PodWorkers
    queries: WorkerQueries
    statuses: ApiStatusManager
    cache: PodStatusCache
    reasons: ReasonCache
    probes: KubeProbeManager
    clock: Clock
    runtime_error: Callable[[], str]
    network_error: Callable[[], str]
    awaits_admission: Callable[[str], bool]
    shutting_down: Callable[[], bool]
    awaited_plugins: Callable[[Pod], AwaitedPlugins | None]
    volume_waits: Callable[[str], Sequence[VolumeWait]]
    claim_waits: Callable[[str], Sequence[ClaimWait]]
    failing_watches: Callable[[str], Sequence[FailingWatch]]
    """Those that keep failing, of services and of objects that a pod uses and that were never
    read."""
    held: Callable[[Pod], Sequence[HeldResource]]
    missing_secrets: Callable[[str], Sequence[str]]
    node: Callable[[], api.Node | None]
    """The object in the API, for its taints."""
    pulls: Callable[[str], Mapping[str, PullPosition]]
    runtime_good_at: Callable[[], float | None]
    """When the runtime was last well, on the event loop's clock."""
    runtime_start: RuntimeStart
    node_name: str
    offline: Callable[[str], OfflineVerdict | None] | None
    """Why a pod waits for the API server; None: none does."""
    excluded: Callable[[str], Excluded | None]
    """How a critical pod exceeds a limit of its own storage."""
    deaths: Callable[[str], Mapping[str, DeathCause]]
    """Why containers ended, by id."""

    def uids(self) -> list[str]:
        """Return each pod that is desired or has a worker, by namespace and name."""
        uids = self.pods.uids() | set(self.queries.all())
        return sorted(uids, key=lambda uid: (self._name(uid), uid))

    def ending(self) -> list[str]:
        """Return the pods that should end and are still in the runtime or in the API."""
        found = []
        for uid, record in self.queries.all().items():
            if record.finished:
                pod = self.pods.get(uid)
                if pod is not None and pod.being_deleted:
                    found.append(uid)
            elif record.termination_requested:
                found.append(uid)
        return found

    def find(self, namespace: str, name: str) -> str | None:
        """Return the uid of a pod: a desired one is preferred to one that is still terminating.

        ``name`` may be a uid, or the name in the manifest of a static pod (PodManager.lookup).
        """
        pod = self.pods.lookup(namespace, name, self.node_name)
        if pod is not None:
            return pod.uid
        ending = self.queries.all()
        if name in ending:
            return name
        for full in (name, static_name(name, self.node_name)):
            if found := [uid for uid in ending if self._name(uid) == (namespace, full)]:
                return found[-1]
        return None

    def namesakes(self, name: str) -> str:
        """Return the end of a sentence that names pods of that name elsewhere; may be empty."""
        return self.pods.namesakes(name, self.node_name)

    def facts(self, uid: str) -> PodFacts:
        """Return everything known about a pod now."""
        now = self.clock.now()
        loop_now = asyncio.get_running_loop().time()
        record = self.queries.record(uid)
        current = self.pods.current(uid)
        pod = current[0] if current else record.pod if record else None
        entry = self.cache.get(uid)
        namespace, name = self._name(uid)
        wait = self.workers.next_sync_in(uid)
        status = self.statuses.get_status(uid)
        from kubeletpy.observe.explain.facts import PodFacts, deleted_for, refused_for

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
            history=self.workers.notes.history.decisions(uid),
            last_sync=self.workers.notes.last.get(uid),
            next_sync_at=None if wait is None else now + wait,
            start_errors=dict(self.reasons.get(uid)),
            write_problem=self.statuses.problem(uid),
            trace=self.workers.traces.pod_trace(uid),
            runtime_error=self.runtime_error(),
            runtime_start=self.runtime_start,
            runtime_good_at=self.runtime_good_at(),
            network_error=self.network_error(),
            name_holder=self._name_holder(pod, record),
            awaits_admission=self.awaits_admission(uid),
            shutting_down=self.shutting_down(),
            awaited_plugins=self.awaited_plugins(pod) if pod is not None else None,
            offline=self.offline(uid) if self.offline is not None else None,
            volumes=tuple(self.volume_waits(uid)),
            claims=tuple(self.claim_waits(uid)),
            failing_watches=tuple(self.failing_watches(uid)),
            pulls=self.pulls(uid),
            held=tuple(self.held(pod)) if pod is not None else (),
            probes=self.probes.results(pod) if pod is not None else ProbeResults(),
            probe_reports=self.probes.reports(uid),
            wrong_since=self.workers.notes.troubles.since(uid, now),
            excluded=self.excluded(uid),
            deaths=self.deaths(uid),
            ended_at=self.workers.notes.troubles.ended_at(uid),
            missing_secrets=tuple(self.missing_secrets(uid)),
            port_holders=self._port_holders(pod, status),
            taints=() if pod is None else refused_for(pod, status or {}, self.node()),
            deleted_for=None if pod is None else deleted_for(pod, self.node()),
        )

    def seen_at(self, uid: str) -> str:
        """Return the annotation with the time when the pod was first seen, or "" if unknown."""
        record = self.queries.record(uid)
        current = self.pods.current(uid)
        pod = current[0] if current else record.pod if record else None
        return "" if pod is None else pod.annotations.get(CONFIG_SEEN, "")

    def _port_holders(self, pod: Pod | None, status: api.PodStatus | None) -> tuple[str, ...]:
        """Return the present holders of the host ports that a pod was refused for."""
        if pod is None or status is None or status.get("reason") != NODE_PORTS:
            return ()
        others = [
            each
            for each in self.pods.pods()
            if each.uid != pod.uid
            and (self.statuses.get_status(each.uid) or {}).get("phase") not in TERMINAL_PHASES
        ]
        found = [
            f"{number}/{protocol}: {other.namespace}/{other.name}"
            for (_, protocol, number), other in islice(holders(pod, others), MAX_HOLDERS)
        ]
        return tuple(dict.fromkeys(found))

    def _name_holder(self, pod: Pod | None, record: WorkerRecord | None) -> str:
        if pod is None or not pod.is_static or (record is not None and record.started_at):
            return ""
        holder = self.queries.name_holder(pod.full_name)
        return "" if holder == pod.uid else holder

    def _name(self, uid: str) -> tuple[str, str]:
        current = self.pods.current(uid)
        if current is not None:
            return current[0].metadata["namespace"], current[0].name
        record = self.queries.record(uid)
        name, _, namespace = (record.full_name if record else uid).rpartition("_")
        return namespace, name


class _Kept(Struct, frozen=True):
    facts: PodFacts
    size: int
    """Characters of the pod's object as JSON."""


class RemovedPods(Component):
    """Keeps the last facts about removed pods for an hour, within limits of number and size.

    The pods that ended first are dropped first.
    """

    facts: Callable[[str], PodFacts]
    """The current facts about a pod, by uid."""
    deaths: Callable[[str], Mapping[str, DeathCause]] = lambda uid: {}
    """Why containers ended: of the last one it is decided after the worker has finished."""

    def __post_init__(self) -> None:
        self._ended: OrderedDict[tuple[str, str], _Kept] = OrderedDict()

    def finished(self, uid: str) -> None:
        """Keep a pod's facts, if it has none yet; called when its worker finishes or drops it."""
        facts = self.facts(uid)
        key = facts.namespace, facts.name
        earlier = self._ended.get(key)
        if facts.pod is None or (earlier is not None and earlier.facts.uid == uid):
            return
        self._ended.pop(key, None)
        size = len(json.dumps(facts.pod.object))  # what counts values takes 40 times as long
        if size > MAX_POD:
            return
        self._ended[key] = _Kept(replace(facts, trace=None), size)
        while (
            len(self._ended) > MAX_PODS
            or sum(each.size for each in self._ended.values()) > MAX_SIZE
        ):
            self._ended.popitem(last=False)

    def find(self, namespace: str, name: str, now: float) -> tuple[PodFacts, float] | None:
        """Return the last facts and their age in seconds, or None if none are kept.

        ``name`` may be a uid. ``now``: Unix seconds.
        """
        by_uid = (each for each in self._ended.values() if each.facts.uid == name)
        found = self._ended.get((namespace, name)) or next(by_uid, None)
        if found is None or now - found.facts.now > KEPT_S:
            return None
        deaths = {**found.facts.deaths, **self.deaths(found.facts.uid)}
        return replace(found.facts, deaths=deaths), now - found.facts.now
