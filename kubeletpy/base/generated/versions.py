"""The supported Kubernetes versions, and how they differ. Pure.

Written by tools/gen_tables.py. Source: docs/reference/features.csv; docs/reference/versions.csv; docs/reference/declared-features.csv.
"""

from __future__ import annotations

from kubeletpy.base.structs import Struct

MINORS = (35, 36, 37, 38)
PREVIEWS: dict[int, str] = {38: "beta.0"}
"""Minor versions of which only a pre-release is known, and which one."""


class VersionFacts(Struct, frozen=True):
    """The facts of one version: a row of versions.csv each."""

    reports_user_namespace: bool
    reports_volume_health: bool
    resize_bounded_by_node: bool
    throttling_factor_needs_gate: bool


FACTS = (
    VersionFacts(
        reports_user_namespace=False,
        reports_volume_health=False,
        resize_bounded_by_node=True,
        throttling_factor_needs_gate=False,
    ),
    VersionFacts(
        reports_user_namespace=False,
        reports_volume_health=False,
        resize_bounded_by_node=False,
        throttling_factor_needs_gate=False,
    ),
    VersionFacts(
        reports_user_namespace=True,
        reports_volume_health=True,
        resize_bounded_by_node=False,
        throttling_factor_needs_gate=True,
    ),
    VersionFacts(
        reports_user_namespace=True,
        reports_volume_health=True,
        resize_bounded_by_node=False,
        throttling_factor_needs_gate=True,
    ),
)
DECLARED_FEATURES = """
DRANodeAllocatableResources - - gate gate
DRAOptionalNodeOperations - - gate gate
ExtendWebSocketsToKubelet - gate gate gate
GuaranteedQoSPodCPUResize cpus - - -
InPlacePodLevelResourcesVerticalScaling gate gate gate gate
InPlacePodVerticalScalingInitContainers - gate gate gate
InPlacePodVerticalScalingMemoryBackedVolumes - - gate gate
PodCertificateMLDSA - - - lacking
RestartAllContainersOnContainerExits gate gate gate gate
SecurityProfileOCI - - - lacking
UserNamespacesHostNetworkSupport - user_namespaces_host_network user_namespaces_host_network user_namespaces_host_network
VolumeBindMountOptions - - mount_options mount_options
"""
