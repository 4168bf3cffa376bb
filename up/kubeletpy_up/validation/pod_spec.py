"""A pod's spec as a whole."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kubeletpy_up.schema import formats
from kubeletpy_up.validation import amounts, containers, metadata, scheduling, security, volumes

if TYPE_CHECKING:
    from kubeletpy.base.api.types import JSON
    from kubeletpy_up.validation.report import Report

_RESTART_POLICIES = ("Always", "OnFailure", "Never")
_DNS_POLICIES = ("ClusterFirstWithHostNet", "ClusterFirst", "Default", "None")
_PREEMPTION = ("Never", "PreemptLowerPriority")
_OS_NAMES = ("linux", "windows")
_MAX_INT32 = 2**31 - 1
_MAX_NAMESERVERS = 3
_MAX_SEARCHES = 32
_MAX_SEARCH_CHARS = 2048
_MAX_HOSTNAME = 64


def validate(report: Report, pod: JSON) -> None:
    """Metadata and spec of a defaulted pod."""
    metadata.validate(report, pod, namespaced=True)
    spec = pod.get("spec") or {}
    _containers(report, spec)
    _host_network(report, spec)
    report.one_of("spec.restartPolicy", spec.get("restartPolicy"), _RESTART_POLICIES)
    report.one_of("spec.dnsPolicy", spec.get("dnsPolicy"), _DNS_POLICIES)
    metadata.labels(report, spec.get("nodeSelector"), "spec.nodeSelector")
    security.pod(report, spec, "spec.securityContext")
    scheduling.affinity(report, spec.get("affinity") or {}, "spec.affinity")
    _dns(report, spec.get("dnsConfig"), spec.get("dnsPolicy"), "spec.dnsConfig")
    _names(report, spec)
    _hostname_override(report, spec)
    _numbers(report, spec)
    scheduling.tolerations(report, spec.get("tolerations") or [], "spec.tolerations")
    constraints = spec.get("topologySpreadConstraints") or []
    scheduling.spread(report, constraints, "spec.topologySpreadConstraints")
    _lists(report, spec)


def _containers(report: Report, spec: JSON) -> None:
    claims = {claim.get("name", "") for claim in spec.get("resourceClaims") or ()}
    facts = containers.PodFacts(
        volumes=volumes.validate(report, spec.get("volumes") or [], "spec.volumes"),
        claims=claims,
        grace=spec.get("terminationGracePeriodSeconds") or 0,
        restart_policy=spec.get("restartPolicy") or "",
        host_users=spec.get("hostUsers") is not False,
    )
    regular = spec.get("containers") or []
    init = spec.get("initContainers") or []
    names = {container.get("name") or "" for container in regular}
    containers.regular(report, regular, "spec.containers", facts)
    containers.init(report, init, "spec.initContainers", facts, names)
    names |= {container.get("name") or "" for container in init}
    ephemeral = spec.get("ephemeralContainers") or []
    containers.ephemeral(report, ephemeral, "spec.ephemeralContainers", facts, names)
    if spec.get("resources"):
        amounts.requirements(report, spec["resources"], "spec.resources", claims)
        amounts.consistency(report, spec)


def _host_network(report: Report, spec: JSON) -> None:
    if not spec.get("hostNetwork"):
        return
    for index, container in enumerate(spec.get("containers") or ()):
        for number, port in enumerate(container.get("ports") or ()):
            if (port.get("hostPort") or 0) != (port.get("containerPort") or 0):
                report.invalid(
                    f"spec.containers[{index}].ports[{number}].hostPort",
                    port.get("hostPort") or 0,
                    "must match `containerPort` when `hostNetwork` is true",
                )


def _dns(report: Report, config: JSON | None, policy: str | None, path: str) -> None:
    if policy == "None":
        if config is None:
            report.required(path, "must provide `dnsConfig` when `dnsPolicy` is None")
            return
        if not config.get("nameservers"):
            detail = "must provide at least one DNS nameserver when `dnsPolicy` is None"
            report.required(f"{path}.nameservers", detail)
            return
    if config is None:
        return
    servers, searches = config.get("nameservers") or [], config.get("searches") or []
    if len(servers) > _MAX_NAMESERVERS:
        detail = f"must not have more than {_MAX_NAMESERVERS} nameservers"
        report.invalid(f"{path}.nameservers", servers, detail)
    for index, server in enumerate(servers):
        report.all_invalid(f"{path}.nameservers[{index}]", server, formats.ip_address(server))
    if len(searches) > _MAX_SEARCHES:
        detail = f"must not have more than {_MAX_SEARCHES} search paths"
        report.invalid(f"{path}.searches", searches, detail)
    if len(" ".join(searches)) > _MAX_SEARCH_CHARS:
        detail = (
            f"must not have more than {_MAX_SEARCH_CHARS} characters (including spaces) in the "
            "search list"
        )
        report.invalid(f"{path}.searches", searches, detail)
    for index, search in enumerate(searches):
        if search != ".":
            plain = search.removesuffix(".")
            details = formats.search_domain(plain)
            report.all_invalid(f"{path}.searches[{index}]", plain, details)
    for index, option in enumerate(config.get("options") or ()):
        if not option.get("name"):
            report.required(f"{path}.options[{index}]", "must not be empty")


def _names(report: Report, spec: JSON) -> None:
    for key in ("serviceAccountName", "nodeName", "priorityClassName", "runtimeClassName"):
        value = spec.get(key)
        if value:
            report.all_invalid(f"spec.{key}", value, formats.dns_subdomain(value))
    for key in ("hostname", "subdomain"):
        if spec.get(key):
            report.all_invalid(f"spec.{key}", spec[key], formats.dns_label(spec[key]))
    if spec.get("preemptionPolicy") is not None:
        report.one_of("spec.preemptionPolicy", spec["preemptionPolicy"], _PREEMPTION)
    if spec.get("os") is not None:
        report.one_of("spec.os.name", spec["os"].get("name"), _OS_NAMES)
    if not spec.get("serviceAccountName"):
        for index, volume in enumerate(spec.get("volumes") or ()):
            for number, source in enumerate((volume.get("projected") or {}).get("sources") or ()):
                if source.get("serviceAccountToken") is not None:
                    where = f"spec.volumes[{index}].projected.sources[{number}]"
                    detail = "must not be specified when serviceAccountName is not set"
                    report.forbidden(f"{where}.serviceAccountToken", detail)


def _hostname_override(report: Report, spec: JSON) -> None:
    """KEP-4762: a name of its own, which no other field decides."""
    name, path = spec.get("hostnameOverride"), "spec.hostnameOverride"
    if name is None:
        return
    if spec.get("setHostnameAsFQDN"):
        report.forbidden(path, "may not be specified when setHostnameAsFQDN is true")
    if spec.get("hostNetwork"):
        report.forbidden(path, "may not be specified when hostNetwork is true")
    if len(name) > _MAX_HOSTNAME:
        report.too_long(path, _MAX_HOSTNAME)
    report.all_invalid(path, name, formats.dns_subdomain(name))


def _numbers(report: Report, spec: JSON) -> None:
    deadline = spec.get("activeDeadlineSeconds")
    if deadline is not None:
        details = formats.in_range(deadline, 1, _MAX_INT32)
        report.all_invalid("spec.activeDeadlineSeconds", deadline, details)
    for name, amount in (spec.get("overhead") or {}).items():
        amounts.quantity(report, amount, f"spec.overhead[{name}]")


def _lists(report: Report, spec: JSON) -> None:
    for index, alias in enumerate(spec.get("hostAliases") or ()):
        address = alias.get("ip") or ""
        report.all_invalid(f"spec.hostAliases[{index}].ip", address, formats.ip_address(address))
        for number, host in enumerate(alias.get("hostnames") or ()):
            where = f"spec.hostAliases[{index}].hostnames[{number}]"
            report.all_invalid(where, host, formats.dns_subdomain(host))
    for index, gate in enumerate(spec.get("readinessGates") or ()):
        kind = gate.get("conditionType") or ""
        where = f"spec.readinessGates[{index}].conditionType"
        report.all_invalid(where, kind, formats.qualified_name(kind))
    seen: set[str] = set()
    for index, gate in enumerate(spec.get("schedulingGates") or ()):
        name, where = gate.get("name") or "", f"spec.schedulingGates[{index}]"
        report.all_invalid(where, name, formats.qualified_name(name))
        if name in seen:
            report.duplicate(where, name)
        seen.add(name)
