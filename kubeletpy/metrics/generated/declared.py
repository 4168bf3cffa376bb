"""Metrics by subject, as attributes of classes.

Written by tools/gen_tables.py. Source: docs/reference/metrics.csv.
"""

from __future__ import annotations

from kubeletpy.metrics.families import Families


class NodeFamilies:
    def __init__(self, families: Families) -> None:
        self.node_name = families.gauge(
            "kubelet_node_name", "Always 1; the label is the node's name.", "node"
        )
        self.cgroup_manager_duration = families.histogram(
            "kubelet_cgroup_manager_duration_seconds",
            "Time that work on cgroups took: create, update, destroy.",
            "operation_type",
            buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10),
        )
        self.cgroup_version = families.gauge(
            "kubelet_cgroup_version", "Version of the cgroup hierarchy in use, 1 or 2."
        )
        self.shutdown_start = families.gauge(
            "kubelet_graceful_shutdown_start_time_seconds",
            "When the last graceful shutdown of the node began, in Unix seconds.",
            gates=("GracefulNodeShutdown", "GracefulNodeShutdownBasedOnPodPriority"),
        )
        self.shutdown_end = families.gauge(
            "kubelet_graceful_shutdown_end_time_seconds",
            "When the last graceful shutdown of the node ended, in Unix seconds.",
            gates=("GracefulNodeShutdown", "GracefulNodeShutdownBasedOnPodPriority"),
        )
        self.memory_min = families.gauge(
            "kubelet_memory_qos_node_memory_min_bytes",
            "Memory that is kept for Guaranteed pods (MemoryQoS).",
            since="1.36",
            gates=("MemoryQoS",),
        )
        self.memory_low = families.gauge(
            "kubelet_memory_qos_node_memory_low_bytes",
            "Memory that is taken last from Burstable pods (MemoryQoS).",
            since="1.36",
            gates=("MemoryQoS",),
        )
        self.startup_pre_kubelet_duration = families.gauge(
            "kubelet_node_startup_pre_kubelet_duration_seconds",
            "Time from the machine's boot to the start of this process.",
        )
        self.startup_pre_registration_duration = families.gauge(
            "kubelet_node_startup_pre_registration_duration_seconds",
            "Time from the start of this process to the first try to register.",
        )
        self.startup_registration_duration = families.gauge(
            "kubelet_node_startup_registration_duration_seconds",
            "Time from the first try to register to success.",
        )
        self.startup_post_registration_duration = families.gauge(
            "kubelet_node_startup_post_registration_duration_seconds",
            "Time from registration to the node's Ready.",
        )
        self.startup_duration = families.gauge(
            "kubelet_node_startup_duration_seconds",
            "Time from the machine's boot to the node's Ready.",
        )
        self.object_exists = families.gauge(
            "kubeletpy_node_object_exists",
            "1 if the API has the Node object; 0 if it was deleted, or is not registered yet.",
        )


