"""Whether the API takes an object: every reason why not, as the causes of an Invalid error.

The rules are those of docs/reference/api-server.md, ab; the wording is the API server's. Pure.
Objects arrive decoded and with their defaults. Other packages import only this module of the
package.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kubeletpy_up.validation import certificate_requests, others, pod_spec, pod_updates
from kubeletpy_up.validation.report import Report

if TYPE_CHECKING:
    from kubeletpy.base.api.types import JSON
    from kubeletpy_up.errors import Cause
    from kubeletpy_up.resources import ResourceInfo


def _is_pod(resource: ResourceInfo) -> bool:
    return (resource.group, resource.plural) == ("", "pods")


def validate_create(resource: ResourceInfo, obj: JSON) -> list[Cause]:
    """The errors of a new object; empty if it is valid."""
    report = Report()
    if not _is_pod(resource):
        others.validate(report, resource.plural, obj, namespaced=resource.namespaced)
        return report.causes
    pod_spec.validate(report, obj)
    spec = obj.get("spec") or {}
    if spec.get("ephemeralContainers"):
        report.forbidden("spec.ephemeralContainers", "cannot be set on create")
    if spec.get("nodeName") and spec.get("schedulingGates"):
        detail = "cannot be set until all schedulingGates have been cleared"
        report.forbidden("spec.nodeName", detail)
    return report.causes


def validate_update(
    resource: ResourceInfo, new: JSON, old: JSON, subresource: str = ""
) -> list[Cause]:
    """The errors of a change; ``subresource`` is the path's (``status``, ``resize``, …)."""
    report = Report()
    if _is_pod(resource):
        pod_updates.validate(report, new, old, subresource)
    else:
        namespaced = resource.namespaced
        others.validate_update(
            report, resource.plural, new, old, subresource, namespaced=namespaced
        )
        if resource.plural == "certificatesigningrequests":
            certificate_requests.check_change(report, new, old, subresource)
    return report.causes
