"""The table of all fields of KubeletConfiguration v1beta1: path, type, default, what is allowed.

Pure.

Source: docs/reference/config.csv. Must stay data: rules about several fields are in
:mod:`kubeletpy.config.load`.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from types import MappingProxyType
from typing import Any

from kubeletpy.base.kubernetes_version import KubernetesVersion, within
from kubeletpy.base.structs import Struct, replace
from kubeletpy.config import decoders as d
from kubeletpy.config import rules as r
from kubeletpy.config.gates import decode_gates
from kubeletpy.config.problems import ProblemReport
from kubeletpy.config.settings import MemoryReservation, ShutdownPriority, Taint, VModule

API_VERSION = "kubelet.config.k8s.io/v1beta1"
KIND = "KubeletConfiguration"
JSON_TYPE = "application/json"
PROTOBUF = "application/vnd.kubernetes.protobuf"
"""Formats of requests to the API. JSON is the default: it is parsed in C."""

DEFAULT_EVICTION_HARD: Mapping[str, str] = MappingProxyType(
    {
        "memory.available": "100Mi",
        "nodefs.available": "10%",
        "nodefs.inodesFree": "5%",
        "imagefs.available": "15%",
        "imagefs.inodesFree": "5%",
    }
)
SIGNALS = (
    "memory.available",
    "nodefs.available",
    "nodefs.inodesFree",
    "imagefs.available",
    "imagefs.inodesFree",
    "containerfs.available",
    "containerfs.inodesFree",
    "pid.available",
    "allocatableMemory.available",
)
TLS_CIPHER_SUITES = (
    "TLS_RSA_WITH_RC4_128_SHA",
    "TLS_RSA_WITH_3DES_EDE_CBC_SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA",
    "TLS_RSA_WITH_AES_256_CBC_SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA256",
    "TLS_RSA_WITH_AES_128_GCM_SHA256",
    "TLS_RSA_WITH_AES_256_GCM_SHA384",
    "TLS_ECDHE_ECDSA_WITH_RC4_128_SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_RC4_128_SHA",
    "TLS_ECDHE_RSA_WITH_3DES_EDE_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
    "TLS_AES_128_GCM_SHA256",
    "TLS_AES_256_GCM_SHA384",
    "TLS_CHACHA20_POLY1305_SHA256",
)
RESERVABLE = ("cpu", "memory", "ephemeral-storage", "pid")

_STRINGS = d.list_of(d.string)
_STRING_MAP = d.map_of(d.string)
_RESERVED = d.map_of(d.quantity_text, RESERVABLE)
_NONE: tuple[Any, ...] = ()
_EMPTY: Mapping[str, Any] = MappingProxyType({})
_TAINTS = d.list_of(
    d.struct_of(
        Taint,
        {
            "key": (d.string, ...),
            "value": (d.string, ""),
            "effect": (d.string, ...),
            "timeAdded": (d.unset, None),
        },
    )
)
_VMODULE = d.list_of(
    d.struct_of(VModule, {"filePattern": (d.string, ...), "verbosity": (d.uint32, ...)})
)
_PRIORITIES = d.list_of(
    d.struct_of(
        ShutdownPriority, {"priority": (d.int32, 0), "shutdownGracePeriodSeconds": (d.int64, 0)}
    )
)
_MEMORY = d.list_of(
    d.struct_of(
        MemoryReservation,
        {"numaNode": (d.int32, 0), "limits": (d.map_of(d.quantity_text), ...)},
    )
)


class ConfigField(Struct, frozen=True):
    """One field of the document.

    Attributes:
        path: where it is, with dots.
        decode: its type.
        default: the setting (not the text) when the document omits it.
        rule: what it may hold.
        pointer: whether an explicit zero or empty text differs from an omitted field. It does not
            for most fields, and tools write those as ``0s`` or ``""`` to mean the default.
        earlier: the defaults of earlier versions, where they differ.
        since: the first version that has the field; empty when all have it.
    """

    path: str
    decode: d.Decoder
    default: Any
    rule: r.Rule | None = None
    pointer: bool = False
    earlier: Mapping[str, Any] = MappingProxyType({})
    since: str = ""


def _pointer(path: str, decode: d.Decoder, default: Any, rule: r.Rule | None = None) -> ConfigField:
    return ConfigField(path, decode, default, rule, pointer=True)


def _previous_version(value: object, at: str, report: ProblemReport) -> str | None:
    """Read a text that is empty or the version before the one that is run."""
    text: str | None = d.string(value, at, report)
    previous = f"1.{report.version.minor - 1}"
    if text not in (None, "", previous):
        report.add(at, value, f"must be {previous} or empty")
    return text


_PERIOD = r.seconds_at_least(0)
_PORT = r.between(1, 65535)
_PORT_OR_OFF = r.between(0, 65535)
_NOT_NEGATIVE = r.at_least(0)

_SERVER = (
    _pointer("enableServer", d.boolean, True),
    ConfigField("staticPodPath", d.string, ""),
    ConfigField("podLogsDir", d.string, "/var/log/pods", r.log_directory),
    ConfigField("syncFrequency", d.duration, 60.0, r.seconds_at_least(0.001)),
    ConfigField("fileCheckFrequency", d.duration, 20.0),
    ConfigField("httpCheckFrequency", d.duration, 20.0),
    ConfigField("staticPodURL", d.string, ""),
    ConfigField("staticPodURLHeader", d.map_of(d.list_of(d.string)), _EMPTY),
    ConfigField("address", d.string, "0.0.0.0", r.ip_address),
    ConfigField("port", d.int32, 10250, _PORT),
    ConfigField("readOnlyPort", d.int32, 0, _PORT_OR_OFF),
    ConfigField("tlsCertFile", d.string, ""),
    ConfigField("tlsPrivateKeyFile", d.string, ""),
    ConfigField("tlsCipherSuites", _STRINGS, _NONE, r.each_one_of(*TLS_CIPHER_SUITES)),
    ConfigField("tlsCurvePreferences", d.list_of(d.int32), _NONE, since="1.36"),
    ConfigField(
        "tlsMinVersion",
        d.string,
        "",
        r.one_of("", "VersionTLS10", "VersionTLS11", "VersionTLS12", "VersionTLS13"),
    ),
    ConfigField("rotateCertificates", d.boolean, False),
    ConfigField("serverTLSBootstrap", d.boolean, False),
    ConfigField("authentication.x509.clientCAFile", d.string, ""),
    _pointer("authentication.webhook.enabled", d.boolean, True),
    ConfigField("authentication.webhook.cacheTTL", d.duration, 120.0),
    _pointer("authentication.anonymous.enabled", d.boolean, False),
    ConfigField("authorization.mode", d.string, "Webhook", r.one_of("AlwaysAllow", "Webhook")),
    ConfigField("authorization.webhook.cacheAuthorizedTTL", d.duration, 300.0),
    ConfigField("authorization.webhook.cacheUnauthorizedTTL", d.duration, 30.0),
    _pointer("enableDebuggingHandlers", d.boolean, True),
    ConfigField("enableContentionProfiling", d.boolean, False),
    _pointer("healthzPort", d.int32, 10248, _PORT_OR_OFF),
    ConfigField("healthzBindAddress", d.string, "127.0.0.1", r.ip_address),
    ConfigField("streamingConnectionIdleTimeout", d.duration, 14400.0),
    ConfigField("showHiddenMetricsForVersion", _previous_version, ""),
    _pointer("enableSystemLogHandler", d.boolean, True),
    _pointer("enableSystemLogQuery", d.boolean, False),
    _pointer("enableProfilingHandler", d.boolean, True),
    _pointer("enableDebugFlagsHandler", d.boolean, True),
    _pointer("tracing.endpoint", d.string, None, r.tracing_endpoint),
    _pointer("tracing.samplingRatePerMillion", d.int32, None, r.between(0, 1000000)),
)

_IMAGES_AND_RUNTIME = (
    ConfigField(
        "containerRuntimeEndpoint",
        d.string,
        "unix:///run/containerd/containerd.sock",
        r.not_empty,
    ),
    ConfigField("imageServiceEndpoint", d.string, ""),
    ConfigField("runtimeRequestTimeout", d.duration, 120.0, _PERIOD),
    _pointer("registryPullQPS", d.int32, 5, _NOT_NEGATIVE),
    ConfigField("registryBurst", d.int32, 10, _NOT_NEGATIVE),
    ConfigField(
        "imagePullCredentialsVerificationPolicy",
        d.string,
        "NeverVerifyPreloadedImages",
        r.one_of(
            "NeverVerify",
            "NeverVerifyPreloadedImages",
            "NeverVerifyAllowlistedImages",
            "AlwaysVerify",
        ),
    ),
    ConfigField("preloadedImagesVerificationAllowlist", _STRINGS, _NONE, r.image_patterns),
    _pointer("serializeImagePulls", d.boolean, True),
    _pointer("maxParallelImagePulls", d.int32, None, r.at_least(1)),
    ConfigField("imageMinimumGCAge", d.duration, 120.0, _PERIOD),
    ConfigField("imageMaximumGCAge", d.duration, 0.0, _PERIOD),
    _pointer("imageGCHighThresholdPercent", d.int32, 85, r.between(0, 100)),
    _pointer("imageGCLowThresholdPercent", d.int32, 80, r.between(0, 100)),
    _pointer(
        "crashLoopBackOff.maxContainerRestartPeriod", d.duration, 300.0, r.seconds_between(1, 300)
    ),
    _pointer("seccompDefault", d.boolean, False),
    ConfigField(
        "hairpinMode",
        d.string,
        "promiscuous-bridge",
        r.one_of("promiscuous-bridge", "hairpin-veth", "none"),
    ),
    ConfigField("podCIDR", d.string, "", r.cidr),
    _pointer("resolvConf", d.string, "/etc/resolv.conf"),
    ConfigField("clusterDomain", d.string, ""),
    ConfigField("clusterDNS", _STRINGS, _NONE),
    ConfigField("allowedUnsafeSysctls", _STRINGS, _NONE, r.sysctls),
    ConfigField("defaultPodSysctls", _STRING_MAP, _EMPTY, r.default_sysctls, since="1.37"),
    ConfigField(
        "volumePluginDir", d.string, "/usr/libexec/kubernetes/kubelet-plugins/volume/exec/"
    ),
    ConfigField("volumeStatsAggPeriod", d.duration, 60.0),
    _pointer("enableControllerAttachDetach", d.boolean, True),
    ConfigField(
        "configMapAndSecretChangeDetectionStrategy",
        d.string,
        "Watch",
        r.one_of("Get", "Cache", "Watch"),
    ),
    ConfigField("containerLogMaxSize", d.size, 10 * 1024**2),
    _pointer("containerLogMaxFiles", d.int32, 5, r.above(1)),
    _pointer("containerLogMaxWorkers", d.int32, 1, r.at_least(1)),
    _pointer("containerLogMonitorInterval", d.duration, 10.0, r.seconds_at_least(3)),
    _pointer("userNamespaces.idsPerPod", d.int64, 65536, r.between(65536, 2**32 - 1)),
)

_NODE = (
    _pointer("eventRecordQPS", d.int32, 50, _NOT_NEGATIVE),
    ConfigField("eventBurst", d.int32, 100, _NOT_NEGATIVE),
    _pointer("kubeAPIQPS", d.int32, 50, _NOT_NEGATIVE),
    ConfigField("kubeAPIBurst", d.int32, 100, _NOT_NEGATIVE),
    ConfigField("contentType", d.string, JSON_TYPE),
    ConfigField("nodeStatusUpdateFrequency", d.duration, 10.0, r.seconds_at_least(0.001)),
    ConfigField("nodeStatusReportFrequency", d.duration, 300.0, _PERIOD),
    ConfigField("nodeLeaseDurationSeconds", d.int32, 40, r.above(0)),
    _pointer("nodeStatusMaxImages", d.int32, 50, r.at_least(-1)),
    _pointer("registerNode", d.boolean, True),
    ConfigField("registerWithTaints", _TAINTS, _NONE, r.taints),
    ConfigField("providerID", d.string, ""),
    ConfigField("maxPods", d.int32, 110, _NOT_NEGATIVE),
    ConfigField("podsPerCore", d.int32, 0, _NOT_NEGATIVE),
    ConfigField("maxOpenFiles", d.int64, 1000000, _NOT_NEGATIVE),
    ConfigField("runOnce", d.boolean, False, r.must_be_false),
    ConfigField("featureGates", decode_gates, _EMPTY),
    ConfigField("shutdownGracePeriod", d.duration, 0.0, r.zero_or_at_least_second),
    ConfigField("shutdownGracePeriodCriticalPods", d.duration, 0.0, r.zero_or_at_least_second),
    ConfigField("shutdownGracePeriodByPodPriority", _PRIORITIES, _NONE),
    _pointer("makeIPTablesUtilChains", d.boolean, True),
    _pointer("iptablesMasqueradeBit", d.int32, 14, r.between(0, 31)),
    _pointer("iptablesDropBit", d.int32, 15, r.between(0, 31)),
    ConfigField("logging.format", d.string, "text", r.one_of("text", "json")),
    ConfigField("logging.flushFrequency", d.duration_or_nanoseconds, 5.0, r.seconds_at_least(1e-9)),
    ConfigField("logging.verbosity", d.uint32, 0, r.between(0, 2**31 - 1)),
    ConfigField("logging.vmodule", _VMODULE, _NONE),
    ConfigField("logging.options.text.splitStream", d.boolean, False),
    ConfigField("logging.options.text.infoBufferSize", d.size, 0),
    ConfigField("logging.options.json.splitStream", d.boolean, False),
    ConfigField("logging.options.json.infoBufferSize", d.size, 0),
)

_RESOURCES = (
    _pointer("oomScoreAdj", d.int32, -999, r.between(-1000, 1000)),
    ConfigField("kubeletCgroups", d.string, ""),
    ConfigField("systemCgroups", d.string, ""),
    ConfigField("cgroupRoot", d.string, ""),
    _pointer("cgroupsPerQOS", d.boolean, True),
    ConfigField("cgroupDriver", d.string, "cgroupfs", r.one_of("cgroupfs", "systemd")),
    _pointer("failCgroupV1", d.boolean, True),
    ConfigField("cpuManagerPolicy", d.string, "none", r.one_of("none", "static")),
    _pointer("singleProcessOOMKill", d.boolean, None),
    ConfigField(
        "cpuManagerPolicyOptions",
        _STRING_MAP,
        _EMPTY,
        r.option_names(
            "full-pcpus-only",
            "distribute-cpus-across-numa",
            "align-by-socket",
            "distribute-cpus-across-cores",
            "strict-cpu-reservation",
            "prefer-align-cpus-by-uncorecache",
        ),
    ),
    ConfigField("cpuManagerReconcilePeriod", d.duration, 10.0, _PERIOD),
    ConfigField("memoryManagerPolicy", d.string, "None", r.one_of("None", "Static")),
    ConfigField(
        "topologyManagerPolicy",
        d.string,
        "none",
        r.one_of("none", "best-effort", "restricted", "single-numa-node"),
    ),
    ConfigField("topologyManagerScope", d.string, "container", r.one_of("container", "pod")),
    ConfigField(
        "topologyManagerPolicyOptions",
        _STRING_MAP,
        _EMPTY,
        r.option_names("prefer-closest-numa-nodes", "max-allowable-numa-nodes"),
    ),
    ConfigField("qosReserved", d.map_of(d.percent, ("memory",)), _EMPTY),
    _pointer("podPidsLimit", d.int64, -1),
    _pointer("cpuCFSQuota", d.boolean, True),
    _pointer("cpuCFSQuotaPeriod", d.duration, 0.1, r.seconds_between(0.001, 1)),
    ConfigField("evictionHard", d.map_of(d.threshold, SIGNALS), DEFAULT_EVICTION_HARD),
    ConfigField("evictionSoft", d.map_of(d.threshold, SIGNALS), _EMPTY),
    ConfigField("evictionSoftGracePeriod", d.map_of(d.grace, SIGNALS), _EMPTY),
    ConfigField("evictionPressureTransitionPeriod", d.duration, 300.0, _PERIOD),
    ConfigField("evictionMaxPodGracePeriod", d.int32, 0),
    ConfigField("evictionMinimumReclaim", d.map_of(d.reclaim, SIGNALS), _EMPTY),
    _pointer("mergeDefaultEvictionSettings", d.boolean, False),
    ConfigField("protectKernelDefaults", d.boolean, False),
    _pointer("failSwapOn", d.boolean, True),
    ConfigField("memorySwap.swapBehavior", d.string, "", r.one_of("", "NoSwap", "LimitedSwap")),
    ConfigField("systemReserved", _RESERVED, _EMPTY),
    ConfigField("kubeReserved", _RESERVED, _EMPTY),
    ConfigField("reservedSystemCPUs", d.string, "", r.cpuset),
    ConfigField("systemReservedCgroup", d.string, ""),
    ConfigField("kubeReservedCgroup", d.string, ""),
    ConfigField("enforceNodeAllocatable", _STRINGS, ("pods",), r.enforcement),
    ConfigField("kernelMemcgNotification", d.boolean, False),
    ConfigField("reservedMemory", _MEMORY, _NONE, r.memory_reservations),
    ConfigField(
        "memoryThrottlingFactor",
        d.number,
        None,
        r.between(1e-9, 1),
        pointer=True,
        earlier=MappingProxyType({"1.35": 0.9, "1.36": 0.9}),
    ),
    ConfigField(
        "memoryReservationPolicy",
        d.string,
        "None",
        r.one_of("None", "TieredReservation"),
        since="1.36",
    ),
    _pointer("localStorageCapacityIsolation", d.boolean, True),
)

FIELDS: Mapping[str, ConfigField] = MappingProxyType(
    {field.path: field for field in (*_SERVER, *_IMAGES_AND_RUNTIME, *_NODE, *_RESOURCES)}
)
"""Every field of the document in the newest version by its path."""


@cache
def known_fields(version: KubernetesVersion) -> Mapping[str, ConfigField]:
    """The fields that a version has, with its defaults."""
    return MappingProxyType(
        {
            path: replace(field, default=field.earlier.get(str(version), field.default))
            for path, field in FIELDS.items()
            if within(version, since=field.since)
        }
    )