class WorkersFamilies:
    def __init__(self, families: Families) -> None:
        self.containers_per_pod_count = families.histogram(
            "kubelet_containers_per_pod_count",
            "Regular containers of each pod started.",
            buckets=(1, 2, 4, 8, 16),
        )
        self.pod_worker_duration = families.histogram(
            "kubelet_pod_worker_duration_seconds",
            "Time from a pod's update to the end of its sync: create, update, sync, kill or terminated.",
            "operation_type",
            buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10),
        )
        self.pod_start_duration = families.histogram(
            "kubelet_pod_start_duration_seconds",
            "Time from first seeing a pod until its phase turns from Pending to Running.",
            buckets=(
                0.5,
                1,
                2,
                3,
                4,
                5,
                6,
                8,
                10,
                20,
                30,
                45,
                60,
                120,
                180,
                240,
                300,
                360,
                480,
                600,
                900,
                1200,
                1800,
                2700,
                3600,
            ),
        )
        self.pod_start_sli_duration = families.histogram(
            "kubelet_pod_start_sli_duration_seconds",
            "Time from a stateless pod's creation until it is seen running, less image pulls and init containers.",
            buckets=(
                0.5,
                1,
                2,
                3,
                4,
                5,
                6,
                8,
                10,
                20,
                30,
                45,
                60,
                120,
                180,
                240,
                300,
                360,
                480,
                600,
                900,
                1200,
                1800,
                2700,
                3600,
            ),
        )
        self.pod_start_total_duration = families.histogram(
            "kubelet_pod_start_total_duration_seconds",
            "Time from a pod's creation until it is seen running, all included.",
            buckets=(
                0.5,
                1,
                2,
                3,
                4,
                5,
                6,
                8,
                10,
                20,
                30,
                45,
                60,
                120,
                180,
                240,
                300,
                360,
                480,
                600,
                900,
                1200,
                1800,
                2700,
                3600,
            ),
        )
        self.first_network_pod_start_sli_duration = families.gauge(
            "kubelet_first_network_pod_start_sli_duration_seconds",
            "Start time of the first pod that needed the pod network.",
            level="INTERNAL",
        )
        self.pod_worker_start_duration = families.histogram(
            "kubelet_pod_worker_start_duration_seconds",
            "Time from first seeing a pod to the begin of its first sync.",
            buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10),
        )
        self.pod_status_sync_duration = families.histogram(
            "kubelet_pod_status_sync_duration_seconds",
            "Time from a change of a pod's status to its arrival at the API.",
            buckets=(0.01, 0.05, 0.1, 0.5, 1, 5, 10, 20, 30, 45, 60),
        )
        self.admission_rejections = families.bounded_counter(
            "kubelet_admission_rejections_total", "Pods refused at admission.", "reason"
        )
        self.pod_level_resources_admission = families.counter(
            "kubelet_pod_level_resources_admission_total",
            "Pods admitted, by where they state resources and by QoS class.",
            "config_mode",
            "qos_class",
            since="1.37",
            gates=("PodLevelResources",),
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
            buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10),
        )
        self.preemptions = families.counter(
            "kubelet_preemptions",
            "Pods killed for a critical pod, by the first resource that it lacked.",
            "preemption_signal",
        )
        self.pod_worker_errors = families.counter(
            "kubelet_pod_worker_errors_total",
            "Failed syncs of pods: create, update, sync, terminating or terminated.",
            "operation_type",
            since="1.38",
        )


class PodsFamilies:
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
            "Pod workers: lifecycle sync, terminating or terminated; config desired, orphan or runtime_only.",
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
        self.managed_ephemeral_containers = families.gauge(
            "kubelet_managed_ephemeral_containers",
            "Ephemeral containers in the specs of the pods known.",
        )
        self.running_pods = families.gauge(
            "kubelet_running_pods", "Pods that have a ready sandbox."
        )
        self.running_containers = families.gauge(
            "kubelet_running_containers",
            "Containers by state in the runtime: created, running, exited, unknown.",
            "container_state",
        )
        self.orphan_pod_cleaned_volumes = families.gauge(
            "kubelet_orphan_pod_cleaned_volumes",
            "Directories of removed pods, seen in the last sweep.",
        )
        self.orphan_pod_cleaned_volumes_errors = families.gauge(
            "kubelet_orphan_pod_cleaned_volumes_errors",
            "Directories of removed pods, not removed in the last sweep.",
        )


class StartsFamilies:
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
            since="1.36",
        )
        self.started_user_namespaced_pods = families.counter(
            "kubelet_started_user_namespaced_pods_total",
            "Sandboxes with a user namespace that were to be created.",
            gates=("UserNamespacesSupport",),
        )
        self.started_user_namespaced_pods_errors = families.counter(
            "kubelet_started_user_namespaced_pods_errors_total",
            "Syncs with an error of pods with a user namespace.",
            gates=("UserNamespacesSupport",),
        )
        self.image_volumes_requested = families.counter(
            "kubelet_image_volume_requested_total",
            "Images that containers were to have mounted.",
            level="BETA",
            gates=("ImageVolume",),
        )
        self.image_volumes_mounted = families.counter(
            "kubelet_image_volume_mounted_succeed_total",
            "Images mounted into containers.",
            level="BETA",
            gates=("ImageVolume",),
        )
        self.image_volume_errors = families.counter(
            "kubelet_image_volume_mounted_errors_total",
            "Images that the runtime failed to mount into containers.",
            level="BETA",
            gates=("ImageVolume",),
        )
        self.pod_resize_duration = families.histogram(
            "kubelet_pod_resize_duration_milliseconds",
            "Time to change the resources of a pod in place.",
            "success",
            buckets=(
                10,
                50,
                100,
                500,
                1000,
                2000,
                5000,
                10000,
                20000,
                30000,
                60000,
                120000,
                300000,
                600000,
            ),
            gates=("InPlacePodVerticalScaling",),
        )
        self.sync_result_errors = families.counter(
            "kubelet_sync_result_errors_total",
            "Actions of syncs that failed: SyncPod where no single one did.",
            "action",
            since="1.38",
        )


