"""Inputs of admission about the node besides its object: constant unless noted."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from kubeletpy.base.kubernetes_version import NEWEST, KubernetesVersion
from kubeletpy.base.structs import Struct


class NodeState(Struct, frozen=True):
    """The node's settings and capabilities."""

    allowed_unsafe_sysctls: Sequence[str] = ()
    kernel_version: str = ""
    """The release in ``uname -r``; empty: unknown, then only sysctls safe on every kernel are
    safe."""
    apparmor: bool = True
    """Whether the kernel enforces AppArmor profiles."""
    pod_level_resources: bool = True
    """The feature gate PodLevelResources."""
    declared_features: Sequence[str] | None = None
    """The features that the node declares; None: it declares none, and pods are not checked."""
    version: KubernetesVersion = NEWEST
    """The one whose features a pod may need."""
    pressures: Sequence[str] = ()
    """Pressure conditions that hold now: MemoryPressure, DiskPressure, PIDPressure."""
    let_in: Collection[str] = ()
    """Uids of pods that have anything in the runtime; known while there is pressure."""
    shutting_down: bool = False
