"""The cells of ``kubectl get`` for everything but pods."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kubeletpy_up.printers import devices, storage
from kubeletpy_up.printers.cells import age_of, name_of
from kubeletpy_up.printers.times import UNKNOWN, human_duration, since

if TYPE_CHECKING:
    from kubeletpy.base.api.types import JSON

_NONE = "<none>"
_ROLE_PREFIX = "node-role.kubernetes.io/"
_ROLE_LABEL = "kubernetes.io/role"
_MAX_ENDPOINTS = 3

Row = Callable[["JSON", float], list[Any]]


def node(obj: JSON, now: float) -> list[Any]:
    """STATUS from the Ready condition; ROLES from the role labels."""
    status, info = obj.get("status") or {}, (obj.get("status") or {}).get("nodeInfo") or {}
    ready = next((c for c in status.get("conditions") or () if c.get("type") == "Ready"), None)
    words = ["Unknown" if not ready else "Ready" if ready.get("status") == "True" else "NotReady"]
    if (obj.get("spec") or {}).get("unschedulable"):
        words.append("SchedulingDisabled")
    labels = (obj.get("metadata") or {}).get("labels") or {}
    roles = {key.removeprefix(_ROLE_PREFIX) for key in labels if key.startswith(_ROLE_PREFIX)}
    roles.add(labels.get(_ROLE_LABEL) or "")
    kernel = info.get("kernelVersion") or UNKNOWN
    if info.get("architecture"):
        kernel += f" ({info['architecture']})"

    def address(kind: str) -> str:
        return next(
            (
                a.get("address") or ""
                for a in status.get("addresses") or ()
                if a.get("type") == kind
            ),
            _NONE,
        )

    return [
        name_of(obj),
        ",".join(words),
        ",".join(sorted(roles - {""})) or _NONE,
        age_of(obj, now),
        info.get("kubeletVersion", ""),
        address("InternalIP"),
        address("ExternalIP"),
        info.get("osImage") or UNKNOWN,
        kernel,
        info.get("containerRuntimeVersion") or UNKNOWN,
    ]


def _external_address(obj: JSON) -> str:
    spec = obj.get("spec") or {}
    external = list(spec.get("externalIPs") or [])
    if spec.get("type") == "ExternalName":
        return str(spec.get("externalName", ""))
    if spec.get("type") == "LoadBalancer":
        balancer = (obj.get("status") or {}).get("loadBalancer") or {}
        given = [i.get("ip") or i.get("hostname") for i in balancer.get("ingress") or ()]
        return ",".join([item for item in given if item] + external) or "<pending>"
    return ",".join(external) or _NONE


def service(obj: JSON, now: float) -> list[Any]:
    """PORT(S) as PORT[:NODEPORT]/PROTOCOL."""
    spec = obj.get("spec") or {}
    ports = [
        f"{port.get('port')}{':' + str(port['nodePort']) if port.get('nodePort') else ''}"
        f"/{port.get('protocol', 'TCP')}"
        for port in spec.get("ports") or ()
    ]
    selector = ",".join(
        f"{key}={value}" for key, value in sorted((spec.get("selector") or {}).items())
    )
    addresses = spec.get("clusterIPs") or [spec.get("clusterIP")]
    return [
        name_of(obj),
        spec.get("type", ""),
        addresses[0] or _NONE,
        _external_address(obj),
        ",".join(ports) or _NONE,
        age_of(obj, now),
        selector or _NONE,
    ]


def event(obj: JSON, now: float) -> list[Any]:
    """An event of either API; the last time it was seen, what it is about, its message."""
    series = obj.get("series") or {}
    first_time = obj.get("firstTimestamp") or obj.get("deprecatedFirstTimestamp")
    first = since(first_time or obj.get("eventTime"), now)
    last_time = obj.get("lastTimestamp") or obj.get("deprecatedLastTimestamp")
    last = since(last_time, now) if last_time else first
    count = obj.get("count") or obj.get("deprecatedCount") or 1
    if series:
        last, count = since(series.get("lastObservedTime"), now), series.get("count", count)
    about = obj.get("involvedObject") or obj.get("regarding") or {}
    target = str(about.get("kind", "")).lower()
    if about.get("name"):
        target += f"/{about['name']}"
    source = obj.get("source") or obj.get("deprecatedSource") or {}
    component = source.get("component") or obj.get("reportingComponent")
    component = component or obj.get("reportingController") or ""
    host = source.get("host") or obj.get("reportingInstance") or ""
    return [
        last,
        obj.get("type", ""),
        obj.get("reason", ""),
        target,
        about.get("fieldPath", ""),
        f"{component}, {host}" if host else component,
        str(obj.get("message") or obj.get("note") or "").strip(),
        first,
        count,
        name_of(obj),
    ]


def endpoints(obj: JSON, now: float) -> list[Any]:
    """The first three addresses with their ports."""
    found: list[str] = []
    for subset in obj.get("subsets") or ():
        addresses = [entry.get("ip", "") for entry in subset.get("addresses") or ()]
        for port in subset.get("ports") or [{}]:
            suffix = f":{port['port']}" if "port" in port else ""
            found += [
                f"[{ip}]{suffix}" if ":" in ip and suffix else ip + suffix for ip in addresses
            ]
    text = ",".join(found[:_MAX_ENDPOINTS]) or _NONE
    if len(found) > _MAX_ENDPOINTS:
        text += f" + {len(found) - _MAX_ENDPOINTS} more..."
    return [name_of(obj), text, age_of(obj, now)]


def configmap(obj: JSON, now: float) -> list[Any]:
    """DATA counts the keys."""
    count = len(obj.get("data") or {}) + len(obj.get("binaryData") or {})
    return [name_of(obj), count, age_of(obj, now)]


def secret(obj: JSON, now: float) -> list[Any]:
    """DATA counts the keys; values are never shown."""
    return [name_of(obj), obj.get("type", ""), len(obj.get("data") or {}), age_of(obj, now)]


def namespace(obj: JSON, now: float) -> list[Any]:
    """STATUS is the phase."""
    return [name_of(obj), (obj.get("status") or {}).get("phase", ""), age_of(obj, now)]


def lease(obj: JSON, now: float) -> list[Any]:
    """HOLDER is who holds it."""
    return [name_of(obj), (obj.get("spec") or {}).get("holderIdentity") or "", age_of(obj, now)]


def runtimeclass(obj: JSON, now: float) -> list[Any]:
    """HANDLER is the CRI's name for it."""
    return [name_of(obj), obj.get("handler", ""), age_of(obj, now)]


