"""The cells that most tables of ``kubectl get`` have."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kubeletpy_up.printers.times import since

if TYPE_CHECKING:
    from kubeletpy.base.api.types import JSON


def name_of(obj: JSON) -> str:
    """The cell NAME."""
    return str((obj.get("metadata") or {}).get("name", ""))


def age_of(obj: JSON, now: float) -> str:
    """The cell AGE. ``now`` in Unix seconds."""
    return since((obj.get("metadata") or {}).get("creationTimestamp"), now)
