"""The CRI config of a pod's sandbox, with the resolver configuration of the pod. Pure.

Must never promise what the runtime would refuse: a sandbox on the host network has no hostname of
its own. Must never read the host's resolv.conf: its text is an argument.

Source: docs/reference/names.csv: cri-label, cri-annotation, cri-metadata;
docs/reference/behaviour.md, j2, i11.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kubeletpy.base.api import types as api
from kubeletpy.base.api.names import namespace_of, normalize, shared_namespaces
from kubeletpy.base.host.errors import Cause, CauseKind
from kubeletpy.base.structs import Struct, replace
from kubeletpy.kubeapi.events.reasons import Reason
from kubeletpy.pods.pod import HostnameError, Pod, is_sidecar, kernel_hostname
from kubeletpy.pods.resources import pod_limits, pod_requests
from kubeletpy.pods.runtime_status import SandboxConfigError
from kubeletpy.pods.shape import unknown_value
from kubeletpy.remote.generated import api_pb2 as cri
from kubeletpy.runtime_manager.config.resources import linux_resources, overhead_resources
from kubeletpy.runtime_manager.config.security_context import groups_policy, selinux_options
from kubeletpy.runtime_manager.config.settings import (
    RuntimeSettings,
    UserNamespaceRange,
    namespace_options,
    requests_user_namespace,
)
from kubeletpy.runtime_manager.names import UnsafeName, pod_log_directory, sandbox_labels

# The resolver configuration, which the runtime writes into the pod's resolv.conf

MAX_NAMESERVERS = 3
MAX_SEARCHES = 32
MAX_SEARCH_CHARS = 2048
MAX_SEARCH_ITEM = 253
NO_SEARCH = (".",)
"""Search domains of a pod that looks up no names on the network."""
_LINK_LOCAL = ipaddress.IPv6Network("fe80::/10")
_CLUSTER_OPTIONS = ("ndots:5",)


class ResolvConfError(SandboxConfigError):
    """The host's resolv.conf cannot be used."""

    cause = Cause(CauseKind.RESOLV_CONF)


class ResolverConfig(Struct, frozen=True):
    """The contents of a resolv.conf: name servers, search domains and options."""

    servers: tuple[str, ...] = ()
    searches: tuple[str, ...] = ()
    options: tuple[str, ...] = ()


class DNSWarning(Struct, frozen=True):
    """A problem to report to the pod's owner as an event."""

    reason: Reason
    """DNSConfigForming or MissingClusterDNS."""
    message: str


def parse_resolv_conf(text: str) -> ResolverConfig:
    """Read a resolv.conf: name servers add up, the last search line wins, options by name.

    Raises:
        ResolvConfError: a nameserver line names no server, or the text is not that of a
            resolv.conf.
    """
    if "\0" in text:
        raise ResolvConfError("it is not a text file")
    servers: list[str] = []
    searches: list[str] = []
    options: dict[str, str] = {}
    for line in text.split("\n"):
        fields = line.split()
        if not fields:
            continue
        keyword, *values = fields
        if keyword == "nameserver":
            if not values:
                raise ResolvConfError("a nameserver line names no server")
            servers.append(values[0])
        elif keyword == "search":
            searches = [value.removesuffix(".") for value in values if value != "."]
        elif keyword == "options":
            for value in values:
                options[value.partition(":")[0]] = value
    return ResolverConfig(tuple(servers), tuple(searches), tuple(options.values()))


def needs_host_dns(pod: Pod) -> bool:
    """Whether the pod's resolver configuration takes anything from the host's."""
    return pod.spec.get("dnsPolicy") != "None"


def pod_dns(
    pod: Pod, settings: RuntimeSettings, host: ResolverConfig | None
) -> tuple[ResolverConfig, tuple[DNSWarning, ...]]:
    """The pod's resolver configuration within the limits of resolvers, and what was cut.

    ``host`` is the host's configuration; None when the agent is configured to use no resolv.conf.
    """
    warnings: list[DNSWarning] = []
    policy = pod.spec.get("dnsPolicy") or "ClusterFirst"
    if policy == "None":
        config = ResolverConfig()
    elif policy == "Default" or (policy == "ClusterFirst" and pod.host_network):
        config = _host_dns(settings, host)
    elif settings.cluster_dns:
        config = _cluster_dns(pod, settings, host)
    elif settings.no_cluster_dns:
        config = _host_dns(settings, host)
    else:
        warnings.append(
            DNSWarning(
                Reason.MISSING_CLUSTER_DNS,
                f'pod: "{pod.description}". kubelet does not have ClusterDNS IP configured and '
                'cannot create Pod using "ClusterFirst" policy. Falling back to "Default" policy.',
            )
        )
        config = _host_dns(settings, host)
    extra = pod.spec.get("dnsConfig")
    if extra:
        config = _append(config, extra)
    if not pod.host_network:
        config = _without_zones(config, warnings)
    return _within_limits(config, warnings), tuple(warnings)


def _host_dns(settings: RuntimeSettings, host: ResolverConfig | None) -> ResolverConfig:
    if host is not None:
        return host
    servers = tuple("::1" if ":" in ip else "127.0.0.1" for ip in settings.node_ips)
    return ResolverConfig(servers or ("127.0.0.1",), NO_SEARCH, ())


