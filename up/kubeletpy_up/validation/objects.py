"""Whether the API takes an object: every reason why not, as the causes of an Invalid error.

The rules are those of docs/reference/api-server.md, ab; the wording is the API server's. Pure.
Objects arrive decoded and with their defaults. Other packages import only this module of the
package.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import TYPE_CHECKING

from kubeletpy_up.schema import formats
from kubeletpy_up.validation import (
    addresses,
    amounts,
    certificate_requests,
    claims,
    device_claims,
    handlers,
    metadata,
    persistent_volumes,
    pod_spec,
    pod_updates,
    scheduling,
    storage_objects,
)
from kubeletpy_up.validation.report import Report

if TYPE_CHECKING:
    from kubeletpy.base.api.types import JSON
    from kubeletpy_up.errors import Cause
    from kubeletpy_up.resources import ResourceInfo

_MAX_DATA = 1024 * 1024
_SERVICE_TYPES = ("ClusterIP", "ExternalName", "LoadBalancer", "NodePort")
_PROTOCOLS = ("SCTP", "TCP", "UDP")
_REDACTED = "<secret contents redacted>"
_IMMUTABLE = "field is immutable when `immutable` is set"
_SECRET_KEYS = {
    "kubernetes.io/ssh-auth": ("ssh-privatekey",),
    "kubernetes.io/tls": ("tls.crt", "tls.key"),
    "kubernetes.io/dockercfg": (".dockercfg",),
    "kubernetes.io/dockerconfigjson": (".dockerconfigjson",),
}
_DOCKER_KEYS = (".dockercfg", ".dockerconfigjson")


def _keys(report: Report, data: JSON | None, path: str) -> int:
    size = 0
    for key, value in (data or {}).items():
        report.all_invalid(f"{path}[{key}]", key, formats.config_key(key))
        size += len(value)
    return size


def configmap(report: Report, obj: JSON) -> None:
    """Keys, and 1 MiB in all."""
    size = _keys(report, obj.get("data"), "data")
    size += _keys(report, obj.get("binaryData"), "binaryData") * 3 // 4
    for key in (obj.get("data") or {}).keys() & (obj.get("binaryData") or {}).keys():
        report.invalid(f"data[{key}]", key, "duplicate of key present in binaryData")
    if size > _MAX_DATA:
        report.too_long("", _MAX_DATA)


def secret(report: Report, obj: JSON) -> None:
    """Keys, size, and what each type must hold. Values never appear in a message."""
    data = obj.get("data") or {}
    if _keys(report, data, "data") * 3 // 4 > _MAX_DATA:
        report.too_long("data", _MAX_DATA)
    kind = obj.get("type") or "Opaque"
    if kind == "kubernetes.io/service-account-token":
        name = "kubernetes.io/service-account.name"
        if not ((obj.get("metadata") or {}).get("annotations") or {}).get(name):
            report.required(f"metadata.annotations[{name}]")
    if kind == "kubernetes.io/basic-auth" and not ({"username", "password"} & data.keys()):
        report.required("data[username]")
        report.required("data[password]")
    for key in _SECRET_KEYS.get(kind, ()):
        if key not in data:
            report.required(f"data[{key}]")
        elif key in _DOCKER_KEYS and not _is_json_object(data[key]):
            report.invalid(f"data[{key}]", _REDACTED, "is not a JSON object")


def _is_json_object(encoded: str) -> bool:
    try:
        return isinstance(json.loads(base64.b64decode(encoded)), dict)
    except (ValueError, RecursionError):
        return False


def service(report: Report, obj: JSON) -> None:
    """Check type and ports of a Service."""
    spec = obj.get("spec") or {}
    kind, ports = spec.get("type") or "ClusterIP", spec.get("ports") or []
    headless = spec.get("clusterIP") == "None"
    report.supported("spec.type", kind, _SERVICE_TYPES)
    if not ports and not headless and kind != "ExternalName":
        report.required("spec.ports")
    if kind == "ExternalName":
        name = (spec.get("externalName") or "").removesuffix(".")
        if not name:
            report.required("spec.externalName")
        report.all_invalid("spec.externalName", name, formats.dns_subdomain(name) if name else ())
    if spec.get("sessionAffinity") not in ("ClientIP", "None"):
        known = ("ClientIP", "None")
        report.unsupported("spec.sessionAffinity", spec.get("sessionAffinity") or "", known)
    metadata.labels(report, spec.get("selector"), "spec.selector")
    names: set[str] = set()
    pairs: set[tuple[str, int]] = set()
    for index, port in enumerate(ports):
        where = f"spec.ports[{index}]"
        _service_port(report, port, where, names, need_name=len(ports) > 1)
        pair = (port.get("protocol") or "", port.get("port") or 0)
        if pair in pairs:
            report.duplicate(where, {"protocol": pair[0], "port": pair[1]})
        pairs.add(pair)


def _service_port(
    report: Report, port: JSON, where: str, names: set[str], *, need_name: bool
) -> None:
    name, number = port.get("name") or "", port.get("port") or 0
    if name:
        report.all_invalid(f"{where}.name", name, formats.dns_label(name))
        if name in names:
            report.duplicate(f"{where}.name", name)
        names.add(name)
    elif need_name:
        report.required(f"{where}.name")
    report.all_invalid(f"{where}.port", number, formats.port_number(number))
    report.one_of(f"{where}.protocol", port.get("protocol"), _PROTOCOLS)
    handlers.port(report, port.get("targetPort", number), f"{where}.targetPort")


def node(report: Report, obj: JSON) -> None:
    """Check taints and capacity of a Node."""
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    scheduling.taints(report, spec.get("taints") or [], "metadata.taints")
    for kind in ("capacity", "allocatable"):
        for name, amount in (status.get(kind) or {}).items():
            amounts.quantity(report, amount, f"status.{kind}.{name}")


def lease(report: Report, obj: JSON) -> None:
    """Valid durations and transitions."""
    spec = obj.get("spec") or {}
    seconds, transitions = spec.get("leaseDurationSeconds"), spec.get("leaseTransitions")
    if seconds is not None and seconds <= 0:
        report.invalid("spec.leaseDurationSeconds", seconds, "must be greater than 0")
    if transitions is not None and transitions < 0:
        detail = "must be greater than or equal to 0"
        report.invalid("spec.leaseTransitions", transitions, detail)


def runtimeclass(report: Report, obj: JSON) -> None:
    """Check the handler's name of a RuntimeClass."""
    handler = obj.get("handler") or ""
    report.all_invalid("handler", handler, formats.dns_label(handler))
    for name, amount in ((obj.get("overhead") or {}).get("podFixed") or {}).items():
        amounts.quantity(report, amount, f"overhead.podFixed[{name}]")
    scheduled = obj.get("scheduling") or {}
    metadata.labels(report, scheduled.get("nodeSelector"), "scheduling.nodeSelector")
    scheduling.tolerations(report, scheduled.get("tolerations") or [], "scheduling.tolerations")


