"""The CRI config of a pod's sandbox.

A pure function of pod and settings. Must never promise what the runtime would refuse: a sandbox on
the host network has no hostname of its own.

Source: docs/reference/names.csv: cri-label, cri-annotation, cri-metadata;
docs/reference/behaviour.md, j2, i11.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kubeletpy.base.api import types as api
from kubeletpy.base.api.names import namespace_of, normalize, shared_namespaces
from kubeletpy.pods.pod import HostnameError, Pod, is_sidecar, kernel_hostname
from kubeletpy.pods.resources import pod_limits, pod_requests
from kubeletpy.pods.runtime_status import SandboxConfigError
from kubeletpy.pods.shape import unknown_value
from kubeletpy.remote.generated import api_pb2 as cri
from kubeletpy.runtime_manager.config.dns import ResolverConfig
from kubeletpy.runtime_manager.config.namespaces import (
    UserNamespaceRange,
    namespace_options,
    requests_user_namespace,
)
from kubeletpy.runtime_manager.config.resources import linux_resources, overhead_resources
from kubeletpy.runtime_manager.config.security_context import groups_policy, selinux_options
from kubeletpy.runtime_manager.config.settings import RuntimeSettings
from kubeletpy.runtime_manager.names.labels import sandbox_labels
from kubeletpy.runtime_manager.names.log_paths import UnsafeName, pod_log_directory

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

    ``dns`` comes from :func:`kubeletpy.runtime_manager.config.dns.pod_dns`; ``extra_groups`` are
    those of the pod's persistent volumes.

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
