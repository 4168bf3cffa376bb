"""The resolver configuration of a pod, which the runtime writes into its resolv.conf.

Source: docs/reference/behaviour.md, i11. Must never read the host's file itself: its text is an
argument.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable

from kubeletpy.base.api import types as api
from kubeletpy.base.structs import Struct, replace
from kubeletpy.kubeapi.events.reasons import Reason
from kubeletpy.pods.pod import Pod
from kubeletpy.pods.runtime_status import SandboxConfigError, SpecField
from kubeletpy.runtime_manager.config.settings import RuntimeSettings

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

    about = SpecField.RESOLV_CONF


class ResolverConfig(Struct, frozen=True):
    """Name servers, search domains and options."""

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
