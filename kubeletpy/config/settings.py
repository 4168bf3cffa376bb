"""The agent's settings: KubeletConfiguration (kubelet.config.k8s.io/v1beta1) as one frozen object.

Pure.

Every field of the document is here under its name in snake_case: durations are seconds, sizes are
bytes, maps are read-only, resource quantities stay text. An instance is complete and valid: only
:func:`kubeletpy.config.load` makes one. For the meaning of a field see docs/reference/config.csv.
Must never hold a decision.
"""

from __future__ import annotations

from typing import Any

from kubeletpy.base.text import snake_case
from kubeletpy.config.gates import FeatureGates
from kubeletpy.config.generated.settings import (
    GROUPS,
    KubeletFields,
    Logging,
    MemoryReservation,
    ShutdownPriority,
    Taint,
    Tracing,
    VModule,
)

__all__ = [
    "GROUPS",
    "KubeletSettings",
    "Logging",
    "MemoryReservation",
    "ShutdownPriority",
    "Taint",
    "Tracing",
    "VModule",
    "value_at",
]


class KubeletSettings(KubeletFields, frozen=True):
    """All settings of a node agent. Optional ones are None when the user left them open."""

    feature_gates: FeatureGates

    @property
    def image_endpoint(self) -> str:
        """Where the image service listens: its own endpoint, else the runtime's."""
        return self.image_service_endpoint or self.container_runtime_endpoint


def value_at(settings: KubeletSettings, path: str) -> Any:
    """A field of the settings by its path in the document."""
    value: Any = settings
    for part in path.split("."):
        value = getattr(value, snake_case(part))
    return value