class PlegFamilies:
    def __init__(self, families: Families) -> None:
        self.relist_duration = families.histogram(
            "kubelet_pleg_relist_duration_seconds",
            "Time that a full relist took.",
            buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10),
        )
        self.relist_interval = families.histogram(
            "kubelet_pleg_relist_interval_seconds",
            "Time between two full relists.",
            buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10),
        )
        self.pod_relist_duration = families.histogram(
            "kubelet_pleg_pod_relist_duration_seconds",
            "Time that the relist of one pod took.",
            buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10),
            since="1.36",
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
            buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10),
        )


class RuntimeFamilies:
    def __init__(self, families: Families) -> None:
        self.operations = families.counter(
            "kubelet_runtime_operations_total", "CRI calls by operation.", "operation_type"
        )
        self.operations_duration = families.histogram(
            "kubelet_runtime_operations_duration_seconds",
            "Time that CRI calls took, by operation.",
            "operation_type",
            buckets=(
                0.005,
                0.0125,
                0.03125,
                0.078125,
                0.1953125,
                0.48828125,
                1.220703125,
                3.0517578125,
                7.62939453125,
                19.073486328125,
                47.6837158203125,
                119.20928955078125,
                298.0232238769531,
                745.0580596923828,
            ),
        )
        self.operations_errors = families.counter(
            "kubelet_runtime_operations_errors_total",
            "CRI calls that failed, by operation.",
            "operation_type",
        )
        self.run_podsandbox_duration = families.histogram(
            "kubelet_run_podsandbox_duration_seconds",
            "Time that RunPodSandbox took, by the RuntimeClass' handler.",
            "runtime_handler",
            buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10),
        )
        self.run_podsandbox_errors = families.counter(
            "kubelet_run_podsandbox_errors_total",
            "RunPodSandbox calls that failed, by the RuntimeClass' handler.",
            "runtime_handler",
        )
        self.cri_losing_support = families.gauge(
            "kubelet_cri_losing_support",
            "1 when a coming Kubernetes version will not support this runtime any more.",
            "version",
        )


class ImagesFamilies:
    def __init__(self, families: Families) -> None:
        self.pull_duration = families.histogram(
            "kubelet_image_pull_duration_seconds",
            "Time that successful pulls took, waiting in the queue included, by image size.",
            "image_size_in_bytes",
            buckets=(
                1,
                5,
                10,
                20,
                30,
                60,
                120,
                180,
                240,
                300,
                360,
                480,
                600,
                900,
                1200,
                1800,
                2700,
                3600,
            ),
        )
        self.garbage_collected = families.counter(
            "kubelet_image_garbage_collected_total",
            "Images removed, because of their age or for space.",
            "reason",
        )
        self.ensure_image_requests = families.counter(
            "kubelet_image_manager_ensure_image_requests_total",
            "Requests to have an image on the node.",
            "pull_policy",
            "present_locally",
            "pull_required",
        )
        self.pull_bytes = families.gauge(
            "kubeletpy_image_pull_bytes",
            "Bytes of the images that are pulled now: of each layer that arrives, and in all; at most 32 images.",
            "image",
            "state",
        )


class PullRecordsFamilies:
    def __init__(self, families: Families) -> None:
        self.disk_intents = families.gauge(
            "kubelet_imagemanager_ondisk_pullintents", "ImagePullIntent files on disk."
        )
        self.disk_records = families.gauge(
            "kubelet_imagemanager_ondisk_pulledrecords", "ImagePulledRecord files on disk."
        )
        self.memory_intents = families.gauge(
            "kubelet_imagemanager_inmemory_pullintents_usage_percent",
            "How full the memory for ImagePullIntents is, in percent.",
        )
        self.memory_records = families.gauge(
            "kubelet_imagemanager_inmemory_pulledrecords_usage_percent",
            "How full the memory for ImagePulledRecords is, in percent.",
        )
        self.checks = families.counter(
            "kubelet_imagemanager_image_mustpull_checks_total",
            "Checks whether a pod may use an image on the node without a pull, by result.",
            "result",
        )