def event(report: Report, obj: JSON) -> None:
    """An event lives in the namespace of what it is about."""
    about = obj.get("involvedObject") or obj.get("regarding") or {}
    namespace = (obj.get("metadata") or {}).get("namespace") or ""
    own = about.get("namespace") or ""
    if own != namespace and not (not own and namespace == "default"):
        report.invalid("involvedObject.namespace", own, "does not match event.namespace")


_BY_PLURAL: dict[str, Callable[[Report, JSON], None]] = {
    "configmaps": configmap,
    "secrets": secret,
    "services": service,
    "nodes": node,
    "leases": lease,
    "runtimeclasses": runtimeclass,
    "events": event,
    "certificatesigningrequests": certificate_requests.validate,
    "persistentvolumeclaims": claims.claim,
    "persistentvolumes": persistent_volumes.volume,
    "storageclasses": storage_objects.storage_class,
    "csidrivers": storage_objects.csi_driver,
    "csinodes": storage_objects.csi_node,
    "volumeattachments": storage_objects.volume_attachment,
    "csistoragecapacities": storage_objects.storage_capacity,
    "resourceclaims": device_claims.claim,
    "resourceclaimtemplates": device_claims.template,
    "deviceclasses": device_claims.device_class,
    "resourceslices": device_claims.resource_slice,
}
_ADDRESSES: dict[str, Callable[[Report, JSON, JSON | None], None]] = {
    "services": addresses.service,
    "nodes": addresses.node,
}
_CHANGED_BY_PLURAL: dict[str, Callable[[Report, JSON, JSON], None]] = {
    "persistentvolumes": persistent_volumes.changed,
    "storageclasses": storage_objects.storage_class_changed,
    "csidrivers": storage_objects.csi_driver_changed,
    "csinodes": storage_objects.csi_node_changed,
    "volumeattachments": storage_objects.volume_attachment_changed,
    "csistoragecapacities": storage_objects.storage_capacity_changed,
    "resourceclaimtemplates": device_claims.template_changed,
    "resourceslices": device_claims.slice_changed,
}
_NAME_CHECKS: dict[str, metadata.NameCheck] = {
    "namespaces": formats.dns_label,
    "services": formats.dns_label,
    "events": metadata.path_segment,
    "certificatesigningrequests": metadata.path_segment,
}


