"""Resources of a pod as a whole beside those of its containers: KEP-2837."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kubeletpy.pods.resources import HUGEPAGES_PREFIX
from kubeletpy_up.defaults.pod_level import of_containers
from kubeletpy_up.schema import quantities

if TYPE_CHECKING:
    from kubeletpy.base.api.types import JSON
    from kubeletpy_up.validation.report import Report


def consistency(report: Report, spec: JSON) -> None:
    """No container has more than its pod, and all together request no more."""
    own: JSON = spec["resources"]
    for kind in ("requests", "limits"):
        amounts = own.get(kind) or {}
        for name, total in of_containers(spec, kind).items():
            if kind == "limits" and not name.startswith(HUGEPAGES_PREFIX):
                continue
            if name in amounts and _more(total, amounts[name]):
                detail = f"must be greater than or equal to aggregate container {kind} of {total}"
                report.invalid(f"spec.resources.{kind}[{name}]", amounts[name], detail)
    limits = own.get("limits") or {}
    for index, container in enumerate(spec.get("containers") or ()):
        for name, limit in ((container.get("resources") or {}).get("limits") or {}).items():
            if name in limits and _more(limit, limits[name]):
                path = f"spec.resources.containers[{index}][{name}].limits"
                detail = f"must be less than or equal to pod limits of {limits[name]}"
                report.invalid(path, limit, detail)


def _more(one: Any, other: Any) -> bool:
    """Whether one quantity is larger; false when one is malformed, which is reported elsewhere."""
    try:
        return quantities.read(str(one))[0] > quantities.read(str(other))[0]
    except ValueError:
        return False
