"""From documents to settings and back: strict reading, merging drop-ins, building. Pure.

The schema is :data:`kubeletpy.config.fields.FIELDS`. Unknown fields and duplicates are dropped with
a warning, as the kubelet reads v1beta1. A node starts even if its file is for a newer kubelet or
has a misspelt name; the log states what was dropped.
"""

from __future__ import annotations

import json
import posixpath
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import yaml
from msgspec import Struct, structs

from kubeletpy.base.api.quantity import spelled
from kubeletpy.base.api.times import format_duration
from kubeletpy.base.kubernetes_version import KubernetesVersion
from kubeletpy.base.structs import replace
from kubeletpy.base.text import nearest, snake_case
from kubeletpy.config import decoders, gates
from kubeletpy.config.decoders import unknown
from kubeletpy.config.fields import (
    API_VERSION,
    DEFAULT_EVICTION_HARD,
    FIELDS,
    KIND,
    ConfigField,
    known_fields,
)
from kubeletpy.config.gates import FeatureGates
from kubeletpy.config.problems import MASKED, ProblemReport, TooDeep, check_depth
from kubeletpy.config.rules import host_address
from kubeletpy.config.settings import GROUPS, KubeletSettings, value_at

Document = dict[str, Any]

_BRANCHES = frozenset(
    path.rsplit(".", depth)[0] for path in FIELDS for depth in range(1, path.count(".") + 1)
)
PATHS = ("staticPodPath", "tlsCertFile", "tlsPrivateKeyFile", "resolvConf", "volumePluginDir")
"""Fields that may hold a relative path; authentication.x509.clientCAFile is another."""
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def parse(
    text: str,
    report: ProblemReport,
    *,
    versions: tuple[str, ...] = (API_VERSION,),
    kind: str = KIND,
) -> Document:
    """Read one YAML or JSON document; reports syntax errors, duplicate keys and a wrong kind."""
    try:
        check_depth(text, _Loader)
        node = yaml.compose(text, _Loader)
        duplicates = _duplicate_keys(node, "")
        value = yaml.load(text, _Loader)
    except yaml.YAMLError as error:
        report.add("(document)", None, f"is not YAML or JSON: {error}", missing=True)
        return {}
    except TooDeep as error:
        report.add("(document)", None, str(error), missing=True)
        return {}
    if not isinstance(value, dict):
        report.add("(document)", None, "must be an object", missing=True)
        return {}
    for path in duplicates:
        report.drop(path, None, "is given twice", missing=True, then="the last value holds")
    for name, desired in (("apiVersion", versions), ("kind", (kind,))):
        if name not in value:
            report.add(name, None, f"is required: {' or '.join(desired)}", missing=True)
        elif value[name] not in desired:
            report.add(name, value[name], f"must be {' or '.join(desired)}")
    return value


def _duplicate_keys(node: yaml.Node | None, path: str) -> list[str]:
    found: list[str] = []
    if isinstance(node, yaml.MappingNode):
        seen = set()
        for key, value in node.value:
            name = f"{path}.{key.value}" if path else str(key.value)
            if name in seen:
                found.append(name)
            seen.add(name)
            found += _duplicate_keys(value, name)
    elif isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            found += _duplicate_keys(item, f"{path}[{index}]")
    return found


def leaves(document: Document, report: ProblemReport, *, prefix: str = "") -> dict[str, Any]:
    """The document's fields by path; unknown ones are reported, null ones left out."""
    found: dict[str, Any] = {}
    for name, value in document.items():
        path = f"{prefix}{name}"
        if path in ("apiVersion", "kind"):
            continue
        if path in known_fields(report.version):
            if value is not None:
                found[path] = value
        elif path in _BRANCHES:
            if isinstance(value, dict):
                found.update(leaves(value, report, prefix=f"{path}."))
            elif value is not None:
                report.add(path, value, "must be an object")
        elif path in FIELDS:
            why = f"does not exist in Kubernetes {report.version}; new in {FIELDS[path].since}"
            report.drop(path, value, why)
        else:
            report.drop(path, value, _no_such_field(str(name), prefix))
    return found


def _no_such_field(name: str, prefix: str) -> str:
    inside = [path[len(prefix) :].split(".")[0] for path in FIELDS if path.startswith(prefix)]
    message = unknown(name, inside)
    if "did you mean" not in message:
        last = {path.rpartition(".")[2]: path for path in FIELDS}
        if near := nearest(name, last, cutoff=0.8):
            message += f"; did you mean {last[near]}?"
    return message


def without_zeros(found: Mapping[str, Any]) -> dict[str, Any]:
    """Drop zeros where a zero in a file means "not set" (``syncFrequency: 0s``)."""
    zeros = (0, "", "0", "0s")
    return {
        path: value
        for path, value in found.items()
        if FIELDS[path].pointer
        or isinstance(value, bool | list | dict)
        or value not in zeros
        or FIELDS[path].default in (None, *zeros)
    }


def decode(found: Mapping[str, Any], report: ProblemReport) -> dict[str, Any]:
    """Decode fields by the field table; bad ones are reported and omitted."""
    values: dict[str, Any] = {}
    for path, raw in found.items():
        value = _decode_one(FIELDS[path], raw, report)
        if path not in report.bad:
            values[path] = value
    return values


def _decode_one(field: ConfigField, raw: object, report: ProblemReport) -> Any:
    report.field = field.path
    value = field.decode(raw, field.path, report)
    if field.path not in report.bad and field.rule and (allowed := field.rule(value)):
        report.add(field.path, raw, allowed)
    report.field = ""
    return value


