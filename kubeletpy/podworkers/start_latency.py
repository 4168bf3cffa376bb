"""How long pods take to start, as the cluster's users see it (pod startup latency SLI).

Measured from a pod's creation until the watch shows all its containers running; the SLI excludes
the time in which images were pulled or init containers ran. Counted once per pod, and only for pods
that this agent has seen from the beginning: not static ones, nor those that waited to be scheduled.
Must never change what happens to a pod.

Source: sig-scalability's "Pod startup latency SLI/SLO details" and the kubelet's pod startup
latency tracker.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from kubeletpy.base.api.times import parse_time
from kubeletpy.base.clock import Clock
from kubeletpy.base.structs import Component, Struct, field
from kubeletpy.metrics.pods import PodWorkerMetrics
from kubeletpy.pods.pod import Pod, is_sidecar
from kubeletpy.pods.runtime_status import PodRuntimeStatus

MAX_SPANS = 64
"""Pulls and ended init containers that are kept per pod: one that fails for hours has more."""
STATELESS = ("secret", "configMap", "downwardAPI", "emptyDir", "projected")

Span = tuple[float, float]
"""Begin and end in Unix seconds."""


class _Start(Struct):
    """A pod whose start is measured."""

    pulling: dict[str, float] = field(default_factory=dict)
    """Purpose of the image -> Unix seconds at which the first try to pull it began."""
    pulls: list[Span] = field(default_factory=list)
    inits: dict[str, Span] = field(default_factory=dict)
    """Spans of init containers, by container id."""


class StartLatency(Component):
    """The pods that are starting; an images.metrics.PullTimes."""

    metrics: PodWorkerMetrics
    clock: Clock

    def __post_init__(self) -> None:
        self._starts: dict[str, _Start | None] = {}
        """None: measured already, or not to be measured."""

    def reported(self, pod: Pod) -> None:
        """The API shows a pod, by a list or a watch."""
        if pod.uid not in self._starts:
            measured = not (pod.is_static or pod.status.get("startTime") or _waited(pod))
            self._starts[pod.uid] = _Start() if measured else None
            return
        start = self._starts[pod.uid]
        if start is None:
            return
        if pod.is_terminal_in_api or _waited(pod):
            self._starts[pod.uid] = None
        elif runs(pod):
            self._starts[pod.uid] = None
            self._count(pod, start)

    def observe_runtime(self, pod: Pod, status: PodRuntimeStatus) -> None:
        """Note the runtime's status of a pod: its init containers may have ended."""
        start = self._starts.get(pod.uid)
        if start is None or not pod.init_containers:
            return
        names = {c["name"] for c in pod.init_containers if not is_sidecar(c)}
        for container in status.containers:
            ended = container.started_at and container.finished_at
            if ended and container.name in names and len(start.inits) < MAX_SPANS:
                span = container.started_at / 1e9, container.finished_at / 1e9
                start.inits[container.id] = span

    def pull_began(self, uid: str, what: str) -> None:
        """An image pull begins, perhaps again after a failure; ``what`` names what it is for."""
        start = self._starts.get(uid)
        if start is not None and len(start.pulls) + len(start.pulling) < MAX_SPANS:
            start.pulling.setdefault(what, self.clock.now())

    def image_present(self, uid: str, what: str) -> None:
        """The image is present, whoever pulled it."""
        start = self._starts.get(uid)
        if start is not None and (began := start.pulling.pop(what, None)) is not None:
            start.pulls.append((began, self.clock.now()))

    def forget_except(self, uids: Collection[str]) -> None:
        """Forget pods that were removed."""
        for uid in [uid for uid in self._starts if uid not in uids]:
            del self._starts[uid]

    def _count(self, pod: Pod, start: _Start) -> None:
        created = pod.metadata.get("creationTimestamp")
        if not created:
            return
        total = max(self.clock.now() - parse_time(created), 0.0)
        excluded = covered([*start.pulls, *start.inits.values()])
        sli = None if is_stateful(pod) else max(total - excluded, 0.0)
        self.metrics.pod_start_seen(total, sli, own_network=not pod.host_network)


def runs(pod: Pod) -> bool:
    """Whether the API shows each container of a pod as running."""
    found = pod.status.get("containerStatuses") or []
    return bool(found) and all(
        ((container.get("state") or {}).get("running") or {}).get("startedAt")
        for container in found
    )


def is_stateful(pod: Pod) -> bool:
    """Whether a pod has a volume that is more than configuration or scratch space."""
    return any(
        not any(volume.get(kind) is not None for kind in STATELESS)
        for volume in pod.spec.get("volumes") or ()
    )


def covered(spans: Iterable[Span]) -> float:
    """The seconds that spans cover; overlaps count once."""
    total, until = 0.0, float("-inf")
    for begin, end in sorted(spans):
        total += max(end - max(begin, until), 0.0)
        until = max(until, end)
    return total


def _waited(pod: Pod) -> bool:
    """Whether a pod could not be scheduled at once: it had to wait for something else."""
    return any(
        condition.get("type") == "PodScheduled" and condition.get("status") == "False"
        for condition in pod.status.get("conditions") or ()
    )