def _cluster_dns(
    pod: Pod, settings: RuntimeSettings, host: ResolverConfig | None
) -> ResolverConfig:
    searches: tuple[str, ...] = host.searches if host is not None else ()
    domain = settings.cluster_domain
    if domain:
        own = (f"{pod.namespace}.svc.{domain}", f"svc.{domain}", domain)
        searches = _unique((*own, *searches))
    return ResolverConfig(settings.cluster_dns, searches, _CLUSTER_OPTIONS)


def _append(config: ResolverConfig, extra: api.PodDNSConfig) -> ResolverConfig:
    options = {option.partition(":")[0]: option for option in config.options}
    for item in extra.get("options") or ():
        name, value = item.get("name") or "", item.get("value")
        options[name] = f"{name}:{value}" if value else name
    return ResolverConfig(
        _unique((*config.servers, *(extra.get("nameservers") or ()))),
        _unique((*config.searches, *(extra.get("searches") or ()))),
        tuple(options.values()),
    )


def _without_zones(config: ResolverConfig, warnings: list[DNSWarning]) -> ResolverConfig:
    """Leave out link-local name servers with a zone: it names an interface of the host.

    Runtimes copy the host's file for a pod without any DNS settings, so some have to remain.
    Source: kubernetes/kubernetes#140844.
    """
    servers = tuple(server for server in config.servers if not _is_link_local_with_zone(server))
    if servers or not config.servers:
        return replace(config, servers=servers)
    warnings.append(
        DNSWarning(
            Reason.DNS_CONFIG_FORMING,
            "All name servers are link-local addresses of an interface of the host, which the pod "
            f"does not have: {' '.join(config.servers)}. They were left out. Add another name "
            "server to the host's resolv.conf or to dnsConfig of the pod.",
        )
    )
    return replace(config, servers=(), searches=config.searches or NO_SEARCH)


def _is_link_local_with_zone(server: str) -> bool:
    address, has_zone, _ = server.partition("%")
    try:
        return bool(has_zone) and ipaddress.IPv6Address(address) in _LINK_LOCAL
    except ValueError:
        return False


def _within_limits(config: ResolverConfig, warnings: list[DNSWarning]) -> ResolverConfig:
    servers = config.servers
    if len(servers) > MAX_NAMESERVERS:
        servers = servers[:MAX_NAMESERVERS]
        warnings.append(
            DNSWarning(
                Reason.DNS_CONFIG_FORMING,
                "Nameserver limits were exceeded, some nameservers have been omitted, the applied "
                f"nameserver line is: {' '.join(servers)}",
            )
        )
    searches = tuple(
        search for search in config.searches[:MAX_SEARCHES] if len(search) <= MAX_SEARCH_ITEM
    )
    while len(" ".join(searches)) > MAX_SEARCH_CHARS:
        searches = searches[:-1]
    if len(searches) < len(config.searches):
        warnings.append(
            DNSWarning(
                Reason.DNS_CONFIG_FORMING,
                "Search Line limits were exceeded, some search paths have been omitted, the "
                f"applied search line is: {' '.join(searches)}",
            )
        )
    return ResolverConfig(servers, searches, config.options)


def _unique(items: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(items))


MAX_METADATA = (256 << 10) + 1024
"""Bytes of a pod's labels, and of its annotations, counting names and values: what the API server
allows for annotations, plus room for what the agent adds. The runtime shows them with every sandbox
in a list.
"""
_PROTOCOLS = {"TCP": cri.TCP, "UDP": cri.UDP, "SCTP": cri.SCTP}


def build_pod_sandbox_config(
    pod: Pod,
    attempt: int,
    settings: RuntimeSettings,
    dns: ResolverConfig,
    *,
    cgroup_parent: str = "",
    extra_groups: Sequence[int] = (),
    userns: UserNamespaceRange | None = None,
) -> cri.PodSandboxConfig:
    """The config for RunPodSandbox.

    ``dns`` comes from :func:`kubeletpy.runtime_manager.config.sandbox_config.pod_dns`;
    ``extra_groups`` are those of the pod's persistent volumes.

    Raises:
        SandboxConfigError: the spec requests something impossible; the message names the field.
    """
    try:
        if problem := unknown_value(pod):
            raise SandboxConfigError(f"pod {pod.key} has a malformed field: {problem}")
        config = cri.PodSandboxConfig(
            metadata=cri.PodSandboxMetadata(
                name=pod.name, namespace=pod.namespace, uid=pod.uid, attempt=attempt
            ),
            hostname="" if pod.host_network else kernel_hostname(pod, settings.cluster_domain),
            log_directory=pod_log_directory(
                settings.pod_logs_dir, pod.namespace, pod.name, pod.uid
            ),
            dns_config=cri.DNSConfig(
                servers=dns.servers, searches=dns.searches, options=dns.options
            ),
            port_mappings=() if pod.host_network else list(_port_mappings(pod)),
            labels=sandbox_labels(pod),
            annotations=pod.annotations,
            linux=_linux(pod, settings, cgroup_parent, extra_groups, userns),
        )
    except (HostnameError, UnsafeName) as error:
        raise SandboxConfigError(str(error)) from error
    except (ValueError, TypeError) as error:
        if isinstance(error, SandboxConfigError):
            raise
        raise SandboxConfigError(f"pod {pod.key} has a malformed field: {error}") from error
    for what, values in (("labels", config.labels), ("annotations", config.annotations)):
        if (size := _size(values)) > MAX_METADATA:
            raise SandboxConfigError(
                f"the pod's {what} have {size} bytes, a sandbox may have {MAX_METADATA}"
            )
    return config