def build(values: Mapping[str, Any], version: KubernetesVersion) -> KubeletSettings:
    """Fill in every default and make the settings object.

    Args:
        values: decoded values of the fields the user set.
        version: the Kubernetes version whose defaults apply.
    """
    fields = {**FIELDS, **known_fields(version)}  # a field of another version has its default
    full = {path: values.get(path, field.default) for path, field in fields.items()}
    full["featureGates"] = gates.resolve(full["featureGates"], version)
    for group, make in GROUPS.items():
        members = [path for path in full if path.rpartition(".")[0] == group]
        full[group] = make(**{snake_case(path.rpartition(".")[2]): full[path] for path in members})
        for path in members:
            del full[path]
    settings: KubeletSettings = KubeletSettings(
        **{snake_case(path): value for path, value in full.items()}
    )
    return settings


def derive(
    settings: KubeletSettings,
    explicit: frozenset[str],
    *,
    base_dir: str,
    by_flag: frozenset[str] = frozenset(),
) -> tuple[KubeletSettings, list[str]]:
    """Values derived from others, with warnings (notes in docs/reference/config.csv).

    Relative paths in a file are relative to its directory, ``base_dir``; those in a flag are not.
    """
    changes: dict[str, Any] = {}
    warnings = []
    if "nodeStatusReportFrequency" not in explicit and "nodeStatusUpdateFrequency" in explicit:
        changes["node_status_report_frequency"] = settings.node_status_update_frequency
    if "serializeImagePulls" not in explicit and settings.max_parallel_image_pulls not in (None, 1):
        changes["serialize_image_pulls"] = False
    longest_delay = "crashLoopBackOff.maxContainerRestartPeriod"
    reduced = settings.feature_gates.enabled("ReduceDefaultCrashLoopBackOffDecay")
    if reduced and longest_delay not in explicit:
        delays = replace(settings.crash_loop_back_off, max_container_restart_period=60.0)
        changes["crash_loop_back_off"] = delays
    if settings.cgroups_per_qos and not settings.cgroup_root:
        changes["cgroup_root"] = "/"
    if settings.pod_pids_limit < 0:
        changes["pod_pids_limit"] = -1
    if settings.merge_default_eviction_settings:
        merged = {**DEFAULT_EVICTION_HARD, **settings.eviction_hard}
        changes["eviction_hard"] = MappingProxyType(merged)
    for path in PATHS:
        name = snake_case(path)
        here = getattr(settings, name)
        if here and path not in by_flag:
            changes[name] = posixpath.join(base_dir, here)
    ca = settings.authentication.x509.client_ca_file
    if ca and "authentication.x509.clientCAFile" not in by_flag:
        x509 = replace(settings.authentication.x509, client_ca_file=posixpath.join(base_dir, ca))
        changes["authentication"] = replace(settings.authentication, x509=x509)
    good: list[str] = []
    bad: list[str] = []
    for server in settings.cluster_dns:
        try:
            good.append(str(host_address(server)))
        except ValueError:
            bad.append(server)
    changes["cluster_dns"] = tuple(good)
    if bad:
        warnings.append(f"clusterDNS: not an IP address, skipped: {', '.join(bad)}")
    warnings += gates.warnings(settings.feature_gates)
    return replace(settings, **changes), warnings


# The document of settings, as ``/configz`` shows it. Request headers may hold credentials: masked.


def document(settings: KubeletSettings) -> dict[str, Any]:
    """The settings as a complete document; reading it back gives the same settings.

    Fields that are None stay out. Values of ``staticPodURLHeader`` are ``<masked>``.
    """
    result: dict[str, Any] = {"apiVersion": API_VERSION, "kind": KIND}
    for field in known_fields(settings.feature_gates.version).values():
        value = value_at(settings, field.path)
        if value is None:
            continue
        *groups, name = field.path.split(".")
        place = result
        for group in groups:
            place = place.setdefault(group, {})
        place[name] = _encode(field, value)
    return result


def text_for_log(settings: KubeletSettings) -> str:
    """The complete document as JSON, without secrets: also none that the URL of manifests holds."""
    reported = document(settings)
    if url := reported.get("staticPodURL"):
        parts = urlsplit(url)
        host = parts.netloc.rpartition("@")[2]
        hidden = "<masked>@" if host != parts.netloc else ""
        query = "<masked>" if parts.query else ""
        reported["staticPodURL"] = urlunsplit(
            (parts.scheme, hidden + host, parts.path, query, parts.fragment)
        )
    return json.dumps(reported, ensure_ascii=False)


def _encode(field: ConfigField, value: Any) -> Any:
    if field.path in MASKED:
        return {key: ["<masked>"] * len(each) for key, each in value.items()}
    if field.decode in (decoders.duration, decoders.duration_or_nanoseconds):
        return format_duration(value)
    if field.decode is decoders.size:
        return spelled(value, binary=True)
    if field.path == "evictionSoftGracePeriod":
        return {key: format_duration(each) for key, each in value.items()}
    return _plain(value)


def _plain(value: Any) -> Any:
    if isinstance(value, FeatureGates):
        return dict(value.explicit)
    if isinstance(value, Mapping):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, tuple):
        return [_plain(each) for each in value]
    if isinstance(value, Struct):
        pairs = structs.asdict(value).items()
        return {_camel(name): _plain(each) for name, each in pairs if each != ""}
    return value


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)
