"""Metrics of pods and their containers: workers, starts, probes, hooks, resizes and the PLEG.

Source: docs/reference/metrics.csv.
"""

from __future__ import annotations

from collections import Counter as Count
from collections.abc import Mapping
from contextlib import suppress

from prometheus_client import Counter, Histogram

from kubeletpy.metrics.families import POD_START_SECONDS, Families

RESIZE_MILLISECONDS = (
    *(10, 50, 100, 500, 1000, 2000, 5000, 10_000, 20_000, 30_000),
    *(60_000, 120_000, 300_000, 600_000),
)
STATUS_SECONDS = (0.01, 0.05, 0.1, 0.5, 1, 5, 10, 20, 30, 45, 60)

CONTAINER_TYPES = {
    "containerStatuses": "container",
    "initContainerStatuses": "init_container",
    "ephemeralContainerStatuses": "ephemeral_container",
}
"""List of a pod status -> container_type label."""


class PodWorkerMetrics:
    """How the pod workers and the status manager keep up."""

    def __init__(self, families: Families) -> None:
        self.containers_per_pod_count = families.histogram(
            "kubelet_containers_per_pod_count",
            "Regular containers of each pod started.",
            buckets=(1, 2, 4, 8, 16),
        )
        self.pod_worker_duration = families.histogram(
            "kubelet_pod_worker_duration_seconds",
            "Time from a pod's update to the end of its sync: create, update, sync, kill or "
            "terminated.",
            "operation_type",
        )
        self.pod_worker_start_duration = families.histogram(
            "kubelet_pod_worker_start_duration_seconds",
            "Time from first seeing a pod to the begin of its first sync.",
        )
        self.pod_start_duration = families.histogram(
            "kubelet_pod_start_duration_seconds",
            "Time from first seeing a pod until its phase turns from Pending to Running.",
            buckets=POD_START_SECONDS,
        )
        self.pod_start_sli_duration = families.histogram(
            "kubelet_pod_start_sli_duration_seconds",
            "Time from a stateless pod's creation until it is seen running, less image pulls and "
            "init containers.",
            buckets=POD_START_SECONDS,
        )
        self.pod_start_total_duration = families.histogram(
            "kubelet_pod_start_total_duration_seconds",
            "Time from a pod's creation until it is seen running, all included.",
            buckets=POD_START_SECONDS,
        )
        self.first_network_pod_start_sli_duration = families.gauge(
            "kubelet_first_network_pod_start_sli_duration_seconds",
            "Start time of the first pod that needed the pod network.",
        )
        self._network_seen = False
        self.pod_status_sync_duration = families.histogram(
            "kubelet_pod_status_sync_duration_seconds",
            "Time from a change of a pod's status to its arrival at the API.",
            buckets=STATUS_SECONDS,
        )
        self.admission_rejections = families.bounded_counter(
            "kubelet_admission_rejections_total",
            "Pods refused at admission.",
            "reason",
        )
        self.pod_level_resources_admission = families.counter(
            "kubelet_pod_level_resources_admission_total",
            "Pods admitted, by where they state resources and by QoS class.",
            "config_mode",
            "qos_class",
        )
        self.preemptions = families.counter(
            "kubelet_preemptions",
            "Pods killed for a critical pod, by the first resource that it lacked.",
            "preemption_signal",
        )
        self.evictions = families.counter(
            "kubelet_evictions",
            "Pods evicted, by what they or the node had too much or too little of.",
            "eviction_signal",
        )
        self.eviction_stats_age = families.histogram(
            "kubelet_eviction_stats_age_seconds",
            "Age of the numbers by which a threshold was found crossed.",
            "eviction_signal",
        )

    def pod_taken_on(self, containers: int) -> None:
        """A pod with that many regular containers has its first sync."""
        self.containers_per_pod_count.observe(containers)

    def pod_admitted(self, levels: str, qos_class: str) -> None:
        """A pod was admitted; ``levels``: where it states resources, empty for nowhere."""
        self.pod_level_resources_admission.labels(levels, qos_class.lower()).inc()

    def sync_done(self, operation: str, seconds: float) -> None:
        """A worker's sync ended ``seconds`` after the message that caused it."""
        self.pod_worker_duration.labels(operation).observe(seconds)

    def worker_started(self, seconds: float) -> None:
        """A pod's first sync began ``seconds`` after the pod was first seen."""
        self.pod_worker_start_duration.observe(seconds)

    def pod_running(self, seconds: float) -> None:
        """A pod's phase became Running ``seconds`` after the pod was first seen."""
        self.pod_start_duration.observe(seconds)

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


