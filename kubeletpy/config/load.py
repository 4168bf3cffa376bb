"""Turns documents and flags into validated settings; reports all problems at once. Pure.

Precedence (docs/reference/config.csv): defaults, then the file, then its drop-ins as JSON merge
patches in order, then flags; feature gates given by flag change only those gates.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from kubeletpy.base.api import quantity
from kubeletpy.base.api.json_patch import apply_merge_patch
from kubeletpy.base.kubernetes_version import NEWEST, KubernetesVersion, supported, version_facts
from kubeletpy.base.structs import Struct
from kubeletpy.config import decode, effects
from kubeletpy.config.fields import API_VERSION, KIND
from kubeletpy.config.flags import FlagValues, NodeFlags
from kubeletpy.config.problems import ConfigError, Problem, ProblemReport, show
from kubeletpy.config.settings import KubeletSettings

# Combinations of fields: one small rule each. Source: docs/reference/config.csv (columns allowed
# and notes) and the feature gates. Rules that need the machine are in
# :mod:`kubeletpy.config.rules`.

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


def _image_gc(inputs: SettingsInput) -> Iterable[tuple[str, object, str]]:
    s = inputs.settings
    if s.image_gc_low_threshold_percent >= s.image_gc_high_threshold_percent:
        yield (
            "imageGCLowThresholdPercent",
            s.image_gc_low_threshold_percent,
            f"must be less than imageGCHighThresholdPercent ({s.image_gc_high_threshold_percent})",
        )
    if 0 < s.image_maximum_gc_age <= s.image_minimum_gc_age:
        allowed = f"must be 0s or more than imageMinimumGCAge ({s.image_minimum_gc_age:g}s)"
        yield "imageMaximumGCAge", f"{s.image_maximum_gc_age:g}s", allowed


def _image_pulls(inputs: SettingsInput) -> Iterable[tuple[str, object, str]]:
    s = inputs.settings
    if s.serialize_image_pulls and s.max_parallel_image_pulls not in (None, 1):
        allowed = "more than 1 needs serializeImagePulls: false"
        yield "maxParallelImagePulls", s.max_parallel_image_pulls, allowed


def _image_verification(inputs: SettingsInput) -> Iterable[tuple[str, object, str]]:
    s = inputs.settings
    policy, allowlist = (
        "imagePullCredentialsVerificationPolicy",
        "preloadedImagesVerificationAllowlist",
    )
    value = s.image_pull_credentials_verification_policy
    listed = s.preloaded_images_verification_allowlist
    if not inputs.gate("KubeletEnsureSecretPulledImages"):
        allowed = "must not be set while feature gate KubeletEnsureSecretPulledImages is off"
        if policy in inputs.explicit:
            yield policy, value, allowed
        if listed:
            yield allowlist, listed, allowed
    elif listed and value != "NeverVerifyAllowlistedImages":
        yield allowlist, listed, f"only with {policy}: NeverVerifyAllowlistedImages"


def _cgroups(inputs: SettingsInput) -> Iterable[tuple[str, object, str]]:
    s = inputs.settings
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
    if s.system_cgroups and "cgroupRoot" not in inputs.explicit:
        yield "systemCgroups", s.system_cgroups, "needs cgroupRoot"
    for field, path in (("systemCgroups", s.system_cgroups), ("kubeletCgroups", s.kubelet_cgroups)):
        parts = path.split("/")
        if path and (not any(parts) or {".", ".."} & set(parts) or "\0" in path):
            yield field, path, "must be the path of a cgroup below the root, such as /system"
    if s.reserved_system_cpus and (s.system_reserved_cgroup or s.kube_reserved_cgroup):
        allowed = "not together with systemReservedCgroup or kubeReservedCgroup"
        yield "reservedSystemCPUs", s.reserved_system_cpus, allowed


def _eviction(inputs: SettingsInput) -> Iterable[tuple[str, object, str]]:
    s = inputs.settings
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


def _gated(inputs: SettingsInput) -> Iterable[tuple[str, object, str]]:
    s = inputs.settings
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
            "crashLoopBackOff.maxContainerRestartPeriod" in inputs.explicit,
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
        if used and not inputs.gate(gate):
            yield field, value, f"needs feature gate {gate}"


def _certificates(inputs: SettingsInput) -> Iterable[tuple[str, object, str]]:
    s = inputs.settings
    for field, algorithm in (
        ("clientCertificateKeyAlgorithm", s.client_certificate_key_algorithm),
        ("serverCertificateKeyAlgorithm", s.server_certificate_key_algorithm),
    ):
        if algorithm.startswith("ML-DSA"):
            allowed = "this agent makes only ECDSA and RSA keys: choose one of these"
            yield field, algorithm, allowed


def _logs(inputs: SettingsInput) -> Iterable[tuple[str, object, str]]:
    s = inputs.settings
    if s.enable_system_log_query and not s.enable_system_log_handler:
        yield "enableSystemLogQuery", True, "needs enableSystemLogHandler: true"
    if s.logging.vmodule and s.logging.format != "text":
        yield "logging.vmodule", None, "only with logging.format: text"


def _shutdown(inputs: SettingsInput) -> Iterable[tuple[str, object, str]]:
    s = inputs.settings
    total, critical = s.shutdown_grace_period, s.shutdown_grace_period_critical_pods
    if critical > total:
        allowed = f"must not be more than shutdownGracePeriod ({total:g}s)"
        yield "shutdownGracePeriodCriticalPods", f"{critical:g}s", allowed
    if total and not inputs.gate("GracefulNodeShutdown"):
        yield "shutdownGracePeriod", f"{total:g}s", "needs feature gate GracefulNodeShutdown"
    if s.shutdown_grace_period_by_pod_priority:
        field = "shutdownGracePeriodByPodPriority"
        if total:
            yield field, None, "not together with shutdownGracePeriod(CriticalPods)"
        if not inputs.gate("GracefulNodeShutdownBasedOnPodPriority"):
            yield field, None, "needs feature gate GracefulNodeShutdownBasedOnPodPriority"


def _user_namespaces(inputs: SettingsInput) -> Iterable[tuple[str, object, str]]:
    ids = inputs.settings.user_namespaces.ids_per_pod
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
    (_certificates, ("clientCertificateKeyAlgorithm", "serverCertificateKeyAlgorithm")),
    (_logs, ("logging", "enableSystemLog")),
    (_shutdown, ("shutdownGracePeriod", "featureGates")),
    (_user_namespaces, ("userNamespaces",)),
)
"""Each rule with the prefixes of the fields it reads: skipped when one of those is bad already."""


def check_combinations(inputs: SettingsInput, bad: set[str]) -> list[Problem]:
    """Every violation of a rule over several fields.

    Args:
        inputs: complete settings; a bad field holds its default.
        bad: paths of fields that are wrong by themselves.
    """
    problems = []
    for rule, reads in _RULES:
        if any(path.startswith(prefix) for path in bad for prefix in reads):
            continue
        for field, value, allowed in rule(inputs):
            reported = "" if value is None else show(field, value)
            problems.append(Problem(field, reported, allowed))
    return problems


_NO_FILE_DEFAULTS: Mapping[str, Any] = {"evictionHard": {}}
"""The kubelet's defaults without a configuration file, except those that would open ports to
everybody: anonymous access, AlwaysAllow, read-only port. These must be requested explicitly."""

_NO_FILE_NO_API: Mapping[str, Any] = {
    "authentication.webhook.enabled": False,
    "authorization.mode": "AlwaysAllow",
}
"""More of the kubelet's defaults without a file, and the only way to allow access without an API
for reviews: clients with a certificate from authentication.x509.clientCAFile."""


Check = Callable[[KubeletSettings, NodeFlags], list[Problem]]
"""Finds problems that depend on more than the settings: on the machine, on files."""


OfVersion = Callable[[KubernetesVersion], "LoadedConfig"]


class LoadedConfig(Struct, frozen=True):
    """Settings ready to use.

    Attributes:
        settings: validated.
        node: flags without a field in the document.
        warnings: for the log, in order.
        of_version: reads the same texts for another version. Raises ConfigError.
        notices: what was requested and has no effect.
    """

    settings: KubeletSettings
    node: NodeFlags
    warnings: tuple[str, ...]
    of_version: OfVersion
    notices: tuple[effects.Notice, ...] = ()


def load(
    file_text: str | None,
    dropins: Sequence[tuple[str, str]] = (),
    flag_values: FlagValues | None = None,
    *,
    file_name: str = "",
    base_dir: str = "",
    version: KubernetesVersion = NEWEST,
    check: Check | None = None,
    strict: bool = False,
) -> LoadedConfig:
    """Build the settings.

    Args:
        file_text: the KubeletConfiguration file; None when there is none.
        dropins: (name, text) of the drop-in files, in the order they apply.
        flag_values: from :func:`kubeletpy.config.flags.parse_flags`.
        file_name: shown in messages.
        base_dir: the file's directory, against which a relative ``staticPodPath`` is resolved.
        version: the Kubernetes version whose fields, defaults and feature gates apply, unless
            ``--kubernetes-version`` names one.
        check: finds further problems, such as settings that do not fit the machine. Fields whose
            values could not be read have their defaults then, and their problems do not count.
        strict: unknown fields and duplicates are problems, as in the program's own configuration.

    Raises:
        ConfigError: with every problem.
    """
    flag_values = flag_values or FlagValues()
    version = supported(flag_values.node.kubernetes_version) or version
    warnings = list(flag_values.warnings)
    documents = [] if file_text is None else [(file_name, file_text)]
    merged, problems, dropped = _merge_documents([*documents, *dropins], version, strict=strict)
    warnings += map(str, dropped)
    found = decode.without_zeros(decode.leaves(merged, ProblemReport(version=version)))
    if not documents and not dropins:
        warnings.append(
            "no configuration file: there are no eviction thresholds; unlike the kubelet's, ports "
            "stay closed to anonymous clients unless flags open them"
        )
        alone = {} if flag_values.node.kubeconfig else _NO_FILE_NO_API
        found = {**_NO_FILE_DEFAULTS, **alone, **found}

    from_flags, flag_problems = _decode_flags(flag_values, found, version)
    problems += flag_problems
    report = ProblemReport(version=version)
    values = decode.decode({**found, **from_flags}, report)
    bad = report.bad | {problem.field for problem in problems}
    explicit = frozenset(found) | frozenset(from_flags)
    settings, derived = decode.derive(
        decode.build(values, version), explicit, base_dir=base_dir, by_flag=frozenset(from_flags)
    )
    problems += check_combinations(SettingsInput(settings, explicit), bad)
    if check is not None:
        named = bad | {problem.field for problem in problems}
        found_here = check(settings, flag_values.node)
        problems += [problem for problem in found_here if problem.field not in named]
    if problems:
        raise ConfigError(dict.fromkeys(problems), dict.fromkeys(dropped))
    notices = effects.notices(
        settings, explicit, flag_values.ignored, flag_values.node.cloud_provider
    )
    stated = (*warnings, *derived, *effects.lines(notices))
    again = partial(
        load, file_text, dropins, flag_values, file_name=file_name, base_dir=base_dir, check=check
    )
    return LoadedConfig(
        settings, flag_values.node, stated, lambda version: again(version=version), notices
    )


def default_settings(version: KubernetesVersion = NEWEST, /, **fields: Any) -> KubeletSettings:
    """Settings of an empty document with these top-level fields set: for tests.

    Raises:
        ConfigError: a value that is not allowed.
    """
    document = {"apiVersion": API_VERSION, "kind": KIND, **fields}
    return load_document(document, version=version).settings


def load_document(
    document: Mapping[str, Any],
    flag_values: FlagValues | None = None,
    *,
    file_name: str = "",
    version: KubernetesVersion = NEWEST,
    strict: bool = False,
) -> LoadedConfig:
    """Make settings from a document that is already decoded.

    ``file_name``, ``version`` and ``strict`` are as for :func:`load`. Raises ConfigError.
    """
    problems: list[Problem] = []
    plain = _as_json(document, "", file_name, problems)
    if problems:
        raise ConfigError(problems)
    return load(
        json.dumps(plain), (), flag_values, file_name=file_name, version=version, strict=strict
    )


def _as_json(value: object, at: str, source: str, problems: list[Problem]) -> Any:
    """A value as JSON has it; a problem for each that no document can have, such as a Path."""
    if isinstance(value, Mapping):
        return {
            str(key): _as_json(each, f"{at}.{key}" if at else str(key), source, problems)
            for key, each in value.items()
        }
    if isinstance(value, list | tuple):
        return [
            _as_json(each, f"{at}[{index}]", source, problems) for index, each in enumerate(value)
        ]
    if not isinstance(value, str | int | float | bool | None):
        kind = type(value).__name__
        allowed = f"must be a text, a number, true or false, a list or an object, not a {kind}"
        problems.append(Problem(at, show(at, str(value)), allowed, source))
    return value


def _merge_documents(
    documents: Sequence[tuple[str, str]], version: KubernetesVersion, *, strict: bool
) -> tuple[dict[str, Any], list[Problem], list[Problem]]:
    """The merged document, the problems, and what was dropped.

    Each document is checked by itself, so that a problem names the file it is in.
    """
    merged: dict[str, Any] = {}
    problems: list[Problem] = []
    dropped: list[Problem] = []
    for name, text in documents:
        report = ProblemReport(name, version, strict=strict)
        document = decode.parse(text, report)
        decode.decode(decode.without_zeros(decode.leaves(document, report)), report)
        problems += report.problems
        dropped += report.lenient
        merged = apply_merge_patch(merged, document)
    return merged, problems, dropped


def _decode_flags(
    flag_values: FlagValues, found: Mapping[str, Any], version: KubernetesVersion
) -> tuple[dict[str, Any], list[Problem]]:
    values: dict[str, Any] = {}
    problems: list[Problem] = []
    for path, flag in flag_values.fields.items():
        value = flag.value
        if path == "seccompDefault":
            value = bool(value or found.get(path))
        report = ProblemReport(flag.flag, version)
        decode.decode({path: value}, report)
        problems += report.problems
        if path == "featureGates" and isinstance(found.get(path), dict):
            value = {**found[path], **value}
        values[path] = value
    return values, problems