def csr(obj: JSON, now: float) -> list[Any]:
    """CONDITION is the outcome of the request."""
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    kinds = [c.get("type") for c in status.get("conditions") or ()]
    words = [next((k for k in ("Denied", "Approved") if k in kinds), "Pending")]
    if "Failed" in kinds:
        words.append("Failed")
    if status.get("certificate"):
        words.append("Issued")
    seconds = spec.get("expirationSeconds")
    return [
        name_of(obj),
        age_of(obj, now),
        spec.get("signerName") or _NONE,
        spec.get("username", ""),
        human_duration(seconds) if seconds is not None else _NONE,
        ",".join(words),
    ]


def priorityclass(obj: JSON, now: float) -> list[Any]:
    """VALUE, and whether it is the default."""
    return [
        name_of(obj),
        obj.get("value", 0),
        bool(obj.get("globalDefault")),
        age_of(obj, now),
        obj.get("preemptionPolicy", ""),
    ]


def name_and_age(obj: JSON, now: float) -> list[Any]:
    """NAME and AGE: for kinds without columns of their own."""
    return [name_of(obj), age_of(obj, now)]


ROWS: dict[str, Row] = {
    "nodes": node,
    "services": service,
    "events": event,
    "endpoints": endpoints,
    "configmaps": configmap,
    "secrets": secret,
    "namespaces": namespace,
    "leases": lease,
    "runtimeclasses": runtimeclass,
    "persistentvolumeclaims": storage.claim,
    "persistentvolumes": storage.volume,
    "storageclasses": storage.storage_class,
    "csidrivers": storage.csi_driver,
    "csinodes": storage.csi_node,
    "volumeattachments": storage.volume_attachment,
    "csistoragecapacities": storage.storage_capacity,
    "resourceclaims": devices.claim,
    "resourceslices": devices.resource_slice,
    "certificatesigningrequests": csr,
    "priorityclasses": priorityclass,
    "serviceaccounts": name_and_age,
}
