"""The cells of ``kubectl get`` for everything but pods."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from kubeletpy_up.printers.cells import UNKNOWN, age_of, human_duration, name_of, since

if TYPE_CHECKING:
    from kubeletpy.base.api.types import JSON


# Devices.


def device_claim(obj: JSON, now: float) -> list[Any]:
    """STATE: pending, allocated, reserved, and whether it is deleted."""
    meta, status = obj.get("metadata") or {}, obj.get("status") or {}
    states = ["deleted"] if meta.get("deletionTimestamp") else []
    if status.get("allocation"):
        states += ["allocated", "reserved"] if status.get("reservedFor") else ["allocated"]
    elif not states:
        states = ["pending"]
    return [name_of(obj), ",".join(states), age_of(obj, now)]


def resource_slice(obj: JSON, now: float) -> list[Any]:
    """NODE, DRIVER and POOL: whose devices, and where."""
    spec = obj.get("spec") or {}
    return [
        name_of(obj),
        spec.get("nodeName", ""),
        spec.get("driver", ""),
        (spec.get("pool") or {}).get("name", ""),
        age_of(obj, now),
    ]


# Claims, volumes and storage.k8s.io.

_UNSET = "<unset>"
_DEFAULTS = (
    "storageclass.kubernetes.io/is-default-class",
    "storageclass.beta.kubernetes.io/is-default-class",
)
_BETA_CLASS = "volume.beta.kubernetes.io/storage-class"
_SHORT = {
    "ReadWriteOnce": "RWO",
    "ReadOnlyMany": "ROX",
    "ReadWriteMany": "RWX",
    "ReadWriteOncePod": "RWOP",
}


def _meta(obj: JSON) -> JSON:
    found: JSON = obj.get("metadata") or {}
    return found


def _phase(obj: JSON) -> str:
    if _meta(obj).get("deletionTimestamp"):
        return "Terminating"
    return str((obj.get("status") or {}).get("phase", ""))


def _class(obj: JSON) -> str:
    annotated = (_meta(obj).get("annotations") or {}).get(_BETA_CLASS)
    return str(annotated or (obj.get("spec") or {}).get("storageClassName") or "")


def access_modes(modes: list[str] | None) -> str:
    """Access modes as their abbreviations: ``RWO,ROX``."""
    return ",".join(text for mode, text in _SHORT.items() if mode in (modes or ()))


def claim(obj: JSON, now: float) -> list[Any]:
    """The volume that a claim is bound to, and its size."""
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    bound = spec.get("volumeName", "")
    return [
        name_of(obj),
        _phase(obj),
        bound,
        (status.get("capacity") or {}).get("storage", "0") if bound else "",
        access_modes(status.get("accessModes")) if bound else "",
        _class(obj),
        spec.get("volumeAttributesClassName") or _UNSET,
        age_of(obj, now),
        spec.get("volumeMode") or _UNSET,
    ]


def volume(obj: JSON, now: float) -> list[Any]:
    """Capacity, policy, and the claim it is bound to."""
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    reference = spec.get("claimRef") or {}
    return [
        name_of(obj),
        (spec.get("capacity") or {}).get("storage", "0"),
        access_modes(spec.get("accessModes")),
        spec.get("persistentVolumeReclaimPolicy", ""),
        _phase(obj),
        f"{reference.get('namespace', '')}/{reference.get('name', '')}" if reference else "",
        _class(obj),
        spec.get("volumeAttributesClassName") or _UNSET,
        status.get("reason", ""),
        age_of(obj, now),
        spec.get("volumeMode") or _UNSET,
    ]


def storage_class(obj: JSON, now: float) -> list[Any]:
    """Provisioner, binding mode and reclaim policy."""
    return [
        name_of(obj),
        obj.get("provisioner", ""),
        obj.get("reclaimPolicy") or "Delete",
        obj.get("volumeBindingMode") or "Immediate",
        bool(obj.get("allowVolumeExpansion")),
        age_of(obj, now),
    ]


def default_class(classes: Iterable[JSON]) -> str:
    """The class that a list marks as the default: the newest, then the first by name; or empty."""
    marked = [
        obj
        for obj in classes
        if any((_meta(obj).get("annotations") or {}).get(key) == "true" for key in _DEFAULTS)
    ]
    marked.sort(key=name_of)
    marked.sort(key=lambda obj: str(_meta(obj).get("creationTimestamp") or ""), reverse=True)
    return name_of(marked[0]) if marked else ""


def csi_driver(obj: JSON, now: float) -> list[Any]:
    """The requirements of a driver, and the audiences of its tokens."""
    spec = obj.get("spec") or {}
    audiences = [request.get("audience") or "" for request in spec.get("tokenRequests") or ()]
    return [
        name_of(obj),
        bool(spec.get("attachRequired", True)),
        bool(spec.get("podInfoOnMount")),
        bool(spec.get("storageCapacity")),
        ",".join(audiences) if audiences else _UNSET,
        bool(spec.get("requiresRepublish")),
        ",".join(spec.get("volumeLifecycleModes") or ()) or "<none>",
        age_of(obj, now),
    ]


def csi_node(obj: JSON, now: float) -> list[Any]:
    """DRIVERS is the number of drivers on the node."""
    return [name_of(obj), len((obj.get("spec") or {}).get("drivers") or ()), age_of(obj, now)]


def volume_attachment(obj: JSON, now: float) -> list[Any]:
    """The attacher, the volume, the node, and whether the volume is attached."""
    spec = obj.get("spec") or {}
    return [
        name_of(obj),
        spec.get("attacher", ""),
        (spec.get("source") or {}).get("persistentVolumeName") or "",
        spec.get("nodeName", ""),
        bool((obj.get("status") or {}).get("attached")),
        age_of(obj, now),
    ]


def storage_capacity(obj: JSON, now: float) -> list[Any]:
    """The name and the creation timestamp."""
    return [name_of(obj), _meta(obj).get("creationTimestamp")]


_NONE = "<none>"
_ROLE_PREFIX = "node-role.kubernetes.io/"
_ROLE_LABEL = "kubernetes.io/role"
_MAX_ENDPOINTS = 3

Row = Callable[["JSON", float], list[Any]]


def node(obj: JSON, now: float) -> list[Any]:
    """STATUS from the Ready condition; ROLES from the role labels."""
    status, info = obj.get("status") or {}, (obj.get("status") or {}).get("nodeInfo") or {}
    ready = next((c for c in status.get("conditions") or () if c.get("type") == "Ready"), None)
    parts = ["Unknown" if not ready else "Ready" if ready.get("status") == "True" else "NotReady"]
    if (obj.get("spec") or {}).get("unschedulable"):
        parts.append("SchedulingDisabled")
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
        ",".join(parts),
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
        supplied = [i.get("ip") or i.get("hostname") for i in balancer.get("ingress") or ()]
        return ",".join([item for item in supplied if item] + external) or "<pending>"
    return ",".join(external) or _NONE


def service(obj: JSON, now: float) -> list[Any]:
    """PORT(S) is a list of PORT[:NODEPORT]/PROTOCOL."""
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
    parts = [next((k for k in ("Denied", "Approved") if k in kinds), "Pending")]
    if "Failed" in kinds:
        parts.append("Failed")
    if status.get("certificate"):
        parts.append("Issued")
    seconds = spec.get("expirationSeconds")
    return [
        name_of(obj),
        age_of(obj, now),
        spec.get("signerName") or _NONE,
        spec.get("username", ""),
        human_duration(seconds) if seconds is not None else _NONE,
        ",".join(parts),
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
    "persistentvolumeclaims": claim,
    "persistentvolumes": volume,
    "storageclasses": storage_class,
    "csidrivers": csi_driver,
    "csinodes": csi_node,
    "volumeattachments": volume_attachment,
    "csistoragecapacities": storage_capacity,
    "resourceclaims": device_claim,
    "resourceslices": resource_slice,
    "certificatesigningrequests": csr,
    "priorityclasses": priorityclass,
    "serviceaccounts": name_and_age,
}