class CredentialProvidersFamilies:
    def __init__(self, families: Families) -> None:
        self.errors = families.counter(
            "kubelet_credential_provider_plugin_errors_total",
            "Calls of credential provider plugins that failed.",
            "plugin_name",
        )
        self.duration = families.histogram(
            "kubelet_credential_provider_plugin_duration",
            "Seconds that calls of credential provider plugins took.",
            "plugin_name",
            buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10),
        )
        self.config_info = families.gauge(
            "kubelet_credential_provider_config_info",
            "1 for the hash of the credential provider configuration in use.",
            "hash",
        )


class HooksFamilies:
    def __init__(self, families: Families) -> None:
        self.http_fallbacks = families.counter(
            "kubelet_lifecycle_handler_http_fallbacks_total",
            "https hooks that were answered in the clear and worked over http.",
        )
        self.sleeps_cut_short = families.counter(
            "kubelet_sleep_action_terminated_early_total",
            "sleep hooks that were given up before their time was over.",
        )


class ResizesFamilies:
    def __init__(self, families: Families) -> None:
        self.requested = families.counter(
            "kubelet_container_requested_resizes_total",
            "Amounts of containers that updates of pods change: add, remove, increase or decrease.",
            "resource",
            "requirement",
            "operation",
            gates=("InPlacePodVerticalScaling",),
        )
        self.pending = families.gauge(
            "kubelet_pod_pending_resizes",
            "Pods with a resize that is not allocated: deferred or infeasible.",
            "reason",
            "priority_bucket",
            new_labels=("1.36", ("priority_bucket",)),
            gates=("InPlacePodVerticalScaling",),
        )
        self.in_progress = families.gauge(
            "kubelet_pod_in_progress_resizes",
            "Pods with a resize allocated and not done.",
            gates=("InPlacePodVerticalScaling",),
        )
        self.infeasible = families.counter(
            "kubelet_pod_infeasible_resizes_total",
            "Resizes judged impossible on this node.",
            "reason_detail",
            gates=("InPlacePodVerticalScaling",),
        )
        self.deferred = families.histogram(
            "kubelet_pod_deferred_resize_duration_seconds",
            "Time for which resizes of pods were deferred, by how that ended.",
            "resolution",
            "priority_bucket",
            buckets=(5, 10, 15, 20, 30, 45, 60, 90, 120, 150, 180, 300, 600, 1200, 1800, 3600),
            since="1.37",
            gates=("InPlacePodVerticalScaling",),
        )
        self.deferred_accepted = families.counter(
            "kubelet_pod_deferred_accepted_resizes_total",
            "Deferred resizes that were allocated later, by what made them be tried again.",
            "retry_trigger",
            gates=("InPlacePodVerticalScaling",),
        )


