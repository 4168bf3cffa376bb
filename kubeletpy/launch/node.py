"""What the settings and the machine say about the node: name, addresses, options, shutdown."""

from __future__ import annotations

import asyncio

from kubeletpy.admission.declared_features import declared
from kubeletpy.api import types as api
from kubeletpy.config import KubeletSettings, NodeFlags
from kubeletpy.config.flag_rules import node_addresses
from kubeletpy.config.rules import parse_cpuset
from kubeletpy.launch.errors import LaunchError
from kubeletpy.node.facts import MachineFacts
from kubeletpy.node.machine import default_route_ip, resolve
from kubeletpy.node.options import NodeOptions
from kubeletpy.shutdown.plan import Period, periods
from kubeletpy.version import KUBERNETES, VERSION

KUBELET_VERSION = f"v{KUBERNETES}"
"""The kubelet whose behaviour this agent has; the API server's skew rules go by it."""


async def find_node_ips(flags: NodeFlags, facts: MachineFacts) -> list[str]:
    """--node-ip, where 0.0.0.0 and :: are any address of that family; else the machine's own.

    Raises LaunchError: the machine has no address of the family asked for.
    """
    given = node_addresses(flags.node_ip)
    if given and not given[0].is_unspecified:
        return [str(address) for address in given]
    version = given[0].version if given else 4
    found = default_route_ip(version)
    if found:
        return [found]
    resolved = await asyncio.to_thread(resolve, facts.hostname)
    if given:
        resolved = [each for each in resolved if (":" in each) == (version == 6)]
        if not resolved:
            raise LaunchError(
                f"--node-ip {flags.node_ip}: this machine has no IPv{version} address "
                "that leads out of it; name the node's address"
            )
    return resolved[:1] or ["127.0.0.1"]


def node_name(flags: NodeFlags, facts: MachineFacts) -> str:
    """The node's name: --hostname-override, else the host name; lower case, trimmed."""
    return (flags.hostname_override or facts.hostname).strip().lower()


def node_options(settings: KubeletSettings, flags: NodeFlags, facts: MachineFacts) -> NodeOptions:
    """What the settings say about the Node object."""
    taints: list[api.Taint] = []
    for taint in settings.register_with_taints:
        entry: api.Taint = {"key": taint.key, "effect": taint.effect}
        if taint.value:
            entry["value"] = taint.value
        taints.append(entry)
    cpus = settings.reserved_system_cpus
    return NodeOptions(
        name=node_name(flags, facts),
        register=settings.register_node,
        labels=dict(flags.node_labels),
        taints=taints,
        max_pods=settings.max_pods,
        pods_per_core=settings.pods_per_core,
        kube_reserved=settings.kube_reserved,
        system_reserved=settings.system_reserved,
        eviction_hard=settings.eviction_hard,
        reserved_cpus=len(parse_cpuset(cpus) or ()) if cpus else 0,
        local_storage=settings.local_storage_capacity_isolation,
        provider_id=settings.provider_id,
        external_cloud_provider=flags.cloud_provider == "external",
        controller_attach_detach=settings.enable_controller_attach_detach,
        kubelet_port=settings.port,
        lease_duration_s=settings.node_lease_duration_seconds,
        status_update_s=settings.node_status_update_frequency,
        status_report_s=settings.node_status_report_frequency,
        max_images=settings.node_status_max_images,
        declared_features=declared(settings.feature_gates.effective),
        version=f"{KUBELET_VERSION}-kubeletpy.{VERSION}",
    )


def shutdown_periods(settings: KubeletSettings) -> tuple[Period, ...]:
    """What the settings say about graceful node shutdown; empty: off."""
    return periods(
        settings.shutdown_grace_period,
        settings.shutdown_grace_period_critical_pods,
        [
            (each.priority, each.shutdown_grace_period_seconds)
            for each in settings.shutdown_grace_period_by_pod_priority
        ],
    )
