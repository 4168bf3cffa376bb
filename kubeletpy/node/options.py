"""What the owner of a node decided about it; the composition root fills it from the settings.

Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from kubeletpy.api import types as api


@dataclass(frozen=True, slots=True)
class NodeOptions:
    """How the Node object is made and kept."""

    name: str
    register: bool = True
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: Sequence[api.Taint] = ()
    node_ips: Sequence[str] = ()
    """Given by the owner; empty: found out."""
    max_pods: int = 110
    pods_per_core: int = 0
    kube_reserved: Mapping[str, str] = field(default_factory=dict)
    system_reserved: Mapping[str, str] = field(default_factory=dict)
    eviction_hard: Mapping[str, str] = field(default_factory=dict)
    reserved_cpus: int = 0
    """Number of CPUs in reservedSystemCPUs; replaces the cpu reservations when not 0."""
    local_storage: bool = True
    """localStorageCapacityIsolation: whether the node has ephemeral-storage to give."""
    provider_id: str = ""
    external_cloud_provider: bool = False
    controller_attach_detach: bool = True
    kubelet_port: int = 10250
    lease_duration_s: int = 40
    status_update_s: float = 10.0
    status_report_s: float = 300.0
    max_images: int = 50
    declared_features: Sequence[str] = ()
    """What the node tells of in its status."""
    version: str = ""