def _size(values: Mapping[str, str]) -> int:
    return sum(len(text.encode()) for pair in values.items() for text in pair)


def _port_mappings(pod: Pod) -> Iterable[cri.PortMapping]:
    """Ports of the node itself that are mapped to the pod; duplicates count once."""
    seen: set[tuple[Any, ...]] = set()
    sidecars = [container for container in pod.init_containers if is_sidecar(container)]
    for container in (*pod.containers, *sidecars):
        for port in container.get("ports") or ():
            if not port.get("hostPort"):
                continue
            protocol = _PROTOCOLS[port.get("protocol") or "TCP"]
            key = (port.get("hostIP"), port["hostPort"], protocol)
            if key in seen:
                continue
            seen.add(key)
            _check_host_ip(container["name"], port.get("hostIP") or "")
            yield cri.PortMapping(
                protocol=protocol,
                container_port=port.get("containerPort") or 0,
                host_port=port["hostPort"],
                host_ip=port.get("hostIP") or "",
            )


def _check_host_ip(container: str, address: str) -> None:
    """API servers accept any text; what the runtime's network plugins make of it varies."""
    try:
        valid = not address or ("%" not in address and bool(ipaddress.ip_address(address)))
    except ValueError:
        valid = False
    if not valid:
        raise SandboxConfigError(
            f'hostIP "{address[:63]}" of a port of container {container} is not an IP address; '
            "correct the pod's spec"
        )


def _linux(
    pod: Pod,
    settings: RuntimeSettings,
    cgroup_parent: str,
    extra_groups: Sequence[int],
    userns: UserNamespaceRange | None,
) -> cri.LinuxPodSandboxConfig:
    pod_context: api.PodSecurityContext = pod.spec.get("securityContext") or {}
    requests = pod_requests(pod, overhead=False, with_claims=True)
    limits = pod_limits(pod, overhead=False, with_claims=True)
    return cri.LinuxPodSandboxConfig(
        cgroup_parent=cgroup_parent,
        security_context=_security(pod, extra_groups, userns),
        sysctls={
            **default_sysctls(pod, settings.default_sysctls),
            **{
                normalize(sysctl["name"]): sysctl.get("value") or ""
                for sysctl in pod_context.get("sysctls") or ()
            },
        },
        overhead=overhead_resources(pod, settings),
        resources=linux_resources(
            settings, requests.get("cpu"), limits.get("cpu"), limits.get("memory")
        ),
    )


def default_sysctls(pod: Pod, defaults: Mapping[str, str]) -> dict[str, str]:
    """The node's default sysctls of those namespaces that are the pod's own; dotted names."""
    not_own = {*shared_namespaces(pod.spec), None}
    named = {normalize(name): value for name, value in defaults.items()}
    return {name: value for name, value in named.items() if namespace_of(name) not in not_own}


def _security(
    pod: Pod, extra_groups: Sequence[int], userns: UserNamespaceRange | None
) -> cri.LinuxSandboxSecurityContext:
    """Users, groups and SELinux only where the pod has a securityContext; seccomp always."""
    if requests_user_namespace(pod) and userns is None:
        raise SandboxConfigError(
            f"pod {pod.key} requests a user namespace (hostUsers: false), which this version does "
            "not support"
        )
    security = cri.LinuxSandboxSecurityContext(
        privileged=any(
            (container.get("securityContext") or {}).get("privileged")
            for _, container in pod.all_containers()
        ),
        seccomp=cri.SecurityProfile(profile_type=cri.SecurityProfile.RuntimeDefault),
        namespace_options=namespace_options(pod, userns),
    )
    context = pod.spec.get("securityContext")
    if context is None:
        return security
    if context.get("runAsUser") is not None:
        security.run_as_user.value = context["runAsUser"]
        if context.get("runAsGroup") is not None:
            security.run_as_group.value = context["runAsGroup"]
    if context.get("fsGroup") is not None:
        security.supplemental_groups.append(context["fsGroup"])
    security.supplemental_groups.extend(extra_groups)
    security.supplemental_groups.extend(context.get("supplementalGroups") or ())
    policy = groups_policy(context)
    if policy is None:
        raise SandboxConfigError(
            f"unsupported supplementalGroupsPolicy: {context.get('supplementalGroupsPolicy')}"
        )
    security.supplemental_groups_policy = policy
    if context.get("seLinuxOptions"):
        security.selinux_options.CopyFrom(selinux_options(context["seLinuxOptions"]))
    return security
