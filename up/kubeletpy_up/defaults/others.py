"""Defaults of every kind but pods. Pure; never changes its argument."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kubeletpy.base.api.types import JSON
    from kubeletpy_up.resources import ResourceInfo


# resource.k8s.io. The API sets when a taint was added: ``kinds.devices``.


def device_claim(obj: JSON) -> JSON:
    """A claim: one device of each request."""
    return {**obj, "spec": _claim_spec(obj.get("spec") or {}), "status": obj.get("status") or {}}


def template(obj: JSON) -> JSON:
    """A template: the same as its claims."""
    spec = obj.get("spec") or {}
    return {**obj, "spec": {**spec, "spec": _claim_spec(spec.get("spec") or {})}}


def device_class(obj: JSON) -> JSON:
    """A class: without a spec, it selects every device."""
    return {**obj, "spec": obj.get("spec") or {}}


def _claim_spec(spec: JSON) -> JSON:
    devices = spec.get("devices") or {}
    if devices.get("requests"):
        devices = {**devices, "requests": [_request(each) for each in devices["requests"]]}
    return {**spec, "devices": devices}


def _request(request: JSON) -> JSON:
    found = dict(request)
    if found.get("exactly") is not None:
        found["exactly"] = _desired(found["exactly"])
    if found.get("firstAvailable"):
        found["firstAvailable"] = [_desired(each) for each in found["firstAvailable"]]
    return found


def _desired(request: JSON) -> JSON:
    found = {**request, "allocationMode": request.get("allocationMode") or "ExactCount"}
    if found["allocationMode"] == "ExactCount":
        found["count"] = request.get("count") or 1
    return found


# Claims, volumes and storage.k8s.io.

_SNAPSHOTS = "snapshot.storage.k8s.io"
_DRIVER: JSON = {
    "attachRequired": True,
    "podInfoOnMount": False,
    "storageCapacity": False,
    "fsGroupPolicy": "ReadWriteOnceWithFSType",
    "volumeLifecycleModes": ["Persistent"],
    "requiresRepublish": False,
    "preventPodSchedulingIfMissing": False,
    "seLinuxMount": False,
}


def claim(obj: JSON) -> JSON:
    """A claim: a file system, with its data source in both fields."""
    spec = _with_sources({"volumeMode": "Filesystem", **(obj.get("spec") or {})})
    status = {"phase": "Pending", **(obj.get("status") or {})}
    return {**obj, "spec": {"resources": {}, **spec}, "status": status}


def _with_sources(spec: JSON) -> JSON:
    """A data source given in either field is set in both.

    Sources other than claims and snapshots are only references."""
    source, reference = spec.get("dataSource"), spec.get("dataSourceRef")
    if source is not None and not _is_source(source):
        spec = {key: value for key, value in spec.items() if key != "dataSource"}
        source = None
    if reference is None:
        reference = source
    elif source is None and not reference.get("namespace") and _is_source(reference):
        source = reference
    found = {"dataSource": source, "dataSourceRef": reference}
    return {**spec, **{key: _typed(value) for key, value in found.items() if value is not None}}


def _typed(source: JSON) -> JSON:
    return {"apiGroup": None, **source}


def _is_source(source: JSON) -> bool:
    desired = {"": "PersistentVolumeClaim", _SNAPSHOTS: "VolumeSnapshot"}
    return desired.get(source.get("apiGroup") or "") == source.get("kind")


def volume(obj: JSON) -> JSON:
    """A volume: a file system that is retained when its claim is deleted."""
    spec = dict(obj.get("spec") or {})
    spec["persistentVolumeReclaimPolicy"] = spec.get("persistentVolumeReclaimPolicy") or "Retain"
    spec.setdefault("volumeMode", "Filesystem")
    if spec.get("hostPath") is not None:
        spec["hostPath"] = {**spec["hostPath"], "type": spec["hostPath"].get("type") or ""}
    if spec.get("iscsi") is not None:
        spec["iscsi"] = {"iscsiInterface": "default", **spec["iscsi"]}
    status = {"phase": "Pending", **(obj.get("status") or {})}
    return {**obj, "spec": spec, "status": status}


def storage_class(obj: JSON) -> JSON:
    """A class: volumes are provisioned at once and deleted with their claim."""
    return {
        **obj,
        "reclaimPolicy": obj.get("reclaimPolicy") or "Delete",
        "volumeBindingMode": obj.get("volumeBindingMode") or "Immediate",
    }


def csi_driver(obj: JSON) -> JSON:
    """A driver: volumes are attached, and have the lifecycle of their objects."""
    supplied = {k: v for k, v in (obj.get("spec") or {}).items() if v not in (None, [], "")}
    return {**obj, "spec": {**_DRIVER, **supplied}}


def csi_node(obj: JSON) -> JSON:
    """A node's drivers: null if there are none."""
    drivers = [
        {**driver, "topologyKeys": driver.get("topologyKeys") or None}
        for driver in (obj.get("spec") or {}).get("drivers") or ()
    ]
    return {**obj, "spec": {"drivers": drivers or None}}


def volume_attachment(obj: JSON) -> JSON:
    """An attachment: not attached until reported."""
    return {**obj, "status": {"attached": False, **(obj.get("status") or {})}}


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
    ("", "persistentvolumeclaims"): claim,
    ("", "persistentvolumes"): volume,
    ("coordination.k8s.io", "leases"): _lease,
    ("scheduling.k8s.io", "priorityclasses"): _priority_class,
    ("storage.k8s.io", "storageclasses"): storage_class,
    ("storage.k8s.io", "csidrivers"): csi_driver,
    ("storage.k8s.io", "csinodes"): csi_node,
    ("storage.k8s.io", "volumeattachments"): volume_attachment,
    ("resource.k8s.io", "resourceclaims"): device_claim,
    ("resource.k8s.io", "resourceclaimtemplates"): template,
    ("resource.k8s.io", "deviceclasses"): device_class,
}


def apply(resource: ResourceInfo, obj: JSON) -> JSON:
    """The object with the defaults of its kind."""
    fill = _BY_RESOURCE.get((resource.group, resource.plural))
    return fill(obj) if fill else obj
