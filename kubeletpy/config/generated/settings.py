"""The objects of the KubeletConfiguration. Pure.

Written by tools/gen_tables.py. Source: docs/reference/config.csv.
"""

from __future__ import annotations

from collections.abc import Mapping

from kubeletpy.base.structs import Struct


class X509Authentication(Struct, frozen=True):
    client_ca_file: str


class WebhookAuthentication(Struct, frozen=True):
    enabled: bool
    cache_ttl: float


class AnonymousAuthentication(Struct, frozen=True):
    enabled: bool


class Authentication(Struct, frozen=True):
    x509: X509Authentication
    webhook: WebhookAuthentication
    anonymous: AnonymousAuthentication


class WebhookAuthorization(Struct, frozen=True):
    cache_authorized_ttl: float
    cache_unauthorized_ttl: float


class Authorization(Struct, frozen=True):
    mode: str
    webhook: WebhookAuthorization


class MemorySwap(Struct, frozen=True):
    swap_behavior: str


class LogStreamOptions(Struct, frozen=True):
    split_stream: bool
    info_buffer_size: int


class LoggingOptions(Struct, frozen=True):
    text: LogStreamOptions
    json: LogStreamOptions


class VModule(Struct, frozen=True):
    file_pattern: str
    verbosity: int


class Logging(Struct, frozen=True):
    format: str
    flush_frequency: float
    verbosity: int
    vmodule: tuple[VModule, ...]
    options: LoggingOptions


class CrashLoopBackOff(Struct, frozen=True):
    max_container_restart_period: float


class ShutdownPriority(Struct, frozen=True):
    priority: int
    shutdown_grace_period_seconds: int


class MemoryReservation(Struct, frozen=True):
    numa_node: int
    limits: Mapping[str, str]


class Taint(Struct, frozen=True):
    key: str
    value: str
    effect: str


class Tracing(Struct, frozen=True):
    endpoint: str | None
    sampling_rate_per_million: int | None


class UserNamespaces(Struct, frozen=True):
    ids_per_pod: int


class KubeletFields(Struct, frozen=True):
    enable_server: bool
    static_pod_path: str
    pod_logs_dir: str
    sync_frequency: float
    file_check_frequency: float
    http_check_frequency: float
    static_pod_url: str
    static_pod_url_header: Mapping[str, tuple[str, ...]]
    address: str
    port: int
    read_only_port: int
    tls_cert_file: str
    tls_private_key_file: str
    tls_cipher_suites: tuple[str, ...]
    tls_curve_preferences: tuple[int, ...]
    tls_min_version: str
    rotate_certificates: bool
    server_tls_bootstrap: bool
    authentication: Authentication
    authorization: Authorization
    registry_pull_qps: int
    registry_burst: int
    image_pull_credentials_verification_policy: str
    preloaded_images_verification_allowlist: tuple[str, ...]
    event_record_qps: int
    event_burst: int
    enable_debugging_handlers: bool
    enable_contention_profiling: bool
    healthz_port: int
    healthz_bind_address: str
    oom_score_adj: int
    cluster_domain: str
    cluster_dns: tuple[str, ...]
    streaming_connection_idle_timeout: float
    node_status_update_frequency: float
    node_status_report_frequency: float
    node_lease_duration_seconds: int
    image_minimum_gc_age: float
    image_maximum_gc_age: float
    image_gc_high_threshold_percent: int
    image_gc_low_threshold_percent: int
    volume_stats_agg_period: float
    kubelet_cgroups: str
    system_cgroups: str
    cgroup_root: str
    cgroups_per_qos: bool
    cgroup_driver: str
    cpu_manager_policy: str
    single_process_oom_kill: bool | None
    cpu_manager_policy_options: Mapping[str, str]
    cpu_manager_reconcile_period: float
    memory_manager_policy: str
    topology_manager_policy: str
    topology_manager_scope: str
    topology_manager_policy_options: Mapping[str, str]
    qos_reserved: Mapping[str, str]
    runtime_request_timeout: float
    hairpin_mode: str
    max_pods: int
    pod_cidr: str
    pod_pids_limit: int
    resolv_conf: str
    run_once: bool
    cpu_cfs_quota: bool
    cpu_cfs_quota_period: float
    node_status_max_images: int
    max_open_files: int
    content_type: str
    kube_api_qps: int
    kube_api_burst: int
    serialize_image_pulls: bool
    max_parallel_image_pulls: int | None
    eviction_hard: Mapping[str, str]
    eviction_soft: Mapping[str, str]
    eviction_soft_grace_period: Mapping[str, float]
    eviction_pressure_transition_period: float
    eviction_max_pod_grace_period: int
    eviction_minimum_reclaim: Mapping[str, str]
    merge_default_eviction_settings: bool
    pods_per_core: int
    enable_controller_attach_detach: bool
    protect_kernel_defaults: bool
    make_iptables_util_chains: bool
    iptables_masquerade_bit: int
    iptables_drop_bit: int
    fail_swap_on: bool
    memory_swap: MemorySwap
    container_log_max_size: int
    container_log_max_files: int
    container_log_max_workers: int
    container_log_monitor_interval: float
    config_map_and_secret_change_detection_strategy: str
    system_reserved: Mapping[str, str]
    kube_reserved: Mapping[str, str]
    reserved_system_cpus: str
    show_hidden_metrics_for_version: str
    system_reserved_cgroup: str
    kube_reserved_cgroup: str
    enforce_node_allocatable: tuple[str, ...]
    allowed_unsafe_sysctls: tuple[str, ...]
    default_pod_sysctls: Mapping[str, str]
    volume_plugin_dir: str
    provider_id: str
    kernel_memcg_notification: bool
    logging: Logging
    enable_system_log_handler: bool
    enable_system_log_query: bool
    shutdown_grace_period: float
    shutdown_grace_period_critical_pods: float
    shutdown_grace_period_by_pod_priority: tuple[ShutdownPriority, ...]
    crash_loop_back_off: CrashLoopBackOff
    reserved_memory: tuple[MemoryReservation, ...]
    enable_profiling_handler: bool
    enable_debug_flags_handler: bool
    seccomp_default: bool
    memory_throttling_factor: float | None
    memory_reservation_policy: str
    register_with_taints: tuple[Taint, ...]
    register_node: bool
    tracing: Tracing
    local_storage_capacity_isolation: bool
    container_runtime_endpoint: str
    image_service_endpoint: str
    fail_cgroup_v1: bool
    user_namespaces: UserNamespaces
    client_certificate_key_algorithm: str
    server_certificate_key_algorithm: str


GROUPS: Mapping[str, type] = {
    "authentication.x509": X509Authentication,
    "authentication.webhook": WebhookAuthentication,
    "authentication.anonymous": AnonymousAuthentication,
    "authentication": Authentication,
    "authorization.webhook": WebhookAuthorization,
    "authorization": Authorization,
    "memorySwap": MemorySwap,
    "logging.options.text": LogStreamOptions,
    "logging.options.json": LogStreamOptions,
    "logging.options": LoggingOptions,
    "logging": Logging,
    "crashLoopBackOff": CrashLoopBackOff,
    "tracing": Tracing,
    "userNamespaces": UserNamespaces,
}
"""The nested objects of the document, innermost first."""
