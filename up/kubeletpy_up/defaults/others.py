"""Defaults of every kind but pods. Pure; never changes its argument."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import TYPE_CHECKING

from kubeletpy_up.defaults import devices, storage

if TYPE_CHECKING:
    from kubeletpy.base.api.types import JSON
    from kubeletpy_up.resources import ResourceInfo

_CLIENT_IP_SECONDS = 10800


def _namespace(obj: JSON) -> JSON:
    metadata = dict(obj.get("metadata") or {})
    if metadata.get("name"):
        label = {"kubernetes.io/metadata.name": metadata["name"]}
        metadata["labels"] = {**(metadata.get("labels") or {}), **label}
    status = dict(obj.get("status") or {})
    status.setdefault("phase", "Active")
    spec = obj.get("spec") or {"finalizers": ["kubernetes"]}
    return {**obj, "metadata": metadata, "spec": spec, "status": status}


def _secret(obj: JSON) -> JSON:
    filled = dict(obj, type=obj.get("type") or "Opaque")
    # stringData is for writing only: it wins over data, and is never stored.
    plain = filled.pop("stringData", None)
    if plain:
        encoded = {key: base64.b64encode(text.encode()).decode() for key, text in plain.items()}
        filled["data"] = {**(obj.get("data") or {}), **encoded}
    return filled


def _service(obj: JSON) -> JSON:
    spec = dict(obj.get("spec") or {})
    kind = spec.get("type") or "ClusterIP"
    spec["type"] = kind
    spec["sessionAffinity"] = spec.get("sessionAffinity") or "None"
    if spec["sessionAffinity"] == "ClientIP" and "sessionAffinityConfig" not in spec:
        spec["sessionAffinityConfig"] = {"clientIP": {"timeoutSeconds": _CLIENT_IP_SECONDS}}
    if spec.get("ports"):
        spec["ports"] = [_service_port(port) for port in spec["ports"]]
    if kind != "ExternalName":
        spec.setdefault("internalTrafficPolicy", "Cluster")
        spec.setdefault("ipFamilies", ["IPv4"])
        spec.setdefault("ipFamilyPolicy", "SingleStack")
        if spec.get("clusterIP") and not spec.get("clusterIPs"):
            spec["clusterIPs"] = [spec["clusterIP"]]
    if kind in ("NodePort", "LoadBalancer") or (kind == "ClusterIP" and spec.get("externalIPs")):
        spec.setdefault("externalTrafficPolicy", "Cluster")
    if kind == "LoadBalancer":
        spec.setdefault("allocateLoadBalancerNodePorts", True)
    return {**obj, "spec": spec, "status": obj.get("status") or {"loadBalancer": {}}}


def _service_port(port: JSON) -> JSON:
    filled = dict(port)
    filled["protocol"] = port.get("protocol") or "TCP"
    if port.get("targetPort") in (None, 0, "") and "port" in port:
        filled["targetPort"] = port["port"]
    return filled


def _node(obj: JSON) -> JSON:
    filled = dict(obj, spec=obj.get("spec") or {})
    status = obj.get("status") or {}
    if status.get("capacity") and not status.get("allocatable"):
        filled["status"] = {**status, "allocatable": status["capacity"]}
    return filled


def _endpoints(obj: JSON) -> JSON:
    if not obj.get("subsets"):
        return obj
    subsets = []
    for subset in obj["subsets"]:
        ports = [{**p, "protocol": p.get("protocol") or "TCP"} for p in subset.get("ports") or ()]
        subsets.append({**subset, "ports": ports} if ports else subset)
    return {**obj, "subsets": subsets}


def _event(obj: JSON) -> JSON:
    """Fields that every event has, even if empty: clients print them."""
    return {
        **obj,
        "metadata": obj.get("metadata") or {},
        "involvedObject": obj.get("involvedObject") or {},
        "source": obj.get("source") or {},
        "reportingComponent": obj.get("reportingComponent") or "",
        "reportingInstance": obj.get("reportingInstance") or "",
    }


def _lease(obj: JSON) -> JSON:
    return {**obj, "spec": obj.get("spec") or {}}


def _priority_class(obj: JSON) -> JSON:
    return {**obj, "preemptionPolicy": obj.get("preemptionPolicy") or "PreemptLowerPriority"}


_BY_RESOURCE: dict[tuple[str, str], Callable[[JSON], JSON]] = {
    ("", "namespaces"): _namespace,
    ("", "secrets"): _secret,
    ("", "services"): _service,
    ("", "nodes"): _node,
    ("", "endpoints"): _endpoints,
    ("", "events"): _event,
    ("", "persistentvolumeclaims"): storage.claim,
    ("", "persistentvolumes"): storage.volume,
    ("coordination.k8s.io", "leases"): _lease,
    ("scheduling.k8s.io", "priorityclasses"): _priority_class,
    ("storage.k8s.io", "storageclasses"): storage.storage_class,
    ("storage.k8s.io", "csidrivers"): storage.csi_driver,
    ("storage.k8s.io", "csinodes"): storage.csi_node,
    ("storage.k8s.io", "volumeattachments"): storage.volume_attachment,
    ("resource.k8s.io", "resourceclaims"): devices.claim,
    ("resource.k8s.io", "resourceclaimtemplates"): devices.template,
    ("resource.k8s.io", "deviceclasses"): devices.device_class,
}


def apply(resource: ResourceInfo, obj: JSON) -> JSON:
    """The object with the defaults of its kind."""
    fill = _BY_RESOURCE.get((resource.group, resource.plural))
    return fill(obj) if fill else obj