def _validate_other(
    report: Report, plural: str, obj: JSON, old: JSON | None = None, *, namespaced: bool
) -> None:
    """Check metadata, and what else the kind has; ``old``: the object before a change."""
    check = _NAME_CHECKS.get(plural, formats.dns_subdomain)
    metadata.validate(report, obj, namespaced=namespaced, name_check=check)
    if plural in _BY_PLURAL:
        _BY_PLURAL[plural](report, obj)
    if plural in _ADDRESSES:
        _ADDRESSES[plural](report, obj, old)


def _validate_other_update(
    report: Report, plural: str, new: JSON, old: JSON, subresource: str = "", *, namespaced: bool
) -> None:
    """Like :func:`validate`, and check what must not change."""
    metadata.validate_update(report, new, old)
    if plural in _CHANGED_BY_PLURAL:
        _CHANGED_BY_PLURAL[plural](report, new, old)
    if plural == "persistentvolumeclaims":
        if subresource == "status":
            claims.status(report, new)
        else:
            claims.changed(report, new, old)
    if plural == "resourceclaims":
        device_claims.claim_changed(report, new, old, subresource)
    if plural in ("configmaps", "secrets") and old.get("immutable"):
        if not new.get("immutable"):
            report.forbidden("immutable", _IMMUTABLE)
        for key in ("data", "binaryData"):
            if (new.get(key) or {}) != (old.get(key) or {}):
                report.forbidden(key, _IMMUTABLE)
    if plural == "secrets" and old.get("type") and new.get("type") != old["type"]:
        report.invalid("type", new.get("type") or "", "field is immutable")
    if plural == "runtimeclasses" and new.get("handler") != old.get("handler"):
        report.invalid("handler", None, "field is immutable")
    if plural == "services":
        before = (old.get("spec") or {}).get("clusterIP")
        after = (new.get("spec") or {}).get("clusterIP")
        if before and after and before != after:
            report.invalid("spec.clusterIPs[0]", [after], "may not change once set")
    if plural == "nodes":
        before = (old.get("spec") or {}).get("providerID")
        after = (new.get("spec") or {}).get("providerID")
        if before and after != before:
            change = "modified" if after else "cleared"
            report.invalid("spec.providerID", None, f"field cannot be {change} once set")
    _validate_other(report, plural, new, old, namespaced=namespaced)


def _is_pod(resource: ResourceInfo) -> bool:
    return (resource.group, resource.plural) == ("", "pods")


def validate_create(resource: ResourceInfo, obj: JSON) -> list[Cause]:
    """The errors of a new object; empty if it is valid."""
    report = Report()
    if not _is_pod(resource):
        _validate_other(report, resource.plural, obj, namespaced=resource.namespaced)
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
        _validate_other_update(
            report, resource.plural, new, old, subresource, namespaced=namespaced
        )
        if resource.plural == "certificatesigningrequests":
            certificate_requests.check_change(report, new, old, subresource)
    return report.causes
