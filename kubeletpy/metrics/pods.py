"""Metrics of pods and their containers: workers, starts, probes, hooks, resizes and the PLEG.

Source: docs/reference/metrics.csv.
"""

from __future__ import annotations

from collections import Counter as Count
from collections.abc import Mapping
from contextlib import suppress

from prometheus_client.metrics import Counter, Histogram

from kubeletpy.metrics.families import Families
from kubeletpy.metrics.generated import declared

CONTAINER_TYPES = {
    "containerStatuses": "container",
    "initContainerStatuses": "init_container",
    "ephemeralContainerStatuses": "ephemeral_container",
}
"""List of a pod status -> container_type label."""


class PodWorkerMetrics(declared.WorkersFamilies):
    """How the pod workers and the status manager keep up."""

    def __init__(self, families: Families) -> None:
        super().__init__(families)
        self._network_seen = False

    def pod_admitted(self, levels: str, qos_class: str) -> None:
        """A pod was admitted; ``levels``: where it states resources, empty for nowhere."""
        self.pod_level_resources_admission.labels(levels, qos_class.lower()).inc()

    def pod_start_seen(self, whole: float, sli: float | None, *, own_network: bool) -> None:
        """The watch shows a pod running, ``whole`` seconds after its creation.

        The first pod with a network of its own shows how fast the network plugin is.
        """
        self.pod_start_total_duration.observe(whole)
        if sli is None:
            return
        self.pod_start_sli_duration.observe(sli)
        if own_network and not self._network_seen:
            self._network_seen = True
            self.first_network_pod_start_sli_duration.set(sli)


class PodStartMetrics(declared.StartsFamilies):
    """Starts and terminations, and errors on the way.

    ``container_type`` is container, init_container or ephemeral_container.
    """

    def container_terminated(self, status_field: str, exit_code: int, reason: str) -> None:
        """A container has terminated; ``status_field``: the list of the pod status it is in."""
        kind = CONTAINER_TYPES[status_field]
        self.terminated_containers.labels(kind, str(exit_code), reason).inc()


class PodCountMetrics(declared.PodsFamilies):
    """Counts of pods on the node. ``static`` is "true" for static pods and "" for pods of the
    API."""

    def __init__(self, families: Families) -> None:
        super().__init__(families)
        for static in ("", "true"):
            self.restarted_pods.labels(static)  # shown from the start, as the kubelet shows it

    def pods(self, desired: Mapping[str, int], active: Mapping[str, int], mirrors: int) -> None:
        """Set the number of pods by label ``static``, and of mirror pods."""
        for static in ("", "true"):
            self.desired_pods.labels(static).set(desired.get(static, 0))
            self.active_pods.labels(static).set(active.get(static, 0))
        self.mirror_pods.set(mirrors)

    def working(self, counts: Mapping[tuple[str, str, str], int]) -> None:
        """Set the number of workers by (lifecycle, config, static)."""
        self.working_pods.clear()
        for labels, count in counts.items():
            self.working_pods.labels(*labels).set(count)

    def restarted(self, static: str) -> None:
        """A pod was recreated because its UID came back."""
        self.restarted_pods.labels(static).inc()

    def ephemeral_containers(self, count: int) -> None:
        """Set the number of ephemeral containers in the specs of known pods."""
        self.managed_ephemeral_containers.set(count)

    def orphan_directories(self, found: int, left: int) -> None:
        """A sweep found ``found`` directories of orphaned pods, of which ``left`` remain."""
        self.orphan_pod_cleaned_volumes.set(found)
        self.orphan_pod_cleaned_volumes_errors.set(left)

    def in_runtime(self, pods: int, containers: Mapping[str, int]) -> None:
        """Set the number of pods with a ready sandbox, and of containers by state."""
        self.running_pods.set(pods)
        for state in ("created", "running", "exited", "unknown"):
            self.running_containers.labels(state).set(containers.get(state, 0))


RESULTS = ("successful", "failed", "unknown")


class ProbeMetrics(declared.ProbesFamilies):
    """Probe runs by container; in a registry of their own, as they are many (``/metrics/probes``).

    The series of a probe are removed with it, so there are never more than for the node's probes.
    """

    def __init__(self, families: Families) -> None:
        super().__init__(families)
        self._sharing: Count[tuple[str, ...]] = Count()
        self._known: set[tuple[str, ...]] = set()

    def probed(self, target: tuple[str, ...], result: str, seconds: float) -> None:
        """A run ended; ``target`` is (type, container, pod, namespace, uid)."""
        if target not in self._known:
            self._known.add(target)
            self._sharing[target[:4]] += 1
        self.probes.labels(target[0], result, *target[1:]).inc()
        if result != "failed":
            self.duration.labels(*target[:4]).observe(seconds)

    def removed(self, target: tuple[str, ...]) -> None:
        """A probe was removed. A later pod of the same name keeps the series that they share."""
        if target not in self._known:
            return
        self._known.discard(target)
        for result in RESULTS:
            _remove(self.probes, target[0], result, *target[1:])
        self._sharing[target[:4]] -= 1
        if not self._sharing[target[:4]]:
            del self._sharing[target[:4]]
            _remove(self.duration, *target[:4])


class HookMetrics(declared.HooksFamilies):
    """Counts lifecycle hooks that did not run as specified."""


def _remove(family: Counter | Histogram, *labels: str) -> None:
    """Remove a series if it exists: older versions of the library raise KeyError if it doesn't."""
    with suppress(KeyError):
        family.remove(*labels)


ACCEPTED, REVERTED, TERMINATED = "accepted", "reverted", "terminated"
"""How a deferred resize ends."""
_BUCKETS = (
    (2_000_000_000, "system-critical"),
    (100_000, "high"),
    (1, "medium"),
    (0, "normal"),
    (-999, "low"),
)


def priority_bucket(priority: int) -> str:
    """The label for a pod's priority; a pod without one has priority 0."""
    return next((name for least, name in _BUCKETS if priority >= least), "very-low")


class ResizeMetrics(declared.ResizesFamilies):
    """Resizes as the allocation package sees them."""

    def now(self, pending: Mapping[tuple[str, str], int], in_progress: int) -> None:
        """Set the number of pods with a resize in progress, and pending by reason and priority."""
        self.pending.clear()
        for labels, count in pending.items():
            self.pending.labels(*labels).set(count)
        self.in_progress.set(in_progress)


class PlegMetrics(declared.PlegFamilies):
    """Relists of the runtime and its event stream: how fresh the agent's view of pods is."""

    def relist_done(self, seconds: float, interval: float | None, unix_time: float) -> None:
        """A full relist, ``interval`` after the previous one, took ``seconds`` and ends now."""
        self.relist_duration.observe(seconds)
        if interval is not None:
            self.relist_interval.observe(interval)
        self.last_seen.set(unix_time)
