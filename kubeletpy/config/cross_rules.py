"""Which combinations of configuration fields are allowed. Pure; one small rule each.

Source: docs/reference/config.csv (columns allowed and notes) and the feature gates. Rules that
depend on the machine are in :mod:`kubeletpy.config.host`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from kubeletpy.base.api import quantity
from kubeletpy.base.kubernetes_version import version_facts
from kubeletpy.base.structs import Struct
from kubeletpy.config.problems import Problem, show
from kubeletpy.config.settings import KubeletSettings

_FORMER_THROTTLING_FACTOR = 0.9
"""The default until 1.36, which files contain: no use of the feature."""


class SettingsInput(Struct, frozen=True):
    """The settings and which fields the user set."""

    settings: KubeletSettings
    explicit: frozenset[str]

    def gate(self, name: str) -> bool:
        return self.settings.feature_gates.enabled(name)


Rule = Callable[[SettingsInput], Iterable[tuple[str, object, str]]]
"""Yields (field, value, what is allowed) for each violation."""


def _image_gc(given: SettingsInput) -> Iterable[tuple[str, object, str]]:
    s = given.settings
    if s.image_gc_low_threshold_percent >= s.image_gc_high_threshold_percent:
        yield (
            "imageGCLowThresholdPercent",
            s.image_gc_low_threshold_percent,
            f"must be less than imageGCHighThresholdPercent ({s.image_gc_high_threshold_percent})",
        )
    if 0 < s.image_maximum_gc_age <= s.image_minimum_gc_age:
        allowed = f"must be 0s or more than imageMinimumGCAge ({s.image_minimum_gc_age:g}s)"
        yield "imageMaximumGCAge", f"{s.image_maximum_gc_age:g}s", allowed


def _image_pulls(given: SettingsInput) -> Iterable[tuple[str, object, str]]:
    s = given.settings
    if s.serialize_image_pulls and s.max_parallel_image_pulls not in (None, 1):
        allowed = "more than 1 needs serializeImagePulls: false"
        yield "maxParallelImagePulls", s.max_parallel_image_pulls, allowed


def _image_verification(given: SettingsInput) -> Iterable[tuple[str, object, str]]:
    s = given.settings
    policy, allowlist = (
        "imagePullCredentialsVerificationPolicy",
        "preloadedImagesVerificationAllowlist",
    )
    value = s.image_pull_credentials_verification_policy
    listed = s.preloaded_images_verification_allowlist
    if not given.gate("KubeletEnsureSecretPulledImages"):
        allowed = "must not be set while feature gate KubeletEnsureSecretPulledImages is off"
        if policy in given.explicit:
            yield policy, value, allowed
        if listed:
            yield allowlist, listed, allowed
    elif listed and value != "NeverVerifyAllowlistedImages":
        yield allowlist, listed, f"only with {policy}: NeverVerifyAllowlistedImages"


def _cgroups(given: SettingsInput) -> Iterable[tuple[str, object, str]]:
    s = given.settings
    names = s.enforce_node_allocatable
    if not s.cgroups_per_qos and any(name != "none" for name in names):
        yield (
            "cgroupsPerQOS",
            False,
            "must be true unless enforceNodeAllocatable is empty or [none]",
        )
    for prefix, cgroup in (("system", s.system_reserved_cgroup), ("kube", s.kube_reserved_cgroup)):
        if not cgroup and any(name.startswith(f"{prefix}-reserved") for name in names):
            allowed = f"is needed by {prefix}-reserved in enforceNodeAllocatable"
            yield f"{prefix}ReservedCgroup", "", allowed
    if s.system_cgroups and "cgroupRoot" not in given.explicit:
        yield "systemCgroups", s.system_cgroups, "needs cgroupRoot"
    for field, path in (("systemCgroups", s.system_cgroups), ("kubeletCgroups", s.kubelet_cgroups)):
        parts = path.split("/")
        if path and (not any(parts) or {".", ".."} & set(parts) or "\0" in path):
            yield field, path, "must be the path of a cgroup below the root, such as /system"
    if s.reserved_system_cpus and (s.system_reserved_cgroup or s.kube_reserved_cgroup):
        allowed = "not together with systemReservedCgroup or kubeReservedCgroup"
        yield "reservedSystemCPUs", s.reserved_system_cpus, allowed


def _eviction(given: SettingsInput) -> Iterable[tuple[str, object, str]]:
    s = given.settings
    for signal, threshold in s.eviction_soft.items():
        if signal not in s.eviction_soft_grace_period:
            allowed = f"needs evictionSoftGracePeriod.{signal}"
            yield f"evictionSoft.{signal}", threshold, allowed
        hard = s.eviction_hard.get(signal)
        if hard is not None and _less(threshold, hard):
            allowed = f"is never reached: evictionHard.{signal} is {hard}, which comes first"
            yield f"evictionSoft.{signal}", threshold, allowed


def _less(soft: str, hard: str) -> bool:
    """Whether a soft threshold is below the hard one, where they can be compared.

    0% and 100% disable a threshold (docs/reference/behaviour-resources.md, rb).
    """
    if {soft, hard} & {"0%", "100%"} or soft.endswith("%") is not hard.endswith("%"):
        return False
    return quantity.parse(soft.rstrip("%")) < quantity.parse(hard.rstrip("%"))


def _gated(given: SettingsInput) -> Iterable[tuple[str, object, str]]:
    s = given.settings
    options = s.logging.options
    logging_options = (options.text, options.json)
    needs = (
        ("serverTLSBootstrap", True, s.server_tls_bootstrap, "RotateKubeletServerCertificate"),
        ("qosReserved", dict(s.qos_reserved), bool(s.qos_reserved), "QOSReserved"),
        (
            "cpuCFSQuotaPeriod",
            f"{s.cpu_cfs_quota_period:g}s",
            s.cpu_cfs_quota_period != 0.1,
            "CustomCPUCFSQuotaPeriod",
        ),
        (
            "crashLoopBackOff.maxContainerRestartPeriod",
            f"{s.crash_loop_back_off.max_container_restart_period:g}s",
            "crashLoopBackOff.maxContainerRestartPeriod" in given.explicit,
            "KubeletCrashLoopBackOffMax",
        ),
        (
            "memoryReservationPolicy",
            s.memory_reservation_policy,
            s.memory_reservation_policy != "None",
            "MemoryQoS",
        ),
        (
            "memoryThrottlingFactor",
            s.memory_throttling_factor,
            s.memory_throttling_factor not in (None, _FORMER_THROTTLING_FACTOR)
            and version_facts(s.feature_gates.version).throttling_factor_needs_gate,
            "MemoryQoS",
        ),
        ("defaultPodSysctls", None, bool(s.default_pod_sysctls), "DefaultPodSysctls"),
        (
            "logging.options",
            None,
            any(each.split_stream or each.info_buffer_size for each in logging_options),
            "LoggingAlphaOptions",
        ),
    )
    json = ("logging.format", "json", s.logging.format == "json", "LoggingBetaOptions")
    for field, value, used, gate in (*needs, json):
        if used and not given.gate(gate):
            yield field, value, f"needs feature gate {gate}"


def _logs(given: SettingsInput) -> Iterable[tuple[str, object, str]]:
    s = given.settings
    if s.enable_system_log_query and not s.enable_system_log_handler:
        yield "enableSystemLogQuery", True, "needs enableSystemLogHandler: true"
    if s.logging.vmodule and s.logging.format != "text":
        yield "logging.vmodule", None, "only with logging.format: text"


def _shutdown(given: SettingsInput) -> Iterable[tuple[str, object, str]]:
    s = given.settings
    total, critical = s.shutdown_grace_period, s.shutdown_grace_period_critical_pods
    if critical > total:
        allowed = f"must not be more than shutdownGracePeriod ({total:g}s)"
        yield "shutdownGracePeriodCriticalPods", f"{critical:g}s", allowed
    if total and not given.gate("GracefulNodeShutdown"):
        yield "shutdownGracePeriod", f"{total:g}s", "needs feature gate GracefulNodeShutdown"
    if s.shutdown_grace_period_by_pod_priority:
        field = "shutdownGracePeriodByPodPriority"
        if total:
            yield field, None, "not together with shutdownGracePeriod(CriticalPods)"
        if not given.gate("GracefulNodeShutdownBasedOnPodPriority"):
            yield field, None, "needs feature gate GracefulNodeShutdownBasedOnPodPriority"


def _user_namespaces(given: SettingsInput) -> Iterable[tuple[str, object, str]]:
    ids = given.settings.user_namespaces.ids_per_pod
    if ids % 65536:
        yield "userNamespaces.idsPerPod", ids, "must be a multiple of 65536"


_RULES: tuple[tuple[Rule, tuple[str, ...]], ...] = (
    (_image_gc, ("imageGC", "imageM")),
    (_image_pulls, ("serializeImagePulls", "maxParallelImagePulls")),
    (_image_verification, ("imagePullCredentials", "preloadedImages", "featureGates")),
    (
        _cgroups,
        (
            "enforceNodeAllocatable",
            "cgroup",
            "systemReservedCgroup",
            "kubeReservedCgroup",
            "systemCgroups",
            "kubeletCgroups",
        ),
    ),
    (_eviction, ("evictionSoft", "evictionHard")),
    (
        _gated,
        (
            "featureGates",
            "qosReserved",
            "cpuCFSQuotaPeriod",
            "crashLoopBackOff",
            "logging",
            "memoryThrottlingFactor",
        ),
    ),
    (_logs, ("logging", "enableSystemLog")),
    (_shutdown, ("shutdownGracePeriod", "featureGates")),
    (_user_namespaces, ("userNamespaces",)),
)
"""Each rule with the prefixes of the fields it reads: skipped when one of those is bad already."""


def check(given: SettingsInput, bad: set[str]) -> list[Problem]:
    """Every violation of a rule over several fields.

    Args:
        given: complete settings; a bad field holds its default.
        bad: paths of fields that are wrong by themselves.
    """
    problems = []
    for rule, reads in _RULES:
        if any(path.startswith(prefix) for path in bad for prefix in reads):
            continue
        for field, value, allowed in rule(given):
            shown = "" if value is None else show(field, value)
            problems.append(Problem(field, shown, allowed))
    return problems
