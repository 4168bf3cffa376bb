"""What admission must know of the node besides its object: constant unless said otherwise."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class NodeState:
    """The node as the agent knows it."""

    allowed_unsafe_sysctls: Sequence[str] = ()
    kernel_version: str = ""
    """As ``uname -r`` says it; empty: not known, then only sysctls of every kernel are safe."""
    apparmor: bool = True
    """Whether the kernel enforces AppArmor profiles."""
    pod_level_resources: bool = True
    """The feature gate PodLevelResources."""
    declared_features: Sequence[str] | None = None
    """What the node declares; None: it does not, and no pod is asked what it needs."""
    pressures: Sequence[str] = ()
    """Conditions of pressure that hold now: MemoryPressure, DiskPressure, PIDPressure."""
    let_in: Collection[str] = ()
    """Pods, by uid, of which the runtime has something: known while there is pressure."""
    shutting_down: bool = False