class PlacementFamilies:
    def __init__(self, families: Families) -> None:
        self.cpu_requests = families.counter(
            "kubelet_cpu_manager_pinning_requests_total",
            "Containers that requested exclusive CPUs.",
        )
        self.cpu_errors = families.counter(
            "kubelet_cpu_manager_pinning_errors_total",
            "Containers that requested exclusive CPUs and got none.",
        )
        self.shared_pool = families.gauge(
            "kubelet_cpu_manager_shared_pool_size_millicores",
            "CPUs that could still become a container's own.",
        )
        self.exclusive_cpus = families.gauge(
            "kubelet_cpu_manager_exclusive_cpu_allocation_count", "CPUs that are a container's own."
        )
        self.exclusive_per_node = families.gauge(
            "kubelet_cpu_manager_allocation_per_numa",
            "CPUs that are a container's own, by NUMA node.",
            "numa_node",
        )
        self.aligned = families.counter(
            "kubelet_container_aligned_compute_resources_count",
            "Allocations that keep to whole units of the machine, where that is promised.",
            "scope",
            "boundary",
        )
        self.not_aligned = families.counter(
            "kubelet_container_aligned_compute_resources_failure_count",
            "Allocations refused because they could not keep to whole units of the machine.",
            "scope",
            "boundary",
        )
        self.memory_requests = families.counter(
            "kubelet_memory_manager_pinning_requests_total",
            "Containers that requested memory of certain NUMA nodes.",
        )
        self.memory_errors = families.counter(
            "kubelet_memory_manager_pinning_errors_total",
            "Containers that requested memory of certain NUMA nodes and got none.",
        )
        self.topology_requests = families.counter(
            "kubelet_topology_manager_admission_requests_total",
            "Pods for which a NUMA assignment was requested.",
        )
        self.topology_errors = families.counter(
            "kubelet_topology_manager_admission_errors_total",
            "Pods refused because their resources lie too far apart.",
        )
        self.topology_duration = families.histogram(
            "kubelet_topology_manager_admission_duration_ms",
            "Time in ms to find a pod's place on the machine.",
            buckets=(
                0.05,
                0.1,
                0.2,
                0.4,
                0.8,
                1.6,
                3.2,
                6.4,
                12.8,
                25.6,
                51.2,
                102.4,
                204.8,
                409.6,
                819.2,
            ),
        )
        self.allocations = families.counter(
            "kubelet_resource_manager_allocations_total",
            "Allocations by who gave them and what for.",
            "resource_name",
            "source",
            since="1.37",
            former=("resource_manager_allocations_total", "1.36", "1.36"),
            gates=("PodLevelResourceManagers",),
        )
        self.allocation_errors = families.counter(
            "kubelet_resource_manager_allocation_errors_total",
            "Allocations that failed.",
            "resource_name",
            "source",
            since="1.37",
            former=("resource_manager_allocation_errors_total", "1.36", "1.36"),
            gates=("PodLevelResourceManagers",),
        )
        self.assignments = families.counter(
            "kubelet_resource_manager_container_assignments_total",
            "Containers by how they were given what is theirs.",
            "resource_name",
            "assignment_type",
            since="1.37",
            former=("resource_manager_container_assignments", "1.36", "1.36"),
            gates=("PodLevelResourceManagers",),
        )


class DevicesFamilies:
    def __init__(self, families: Families) -> None:
        self.registrations = families.counter(
            "kubelet_device_plugin_registration_total",
            "Registrations of device plugins.",
            "resource_name",
        )
        self.allocations = families.histogram(
            "kubelet_device_plugin_alloc_duration_seconds",
            "Time that a device plugin took to allocate devices.",
            "resource_name",
            buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10),
        )
        self.known = families.gauge(
            "kubelet_device_plugin_devices",
            "Devices of plugins, by resource and health.",
            "resource_name",
            "health_state",
            since="1.38",
        )


class PodResourcesFamilies:
    def __init__(self, families: Families) -> None:
        self.total = families.counter(
            "kubelet_pod_resources_endpoint_requests_total",
            "Calls of the pod resources API.",
            "server_api_version",
        )
        self.requests = {
            "List": families.counter(
                "kubelet_pod_resources_endpoint_requests_list",
                "Requests of list of the pod resources API.",
                "server_api_version",
            ),
            "GetAllocatableResources": families.counter(
                "kubelet_pod_resources_endpoint_requests_get_allocatable",
                "Requests of get_allocatable of the pod resources API.",
                "server_api_version",
            ),
            "Get": families.counter(
                "kubelet_pod_resources_endpoint_requests_get",
                "Requests of get of the pod resources API.",
                "server_api_version",
            ),
        }
        self.errors = {
            "List": families.counter(
                "kubelet_pod_resources_endpoint_errors_list",
                "Errors of list of the pod resources API.",
                "server_api_version",
            ),
            "GetAllocatableResources": families.counter(
                "kubelet_pod_resources_endpoint_errors_get_allocatable",
                "Errors of get_allocatable of the pod resources API.",
                "server_api_version",
            ),
            "Get": families.counter(
                "kubelet_pod_resources_endpoint_errors_get",
                "Errors of get of the pod resources API.",
                "server_api_version",
            ),
        }


