"""The names of a pod inside it: hostname, domain and FQDN.

Source: docs/reference/names.csv: pod hostname, pod domain, FQDN as hostname; KEP-1797, KEP-4762
(hostnameOverride).
"""

from __future__ import annotations

import re

from kubeletpy.pods.pod import Pod

LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_MAX_SUBDOMAIN = 253
MAX_HOSTNAME = 63
MAX_FQDN = 64


class HostnameError(ValueError):
    """A pod cannot be named as its spec requires; the message names the field."""


def pod_hostname(pod: Pod) -> str:
    """The short name: hostnameOverride, else hostname, else the pod's name, cut to 63 characters.

    Raises:
        HostnameError: a given name is not a DNS name.
    """
    override = pod.spec.get("hostnameOverride")
    if override is not None:
        if not SUBDOMAIN.fullmatch(override) or len(override) > _MAX_SUBDOMAIN:
            raise HostnameError(f'pod HostnameOverride "{override}" is not a valid DNS subdomain')
        return _cut(pod, override)
    hostname = pod.spec.get("hostname")
    if hostname and not LABEL.fullmatch(hostname):
        raise HostnameError(f'pod Hostname "{hostname}" is not a valid DNS label')
    return _cut(pod, hostname or pod.name)


def pod_domain(pod: Pod, cluster_domain: str) -> str:
    """``{subdomain}.{namespace}.svc.{cluster domain}``; empty without a subdomain, or with
    hostnameOverride.

    Raises:
        HostnameError: the subdomain is not a DNS label.
    """
    subdomain = pod.spec.get("subdomain")
    if not subdomain or pod.spec.get("hostnameOverride") is not None:
        return ""
    if not LABEL.fullmatch(subdomain):
        raise HostnameError(f'pod Subdomain "{subdomain}" is not a valid DNS label')
    return f"{subdomain}.{pod.namespace}.svc.{cluster_domain}"


def kernel_hostname(pod: Pod, cluster_domain: str) -> str:
    """The hostname in the pod's UTS namespace: with setHostnameAsFQDN, the FQDN.

    Raises:
        HostnameError: the FQDN is longer than the kernel accepts, or a name is not a DNS name.
    """
    hostname = pod_hostname(pod)
    domain = pod_domain(pod, cluster_domain)
    if not (domain and pod.spec.get("setHostnameAsFQDN")):
        return hostname
    fqdn = f"{hostname}.{domain}"
    if len(fqdn) > MAX_FQDN:
        raise HostnameError(
            f"failed to construct FQDN from pod hostname and cluster domain, FQDN {fqdn} is too "
            f"long ({MAX_FQDN} characters is the max, {len(fqdn)} characters requested)"
        )
    return fqdn


def _cut(pod: Pod, name: str) -> str:
    cut = name[:MAX_HOSTNAME].rstrip("-.")
    if not cut:
        raise HostnameError(f'hostname for pod "{pod.name}" was invalid: "{name}"')
    return cut
