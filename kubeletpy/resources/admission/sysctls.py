"""Which sysctls a pod may set: those that are namespaced and don't affect other pods.

Pure. Source: docs/reference/behaviour.md, j4.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from kubeletpy.base.api.names import UTS, namespace_of, normalize, shared_namespaces
from kubeletpy.kubeapi.events.reasons import AdmissionReason
from kubeletpy.pods.pod import Pod
from kubeletpy.resources.admission.verdict import Rejection

_SAFE = {
    "kernel.shm_rmid_forced": "",
    "net.ipv4.ip_local_port_range": "",
    "net.ipv4.tcp_syncookies": "",
    "net.ipv4.ping_group_range": "",
    "net.ipv4.ip_unprivileged_port_start": "",
    "net.ipv4.ip_local_reserved_ports": "3.16",
    "net.ipv4.tcp_keepalive_time": "4.5",
    "net.ipv4.tcp_keepalive_intvl": "4.5",
    "net.ipv4.tcp_keepalive_probes": "4.5",
    "net.ipv4.tcp_fin_timeout": "4.6",
    "net.ipv4.tcp_rmem": "4.15",
    "net.ipv4.tcp_wmem": "4.15",
    "net.ipv4.tcp_slow_start_after_idle": "4.15",
    "net.ipv4.tcp_notsent_lowat": "4.6",
}
"""Safe sysctl -> the first kernel on which it is namespaced; empty: every kernel."""


def safe_sysctls(kernel_version: str) -> Iterator[str]:
    """The sysctls that are safe on a kernel (``6.1.0-13-amd64``; empty: unknown)."""
    running = _version(kernel_version)
    for name, since in _SAFE.items():
        if running >= _version(since):
            yield name


def forbidden(pod: Pod, unsafe: Iterable[str], kernel_version: str) -> Rejection | None:
    """Why a pod's sysctls are refused. ``unsafe``: allowedUnsafeSysctls, already validated."""
    context = pod.spec.get("securityContext") or {}
    sysctls = context.get("sysctls") or ()
    allowed = {*safe_sysctls(kernel_version), *map(normalize, unsafe)}
    prefixes = tuple(name.removesuffix("*") for name in allowed if name.endswith("*"))
    for sysctl in sysctls:
        name = normalize(sysctl.get("name") or "")
        problem = _problem(pod, name, name in allowed or name.startswith(prefixes))
        if problem:
            return Rejection(AdmissionReason.SYSCTL_FORBIDDEN, f"forbidden sysctl: {problem}")
    return None


def _problem(pod: Pod, name: str, allowed: bool) -> str:
    namespace = namespace_of(name, pattern=True)
    if not allowed or namespace is None:
        return f'"{name}" not allowlisted'
    # the kubelet does not require a UTS namespace here
    if namespace in shared_namespaces(pod.spec) - {UTS}:
        return f'"{name}" not allowed with host {namespace} enabled'
    return ""


def _version(text: str) -> tuple[int, ...]:
    found = re.match(r"(\d+)\.(\d+)", text)
    return (int(found[1]), int(found[2])) if found else ()