class PodsApiFamilies:
    def __init__(self, families: Families) -> None:
        self.total = families.counter(
            "kubelet_pod_requests_total",
            "Calls of the pods API.",
            "server_api_version",
            "status_code",
            since="1.37",
        )
        self.methods = {
            "ListPods": families.counter(
                "kubelet_pod_requests_list_total",
                "ListPods calls of the pods API.",
                "server_api_version",
                "status_code",
                since="1.37",
            ),
            "GetPod": families.counter(
                "kubelet_pod_requests_get_total",
                "GetPod calls of the pods API.",
                "server_api_version",
                "status_code",
                since="1.37",
            ),
            "WatchPods": families.counter(
                "kubelet_pod_requests_watch_total",
                "WatchPods calls of the pods API that have ended.",
                "server_api_version",
                "status_code",
                since="1.37",
            ),
        }
        self.dropped = families.counter(
            "kubelet_pod_watch_events_dropped_total",
            "Events that were not delivered because a watcher did not read them.",
            since="1.36",
        )


class DraFamilies:
    def __init__(self, families: Families) -> None:
        self.operations = families.histogram(
            "dra_operations_duration_seconds",
            "Time that preparing or giving back the claims of a pod took.",
            "operation_name",
            "is_error",
            buckets=(
                0.1,
                0.153413,
                0.235355,
                0.361064,
                0.553918,
                0.849781,
                1.303673,
                2,
                3.068255,
                4.707094,
                7.221282,
                11.078366,
                16.995625,
                26.073454,
                40,
            ),
            gates=("DynamicResourceAllocation",),
        )
        self.calls = families.histogram(
            "dra_grpc_operations_duration_seconds",
            "Time that a call to a DRA driver took.",
            "driver_name",
            "method_name",
            "grpc_status_code",
            buckets=(
                0.1,
                0.153413,
                0.235355,
                0.361064,
                0.553918,
                0.849781,
                1.303673,
                2,
                3.068255,
                4.707094,
                7.221282,
                11.078366,
                16.995625,
                26.073454,
                40,
            ),
            gates=("DynamicResourceAllocation",),
        )
        self.prepare_skips = families.counter(
            "dra_node_prepare_skips_total",
            "NodePrepareResources calls that allocations exempt a driver from.",
            "driver_name",
            since="1.37",
            gates=("DynamicResourceAllocation",),
        )
        self.unprepare_skips = families.counter(
            "dra_node_unprepare_skips_total",
            "NodeUnprepareResources calls that allocations exempt a driver from.",
            "driver_name",
            since="1.37",
            gates=("DynamicResourceAllocation",),
        )
        self.in_use = families.gauge(
            "dra_resource_claims_in_use",
            "Claims that pods of this node use, by driver.",
            "driver_name",
            gates=("DynamicResourceAllocation",),
        )


class PluginsFamilies:
    def __init__(self, families: Families) -> None:
        self.total_plugins = families.gauge(
            "plugin_manager_total_plugins",
            "Sockets of plugins: those found, and those registered.",
            "socket_path",
            "state",
        )


class VolumesFamilies:
    def __init__(self, families: Families) -> None:
        self.total_volumes = families.gauge(
            "volume_manager_total_volumes",
            "Volumes of pods: those required, and those set up.",
            "plugin_name",
            "state",
        )
        self.reconstructed = families.counter(
            "reconstruct_volume_operations_total",
            "Volumes of an agent before this one that were taken over.",
        )
        self.reconstruct_errors = families.counter(
            "reconstruct_volume_operations_errors_total",
            "Volumes of an agent before this one that could not be taken over.",
        )
        self.force_cleaned = families.counter(
            "force_cleaned_failed_volume_operations_total",
            "Volumes of unknown pods that were to be taken down.",
        )
        self.force_clean_errors = families.counter(
            "force_cleaned_failed_volume_operation_errors_total",
            "Volumes of unknown pods that could not be taken down.",
        )
        self.operation_duration = families.histogram(
            "storage_operation_duration_seconds",
            "Time that one operation on a volume took.",
            "volume_plugin",
            "operation_name",
            "status",
            "migrated",
            buckets=(0.1, 0.25, 0.5, 1, 2.5, 5, 10, 15, 25, 50, 120, 300, 600),
            level="BETA",
            earlier_level=("1.36", "ALPHA"),
        )
        self.operation_total = families.histogram(
            "volume_operation_total_seconds",
            "Time from the first request for a volume until it was there.",
            "plugin_name",
            "operation_name",
            buckets=(0.1, 0.25, 0.5, 1, 2.5, 5, 10, 15, 25, 50, 120, 300, 600),
            level="BETA",
            earlier_level=("1.36", "ALPHA"),
        )