class PodStartMetrics:
    """Starts and terminations, and errors on the way.

    ``container_type`` is container, init_container or ephemeral_container.
    """

    def __init__(self, families: Families) -> None:
        self.started_pods = families.counter(
            "kubelet_started_pods_total", "Sandboxes that were to be created."
        )
        self.started_pods_errors = families.counter(
            "kubelet_started_pods_errors_total", "Sandboxes that could not be created."
        )
        self.started_containers = families.counter(
            "kubelet_started_containers_total",
            "Container starts tried, backoff passed.",
            "container_type",
        )
        self.started_containers_errors = families.bounded_counter(
            "kubelet_started_containers_errors_total",
            "Container starts that failed, by the reason the container waits with.",
            "container_type",
            "code",
        )
        self.terminated_containers = families.bounded_counter(
            "kubelet_terminated_containers_total",
            "Containers that were seen to end.",
            "container_type",
            "exit_code",
            "reason",
        )
        self.started_user_namespaced_pods = families.counter(
            "kubelet_started_user_namespaced_pods_total",
            "Sandboxes with a user namespace that were to be created.",
        )
        self.started_user_namespaced_pods_errors = families.counter(
            "kubelet_started_user_namespaced_pods_errors_total",
            "Syncs with an error of pods with a user namespace.",
        )
        self.image_volumes_requested = families.counter(
            "kubelet_image_volume_requested_total", "Images that containers were to have mounted."
        )
        self.image_volumes_mounted = families.counter(
            "kubelet_image_volume_mounted_succeed_total", "Images mounted into containers."
        )
        self.image_volume_errors = families.counter(
            "kubelet_image_volume_mounted_errors_total",
            "Images that the runtime failed to mount into containers.",
        )
        self.pod_resize_duration = families.histogram(
            "kubelet_pod_resize_duration_milliseconds",
            "Time to change the resources of a pod in place.",
            "success",
            buckets=RESIZE_MILLISECONDS,
        )

    def container_terminated(self, status_field: str, exit_code: int, reason: str) -> None:
        """A container has terminated; ``status_field``: the list of the pod status it is in."""
        kind = CONTAINER_TYPES[status_field]
        self.terminated_containers.labels(kind, str(exit_code), reason).inc()


class PodCountMetrics:
    """Counts of pods on the node. ``static`` is "true" for static pods and "" for pods of the
    API."""

    def __init__(self, families: Families) -> None:
        self.desired_pods = families.gauge(
            "kubelet_desired_pods", "Pods that this node should run.", "static"
        )
        self.active_pods = families.gauge(
            "kubelet_active_pods", "Desired pods that have not finished.", "static"
        )
        self.mirror_pods = families.gauge("kubelet_mirror_pods", "Mirror pods known.")
        self.working_pods = families.gauge(
            "kubelet_working_pods",
            "Pod workers: lifecycle sync, terminating or terminated; config desired, orphan or "
            "runtime_only.",
            "lifecycle",
            "config",
            "static",
        )
        self.orphaned_runtime_pods = families.counter(
            "kubelet_orphaned_runtime_pods_total",
            "Running pods found in the runtime that no source has.",
        )
        self.restarted_pods = families.counter(
            "kubelet_restarted_pods_total",
            "Pods made anew because the same UID came back.",
            "static",
        )
        for static in ("", "true"):
            self.restarted_pods.labels(static)  # shown from the start, as the kubelet shows it
        self.running_pods = families.gauge(
            "kubelet_running_pods", "Pods that have a ready sandbox."
        )
        self.running_containers = families.gauge(
            "kubelet_running_containers",
            "Containers by state in the runtime: created, running, exited, unknown.",
            "container_state",
        )
        self.managed_ephemeral_containers = families.gauge(
            "kubelet_managed_ephemeral_containers",
            "Ephemeral containers in the specs of the pods known.",
        )
        self.orphan_pod_cleaned_volumes = families.gauge(
            "kubelet_orphan_pod_cleaned_volumes",
            "Directories of removed pods, seen in the last sweep.",
        )
        self.orphan_pod_cleaned_volumes_errors = families.gauge(
            "kubelet_orphan_pod_cleaned_volumes_errors",
            "Directories of removed pods, not removed in the last sweep.",
        )

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

    def orphan_found(self) -> None:
        """A running pod that no source has was found in the runtime."""
        self.orphaned_runtime_pods.inc()

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


class ProbeMetrics:
    """Probe runs by container; in a registry of their own, as they are many (``/metrics/probes``).

    The series of a probe are removed with it, so there are never more than for the node's probes.
    """

    def __init__(self, families: Families) -> None:
        self.probes = families.counter(
            "prober_probe_total",
            "Probe runs by result: successful, failed or unknown.",
            "probe_type",
            "result",
            "container",
            "pod",
            "namespace",
            "pod_uid",
        )
        self.duration = families.histogram(
            "prober_probe_duration_seconds",
            "Time that probes took that did not fail.",
            "probe_type",
            "container",
            "pod",
            "namespace",
        )
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


