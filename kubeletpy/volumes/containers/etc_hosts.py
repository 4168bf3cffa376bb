"""The managed /etc/hosts of a pod: its text, and the file mounted into its containers.

Source: docs/reference/behaviour.md, i10.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kubeletpy.base.host.disk_errors import complete_errors
from kubeletpy.pods.pod import Pod, pod_domain, pod_hostname

CONTAINER_PATH = "/etc/hosts"
MODE = 0o644
_HEADER = "# Kubernetes-managed hosts file.\n"
_HOST_HEADER = "# Kubernetes-managed hosts file (host network).\n"
_ALIASES_HEADER = "\n# Entries added by HostAliases.\n"
_LOCAL = (
    "127.0.0.1\tlocalhost\n"
    "::1\tlocalhost ip6-localhost ip6-loopback\n"
    "fe00::0\tip6-localnet\n"
    "fe00::0\tip6-mcastprefix\n"
    "fe00::1\tip6-allnodes\n"
    "fe00::2\tip6-allrouters\n"
)


def is_managed(pod: Pod, container: Mapping[str, Any], pod_ips: Sequence[str]) -> bool:
    """Whether a container gets the managed file: not if it mounts something there itself."""
    mounts = container.get("volumeMounts") or ()
    if any(mount.get("mountPath") == CONTAINER_PATH for mount in mounts):
        return False
    return pod.host_network or bool(pod_ips)


def hosts_text(pod: Pod, pod_ips: Sequence[str], cluster_domain: str, node_hosts: str) -> str:
    """The whole file.

    Args:
        pod: with its hostname, subdomain and hostAliases.
        pod_ips: its addresses, the preferred family first.
        cluster_domain: from the node's settings.
        node_hosts: the node's own /etc/hosts, for pods on the host's network.

    Raises:
        HostnameError: the pod cannot be named as its spec requires.
    """
    aliases = _aliases(pod.spec.get("hostAliases") or ())
    if pod.host_network:
        return _HOST_HEADER + node_hosts + aliases
    name, domain = pod_hostname(pod), pod_domain(pod, cluster_domain)
    names = f"{name}.{domain}\t{name}" if domain else name
    own = "".join(f"{ip}\t{names}\n" for ip in pod_ips)
    return _HEADER + _LOCAL + own + aliases


def write_hosts(path: str, text: str) -> None:
    """Write the file in place: containers that mount it see the change. Raises OSError."""
    with complete_errors(path):
        _write_in_place(path, text.encode("utf-8", "surrogateescape"))


def _write_in_place(path: str, data: bytes) -> None:
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    Path(path).parent.mkdir(0o750, exist_ok=True)
    descriptor = os.open(path, flags, MODE)
    try:
        if os.pread(descriptor, len(data) + 1, 0) != data:
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, data, 0)
        os.fchmod(descriptor, MODE)  # regardless of the umask
    finally:
        os.close(descriptor)


def _aliases(aliases: Sequence[Mapping[str, Any]]) -> str:
    if not aliases:
        return ""
    lines = (
        "\t".join([alias.get("ip") or "", *(alias.get("hostnames") or ())]) + "\n"
        for alias in aliases
    )
    return _ALIASES_HEADER + "".join(lines)