class CsiFamilies:
    def __init__(self, families: Families) -> None:
        self.operations = families.histogram(
            "csi_operations_seconds",
            "Time that a call to a CSI driver took.",
            "driver_name",
            "method_name",
            "grpc_status_code",
            "migrated",
            buckets=(0.1, 0.25, 0.5, 1, 2.5, 5, 10, 15, 25, 50, 120, 300, 600),
        )
        self.storage_health = families.gauge(
            "csi_node_storage_health_status",
            "Conditions of storage that its driver reports on this node (1: it is reported).",
            "driver_name",
            "status",
            "reason",
            since="1.37",
            gates=("CSIVolumeHealth",),
        )


class VolumeStatsFamilies:
    def __init__(self, families: Families) -> None:
        self.gauges = {
            "capacity_bytes": families.gauge(
                "kubelet_volume_stats_capacity_bytes",
                "Bytes that the volume has.",
                "namespace",
                "persistentvolumeclaim",
            ),
            "available_bytes": families.gauge(
                "kubelet_volume_stats_available_bytes",
                "Bytes that are left in the volume.",
                "namespace",
                "persistentvolumeclaim",
            ),
            "used_bytes": families.gauge(
                "kubelet_volume_stats_used_bytes",
                "Bytes that are used in the volume.",
                "namespace",
                "persistentvolumeclaim",
            ),
            "inodes": families.gauge(
                "kubelet_volume_stats_inodes",
                "Inodes that the volume has.",
                "namespace",
                "persistentvolumeclaim",
            ),
            "inodes_free": families.gauge(
                "kubelet_volume_stats_inodes_free",
                "Inodes that are left in the volume.",
                "namespace",
                "persistentvolumeclaim",
            ),
            "inodes_used": families.gauge(
                "kubelet_volume_stats_inodes_used",
                "Inodes that are used in the volume.",
                "namespace",
                "persistentvolumeclaim",
            ),
            "health_status_abnormal": families.gauge(
                "kubelet_volume_stats_health_status_abnormal",
                "Whether the volume's driver reports it as unhealthy (0 or 1).",
                "namespace",
                "persistentvolumeclaim",
                until="1.36",
                gates=("CSIVolumeHealth",),
            ),
        }
        self.seconds = families.histogram(
            "kubelet_volume_metric_collection_duration_seconds",
            "Time that measuring one volume took.",
            "metric_source",
            buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10),
        )


class HttpFamilies:
    def __init__(self, families: Families) -> None:
        self.requests = families.bounded_counter(
            "kubelet_http_requests_total",
            "Requests to this server.",
            "method",
            "path",
            "server_type",
            "long_running",
        )
        self.requests_duration = families.histogram(
            "kubelet_http_requests_duration_seconds",
            "Time that requests took.",
            "method",
            "path",
            "server_type",
            "long_running",
            buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10),
        )
        self.inflight_requests = families.gauge(
            "kubelet_http_inflight_requests",
            "Requests under way.",
            "method",
            "path",
            "server_type",
            "long_running",
        )
        self.websocket_streams = families.counter(
            "kubelet_websocket_streaming_requests_total",
            "Streams over WebSockets that the runtime does not speak itself.",
            "subresource",
            level="BETA",
            earlier_level=("1.37", "ALPHA"),
            since="1.36",
        )
        self.provider = families.gauge(
            "kubelet_metrics_provider",
            "1 for what /metrics/cadvisor is made from.",
            "provider",
            since="1.36",
        )


class CertificatesFamilies:
    def __init__(self, families: Families) -> None:
        self.server_renew_errors = families.counter(
            "kubelet_server_expiration_renew_errors", "Failures to renew the serving certificate."
        )
        self.server_rotation = families.histogram(
            "kubelet_certificate_manager_server_rotation_seconds",
            "How long the previous serving certificate was in use when it was replaced.",
            buckets=(
                60,
                3600,
                14400,
                86400,
                604800,
                2592000,
                7776000,
                15552000,
                31104000,
                124416000,
            ),
        )
        self.server_ttl = families.gauge(
            "kubelet_certificate_manager_server_ttl_seconds",
            "Time until the serving certificate ends; negative when it has, +Inf without one.",
        )
        self.client_renew_errors = families.counter(
            "kubelet_certificate_manager_client_expiration_renew_errors",
            "Failures to renew the client certificate.",
        )
        self.client_ttl = families.gauge(
            "kubelet_certificate_manager_client_ttl_seconds",
            "Time until the client certificate ends; negative when it has, +Inf without one.",
        )


