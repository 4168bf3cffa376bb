"""A static pod's spec with its quantities as the API would return them: ``cpu: 1`` is ``"1"``.

The API returns its pods in this form. A status repeats values of the spec: a value that the API
rewrites makes our status differ from the API's for as long as the pod exists. Pure; never changes
its argument.
"""

from __future__ import annotations

from typing import Any

from kubeletpy.base.api.quantity import canonical
from kubeletpy.base.api.types import JSON

_CONTAINERS = ("initContainers", "containers", "ephemeralContainers")


def canonical_spec(spec: JSON) -> JSON:
    """``spec`` with canonical resources, overhead and size limits. Raises ValueError."""
    made = _with_resources(spec)
    for key in _CONTAINERS:
        if spec.get(key):
            made[key] = [_with_resources(container) for container in spec[key]]
    if spec.get("overhead"):
        made["overhead"] = _amounts(spec["overhead"])
    if spec.get("volumes"):
        made["volumes"] = [_volume(volume) for volume in spec["volumes"]]
    return made


def _with_resources(holder: JSON) -> JSON:
    resources = holder.get("resources")
    if not resources:
        return dict(holder)
    shown = {
        kind: _amounts(resources[kind]) for kind in ("limits", "requests") if resources.get(kind)
    }
    return {**holder, "resources": {**resources, **shown}}


def _amounts(quantities: dict[str, Any]) -> dict[str, str]:
    return {name: canonical(text) for name, text in quantities.items()}


def _volume(volume: JSON) -> JSON:
    source = volume.get("emptyDir") or {}
    if source.get("sizeLimit") is None:
        return volume
    return {**volume, "emptyDir": {**source, "sizeLimit": canonical(source["sizeLimit"])}}
