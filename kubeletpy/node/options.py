"""The owner's configuration of a node, from the settings.

Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kubeletpy.base.api import types as api
from kubeletpy.base.kubernetes_version import version_facts
from kubeletpy.base.structs import Struct, field
from kubeletpy.config.flags import NodeFlags, node_addresses
from kubeletpy.config.rules import parse_cpuset
from kubeletpy.config.settings import KubeletSettings, Taint


class NodeOptions(Struct, frozen=True):
    """How the Node object is created and maintained."""

    name: str
    register: bool = True
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: Sequence[api.Taint] = ()
    node_ips: Sequence[str] = ()
    """Set by the owner (--node-ip); empty: detected. May be 0.0.0.0 or ::, for any."""
    max_pods: int = 110
    pods_per_core: int = 0
    kube_reserved: Mapping[str, str] = field(default_factory=dict)
    system_reserved: Mapping[str, str] = field(default_factory=dict)
    eviction_hard: Mapping[str, str] = field(default_factory=dict)
    reserved_cpus: int = 0
    """Number of CPUs in reservedSystemCPUs; replaces the cpu reservations when not 0."""
    local_storage: bool = True
    """localStorageCapacityIsolation: whether the node offers ephemeral-storage."""
    provider_id: str = ""
    external_cloud_provider: bool = False
    controller_attach_detach: bool = True
    kubelet_port: int = 10250
    """0: no server answers, and no port is published."""
    lease_duration_s: int = 40
    status_update_s: float = 10.0
    status_report_s: float = 300.0
    max_images: int = 50
    declared_features: Sequence[str] = ()
    """The features that the node reports in its status."""
    report_user_namespace: bool = False
    """Whether the status shows if the agent runs in a user namespace."""
    version: str = ""

    @classmethod
    def from_settings(
        cls,
        settings: KubeletSettings,
        flags: NodeFlags,
        *,
        hostname: str = "",
        port: int = 0,
        declared_features: Sequence[str] = (),
    ) -> NodeOptions:
        """Read the settings; ``port`` is the one that the agent's server uses."""
        return cls(
            name=node_name(flags, hostname),
            register=settings.register_node,
            labels=dict(flags.node_labels),
            node_ips=[str(each) for each in node_addresses(flags.node_ip)],
            taints=[_taint(taint) for taint in settings.register_with_taints],
            max_pods=settings.max_pods,
            pods_per_core=settings.pods_per_core,
            kube_reserved=settings.kube_reserved,
            system_reserved=settings.system_reserved,
            eviction_hard=settings.eviction_hard,
            reserved_cpus=reserved_cpus(settings),
            local_storage=settings.local_storage_capacity_isolation,
            provider_id=settings.provider_id,
            external_cloud_provider=flags.cloud_provider == "external",
            controller_attach_detach=settings.enable_controller_attach_detach,
            kubelet_port=port if settings.enable_server else 0,
            lease_duration_s=settings.node_lease_duration_seconds,
            status_update_s=settings.node_status_update_frequency,
            status_report_s=settings.node_status_report_frequency,
            max_images=settings.node_status_max_images,
            declared_features=declared_features,
            report_user_namespace=_reports_user_namespace(settings),
            version=settings.feature_gates.version.kubelet,
        )


def _reports_user_namespace(settings: KubeletSettings) -> bool:
    """Both the gate and a version that has the field (docs/reference/behaviour.md, o1)."""
    gates = settings.feature_gates
    return gates.enabled("KubeletInUserNamespace") and (
        version_facts(gates.version).reports_user_namespace
    )


def reserved_cpus(settings: KubeletSettings) -> int:
    """Number of CPUs in reservedSystemCPUs."""
    return len(parse_cpuset(settings.reserved_system_cpus) or ())


def node_name(flags: NodeFlags, hostname: str) -> str:
    """The node's name: --hostname-override, else the host name; lower case, trimmed."""
    return (flags.hostname_override or hostname).strip().lower()


def _taint(taint: Taint) -> api.Taint:
    entry: api.Taint = {"key": taint.key, "effect": taint.effect}
    if taint.value:
        entry["value"] = taint.value
    return entry