class HookMetrics:
    """Counts lifecycle hooks that did not run as specified."""

    def __init__(self, families: Families) -> None:
        self.http_fallbacks = families.counter(
            "kubelet_lifecycle_handler_http_fallbacks_total",
            "https hooks that were answered in the clear and worked over http.",
        )
        self.sleeps_cut_short = families.counter(
            "kubelet_sleep_action_terminated_early_total",
            "sleep hooks that were given up before their time was over.",
        )


def _remove(family: Counter | Histogram, *labels: str) -> None:
    """Remove a series if it exists: older versions of the library raise KeyError if it doesn't."""
    with suppress(KeyError):
        family.remove(*labels)


ACCEPTED, REVERTED, TERMINATED = "accepted", "reverted", "terminated"
"""How a deferred resize ends."""
DEFERRED_BUCKETS = (
    *(5, 10, 15, 20, 30, 45, 60, 90, 120, 150, 180),
    *(300, 600, 1200, 1800, 3600),
)
"""Seconds. Source: docs/reference/metrics.csv: kubelet_pod_deferred_resize_duration_seconds."""
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


class ResizeMetrics:
    """Resizes as the allocation package sees them."""

    def __init__(self, families: Families) -> None:
        self.requested = families.counter(
            "kubelet_container_requested_resizes_total",
            "Amounts of containers that updates of pods change: add, remove, increase or decrease.",
            "resource",
            "requirement",
            "operation",
        )
        self.pending = families.gauge(
            "kubelet_pod_pending_resizes",
            "Pods with a resize that is not allocated: deferred or infeasible.",
            "reason",
            "priority_bucket",
        )
        self.in_progress = families.gauge(
            "kubelet_pod_in_progress_resizes", "Pods with a resize allocated and not done."
        )
        self.infeasible = families.counter(
            "kubelet_pod_infeasible_resizes_total",
            "Resizes judged impossible on this node.",
            "reason_detail",
        )
        self.deferred = families.histogram(
            "kubelet_pod_deferred_resize_duration_seconds",
            "Time for which resizes of pods were deferred, by how that ended.",
            "resolution",
            "priority_bucket",
            buckets=DEFERRED_BUCKETS,
        )
        self.deferred_accepted = families.counter(
            "kubelet_pod_deferred_accepted_resizes_total",
            "Deferred resizes that were allocated later, by what made them be tried again.",
            "retry_trigger",
        )

    def now(self, pending: Mapping[tuple[str, str], int], in_progress: int) -> None:
        """Set the number of pods with a resize in progress, and pending by reason and priority."""
        self.pending.clear()
        for labels, count in pending.items():
            self.pending.labels(*labels).set(count)
        self.in_progress.set(in_progress)


class PlegMetrics:
    """Relists of the runtime and its event stream: how fresh the agent's view of pods is."""

    def __init__(self, families: Families) -> None:
        self.relist_duration = families.histogram(
            "kubelet_pleg_relist_duration_seconds", "Time that a full relist took."
        )
        self.relist_interval = families.histogram(
            "kubelet_pleg_relist_interval_seconds", "Time between two full relists."
        )
        self.pod_relist_duration = families.histogram(
            "kubelet_pleg_pod_relist_duration_seconds", "Time that the relist of one pod took."
        )
        self.discard_events = families.counter(
            "kubelet_pleg_discard_events", "Events dropped because nobody took them in time."
        )
        self.last_seen = families.gauge(
            "kubelet_pleg_last_seen_seconds", "Unix time of the last relist."
        )
        self.evented_connection_errors = families.counter(
            "kubelet_evented_pleg_connection_error_count",
            "Failed connects to the runtime's event stream.",
        )
        self.evented_connection_successes = families.counter(
            "kubelet_evented_pleg_connection_success_count",
            "Connects to the runtime's event stream.",
        )
        self.evented_latency = families.histogram(
            "kubelet_evented_pleg_connection_latency_seconds",
            "Time from a runtime's event to its arrival here.",
        )

    def relist_done(self, seconds: float, interval: float | None, unix_time: float) -> None:
        """A full relist, ``interval`` after the previous one, took ``seconds`` and ends now."""
        self.relist_duration.observe(seconds)
        if interval is not None:
            self.relist_interval.observe(interval)
        self.last_seen.set(unix_time)

    def pod_relist_done(self, seconds: float) -> None:
        """One pod was relisted."""
        self.pod_relist_duration.observe(seconds)

    def stream_connected(self) -> None:
        """The runtime's event stream is open."""
        self.evented_connection_successes.inc()

    def stream_failed(self) -> None:
        """The runtime's event stream could not be opened, or broke."""
        self.evented_connection_errors.inc()

    def event_received(self, latency: float) -> None:
        """An event arrived ``latency`` seconds after the runtime created it."""
        self.evented_latency.observe(latency)
