"""Differences between Kubernetes versions that no gate, field or flag describes. Pure.

Source: docs/reference/versions.csv. A row for each fact has a column for each version. Decisions
take a fact by its name; a fact that no decision needs any more is removed with its row.
"""

from __future__ import annotations

from functools import cache

from kubeletpy.base.kubernetes_version import NEWEST, KubernetesVersion, column
from kubeletpy.base.structs import Struct

_TABLE = """
reports_user_namespace no no yes
reports_volume_health no no yes
resize_bounded_by_node yes no no
throttling_factor_needs_gate no no yes
"""
"""A line for each fact: its name, then its value in each of SUPPORTED."""


class VersionFacts(Struct, frozen=True):
    """The facts of one version.

    Attributes:
        resize_bounded_by_node: whether the kubelet, not the API server, finds a resize infeasible
            that requests more than the node has without its reservations.
        reports_user_namespace: whether ``status.nodeInfo.runningInUserNamespace`` is set while
            gate KubeletInUserNamespace is on.
        reports_volume_health: whether ``status.volumeHealth`` of pods and ``status.storageHealth``
            of the CSINode are set while gate CSIVolumeHealth is on.
        throttling_factor_needs_gate: whether a ``memoryThrottlingFactor`` other than the former
            default is refused while gate MemoryQoS is off.
    """

    resize_bounded_by_node: bool
    reports_user_namespace: bool
    reports_volume_health: bool
    throttling_factor_needs_gate: bool


@cache
def version_facts(version: KubernetesVersion = NEWEST) -> VersionFacts:
    """The facts of a version."""
    values = column(_TABLE, version)
    return VersionFacts(**{name: value == "yes" for name, value in values.items()})