class PodCertificatesFamilies:
    def __init__(self, families: Families) -> None:
        self.states = families.gauge(
            "kubelet_podcertificate_states",
            "podCertificate sources of projected volumes, by signer and state.",
            "signer_name",
            "state",
            gates=("PodCertificateRequest",),
        )


class ProbesFamilies:
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
            level="BETA",
        )
        self.duration = families.histogram(
            "prober_probe_duration_seconds",
            "Time that probes took that did not fail.",
            "probe_type",
            "container",
            "pod",
            "namespace",
            buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10),
        )


class RestClientFamilies:
    def __init__(self, families: Families) -> None:
        self.requests = families.counter(
            "rest_client_requests_total",
            "Requests to the Kubernetes API by status code, method and host.",
            "code",
            "method",
            "host",
        )
        self.request_duration = families.histogram(
            "rest_client_request_duration_seconds",
            "Time that requests to the Kubernetes API took.",
            "verb",
            "host",
            buckets=(0.005, 0.025, 0.1, 0.25, 0.5, 1, 2, 4, 8, 15, 30, 60),
        )
        self.rate_limiter_duration = families.histogram(
            "rest_client_rate_limiter_duration_seconds",
            "Time that requests waited for our own rate limit.",
            "verb",
            "host",
            buckets=(0.005, 0.025, 0.1, 0.25, 0.5, 1, 2, 4, 8, 15, 30, 60),
        )
        self.request_size = families.histogram(
            "rest_client_request_size_bytes",
            "Sizes of requests to the Kubernetes API.",
            "verb",
            "host",
            buckets=(64, 256, 512, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304, 16777216),
        )
        self.response_size = families.histogram(
            "rest_client_response_size_bytes",
            "Sizes of responses of the Kubernetes API.",
            "verb",
            "host",
            buckets=(64, 256, 512, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304, 16777216),
        )
        self.request_retries = families.counter(
            "rest_client_request_retries_total", "Requests made again.", "code", "verb", "host"
        )
        self.connections = families.gauge(
            "kubeletpy_api_connections",
            "Open connections to the Kubernetes API; over HTTP/1.1, those with a request.",
            "protocol",
        )
        self.requests_in_flight = families.gauge(
            "kubeletpy_api_requests_in_flight",
            "Requests to the Kubernetes API under way: watches, and all others.",
            "kind",
        )
        self.connections_lost = families.counter(
            "kubeletpy_api_connections_lost_total",
            "HTTP/2 connections to the Kubernetes API that broke, or that the server ended.",
        )


class ProcessFamilies:
    def __init__(self, families: Families) -> None:
        self.build_info = families.gauge(
            "kubernetes_build_info",
            "Always 1; the labels identify the build.",
            "major",
            "minor",
            "git_version",
            "git_commit",
            "git_tree_state",
            "build_date",
            "go_version",
            "compiler",
            "platform",
            level="BETA",
            earlier_level=("1.35", "ALPHA"),
        )
        self.feature_enabled = families.gauge(
            "kubernetes_feature_enabled",
            "1 for feature gates that are on.",
            "name",
            "stage",
            level="BETA",
        )
        self.longest_turn = families.gauge(
            "kubeletpy_event_loop_longest_turn_seconds",
            "Longest time that the event loop answered nobody, since the scrape before this one.",
        )
        self.stalls = families.counter(
            "kubeletpy_event_loop_stalls_total",
            "Times that the event loop answered nobody for a quarter of a second or more.",
        )


class HealthFamilies:
    def __init__(self, families: Families) -> None:
        self.healthy = families.gauge(
            "kubernetes_healthcheck",
            "1 if the check passed when it last ran.",
            "name",
            "type",
            level="STABLE",
        )
        self.runs = families.counter(
            "kubernetes_healthchecks_total",
            "Runs of the check.",
            "name",
            "type",
            "status",
            level="STABLE",
        )
