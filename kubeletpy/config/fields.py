"""The table of all fields of KubeletConfiguration v1beta1: path, type, default, what is allowed.

Pure.

Source: docs/reference/config.csv. Must stay data: rules about several fields are in
:mod:`kubeletpy.config.load`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cache
from types import MappingProxyType
from typing import Any

from kubeletpy.base.kubernetes_version import KubernetesVersion, within
from kubeletpy.base.structs import Struct, replace
from kubeletpy.config import decoders as d
from kubeletpy.config import rules as r
from kubeletpy.config.gates import decode_gates
from kubeletpy.config.generated import tables
from kubeletpy.config.problems import ProblemReport
from kubeletpy.config.settings import MemoryReservation, ShutdownPriority, Taint, VModule

API_VERSION = "kubelet.config.k8s.io/v1beta1"
KIND = "KubeletConfiguration"
JSON_TYPE = "application/json"
PROTOBUF = "application/vnd.kubernetes.protobuf"
"""Formats of requests to the API. JSON is the default: it is parsed in C."""

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
        MemoryReservation, {"numaNode": (d.int32, 0), "limits": (d.map_of(d.quantity_text), ...)}
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
    rule: r.Rule | None
    pointer: bool
    earlier: Mapping[str, Any]
    since: str


def _previous_version(value: object, at: str, report: ProblemReport) -> str | None:
    """Read a text that is empty or the version before the one that is run."""
    text: str | None = d.string(value, at, report)
    previous = f"1.{report.version.minor - 1}"
    if text not in (None, "", previous):
        report.add(at, value, f"must be {previous} or empty")
    return text


_RESERVED = d.map_of(d.quantity_text, RESERVABLE)
_PERIOD = r.seconds_at_least(0)
_OWN: Mapping[str, Mapping[str, Any]] = {
    "podLogsDir": {"rule": r.log_directory},
    "syncFrequency": {"rule": r.seconds_at_least(0.001)},
    "tlsCipherSuites": {"rule": r.each_one_of(*TLS_CIPHER_SUITES)},
    "showHiddenMetricsForVersion": {"decode": _previous_version},
    "tracing.endpoint": {"rule": r.tracing_endpoint},
    "containerRuntimeEndpoint": {"rule": r.not_empty},
    "runtimeRequestTimeout": {"rule": _PERIOD},
    "preloadedImagesVerificationAllowlist": {"rule": r.image_patterns},
    "podCIDR": {"rule": r.cidr},
    "allowedUnsafeSysctls": {"rule": r.sysctls},
    "defaultPodSysctls": {"rule": r.default_sysctls},
    "nodeStatusUpdateFrequency": {"rule": r.seconds_at_least(0.001)},
    "nodeStatusReportFrequency": {"rule": _PERIOD},
    "registerWithTaints": {"decode": _TAINTS, "rule": r.taints},
    "runOnce": {"rule": r.must_be_false},
    "featureGates": {"decode": decode_gates},
    "shutdownGracePeriod": {"rule": r.zero_or_at_least_second},
    "shutdownGracePeriodCriticalPods": {"rule": r.zero_or_at_least_second},
    "shutdownGracePeriodByPodPriority": {"decode": _PRIORITIES},
    "logging.flushFrequency": {"rule": r.seconds_at_least(1e-9)},
    "logging.vmodule": {"decode": _VMODULE},
    "cpuManagerReconcilePeriod": {"rule": _PERIOD},
    "qosReserved": {"decode": d.map_of(d.percent, ("memory",))},
    "evictionHard": {"decode": d.map_of(d.threshold, SIGNALS)},
    "evictionSoft": {"decode": d.map_of(d.threshold, SIGNALS)},
    "evictionSoftGracePeriod": {"decode": d.map_of(d.grace, SIGNALS)},
    "evictionPressureTransitionPeriod": {"rule": _PERIOD},
    "evictionMinimumReclaim": {"decode": d.map_of(d.reclaim, SIGNALS)},
    "systemReserved": {"decode": _RESERVED},
    "kubeReserved": {"decode": _RESERVED},
    "reservedSystemCPUs": {"rule": r.cpuset},
    "enforceNodeAllocatable": {"rule": r.enforcement},
    "reservedMemory": {"decode": _MEMORY, "rule": r.memory_reservations},
    "memoryThrottlingFactor": {"rule": r.between(1e-9, 1)},
}
"""Decoders and rules that are code, by path."""

_DECODERS: Mapping[str, d.Decoder] = {
    "bool": d.boolean,
    "string": d.string,
    "int32": d.int32,
    "int64": d.int64,
    "uint32": d.uint32,
    "float64": d.number,
    "duration": d.duration,
    "duration or int ns": d.duration_or_nanoseconds,
    "quantity": d.size,
    "[]string": d.list_of(d.string),
    "[]int32": d.list_of(d.int32),
    "map[string]string": d.map_of(d.string),
    "map[string][]string": d.map_of(d.list_of(d.string)),
}
_RULES: Mapping[str, Callable[..., r.Rule]] = {
    "above": r.above,
    "at_least": r.at_least,
    "between": r.between,
    "ip_address": lambda: r.ip_address,
    "one_of": r.one_of,
    "option_names": r.option_names,
    "seconds_at_least": r.seconds_at_least,
    "seconds_between": r.seconds_between,
}


def _fields() -> Iterator[ConfigField]:
    for path, kind, default, rule, since, earlier in tables.FIELDS:
        own = _OWN.get(path, {})
        yield ConfigField(
            path,
            own.get("decode") or _DECODERS[kind.lstrip("*")],
            MappingProxyType(dict(default)) if kind.startswith("map") else default,
            own.get("rule") or (_RULES[rule[0]](*rule[1:]) if rule else None),
            kind.startswith("*"),
            MappingProxyType(dict(earlier)),
            since,
        )


FIELDS: Mapping[str, ConfigField] = MappingProxyType({field.path: field for field in _fields()})
"""Every field of the document in the newest version by its path."""
DEFAULT_EVICTION_HARD: Mapping[str, str] = FIELDS["evictionHard"].default


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
