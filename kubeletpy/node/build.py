"""The Node object: its registration, conditions and events, and patches of its status. Pure.

Time is an argument. The fields of others (other conditions, ``volumesAttached``, ``config``) are
neither compared nor sent.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any, cast

from kubeletpy.base.api import names as node_labels
from kubeletpy.base.api import types as api
from kubeletpy.base.api.times import format_time
from kubeletpy.base.api.types import JSON
from kubeletpy.base.structs import Struct
from kubeletpy.kubeapi.events.reasons import Reason
from kubeletpy.node.facts import MachineFacts, NodeOptions, allocatable, capacity, with_foreign
from kubeletpy.pods.pod import NO_DEVICES, DeviceCounts
from kubeletpy.status.conditions import is_ready

# Health and conditions. Source: docs/reference/reasons.csv: node-condition.

RUNTIME_DOWN_AFTER_S = 30.0
"""Without a good answer for this long, the runtime is considered down."""


class NodeHealth(Struct, frozen=True):
    """The problems that decide whether the node is Ready."""

    runtime_error: str = ""
    """Why the runtime is not usable; empty when it is fine."""
    network_error: str = ""
    pleg_error: str = ""
    storage_error: str = ""
    shutting_down: bool = False
    pressures: Collection[str] = ()
    """Pressure conditions that are true; they do not keep the node from being Ready."""
    unanswered: Sequence[str] = ()
    """The problems that only mean that nobody has answered yet."""
    cgroup_error: str = ""
    """Why pods can't be limited: the runtime uses another cgroup driver."""

    def problems(self) -> list[str]:
        """Everything that keeps the node from being Ready."""
        found = [
            text
            for text in (
                self.runtime_error,
                self.network_error,
                self.storage_error,
                self.pleg_error,
                self.cgroup_error,
            )
            if text
        ]
        if self.shutting_down:
            found.append("node is shutting down")
        return found


def network_not_ready(message: str) -> str:
    """How a runtime without a network is described."""
    return f"container runtime network not ready: {message}"


CONDITIONS = {
    ("MemoryPressure", True): (
        Reason.NODE_HAS_INSUFFICIENT_MEMORY,
        "kubelet has insufficient memory available",
    ),
    ("MemoryPressure", False): (
        Reason.NODE_HAS_SUFFICIENT_MEMORY,
        "kubelet has sufficient memory available",
    ),
    ("DiskPressure", True): (Reason.NODE_HAS_DISK_PRESSURE, "kubelet has disk pressure"),
    ("DiskPressure", False): (Reason.NODE_HAS_NO_DISK_PRESSURE, "kubelet has no disk pressure"),
    ("PIDPressure", True): (
        Reason.NODE_HAS_INSUFFICIENT_PID,
        "kubelet has insufficient PID available",
    ),
    ("PIDPressure", False): (
        Reason.NODE_HAS_SUFFICIENT_PID,
        "kubelet has sufficient PID available",
    ),
    ("Ready", True): (Reason.NODE_READY, "kubelet is posting ready status"),
    ("Ready", False): (Reason.NODE_NOT_READY, ""),
}
"""The event of each condition's change, and the message of the condition. Its reason is that of the
event with Kubelet in place of Node. Source: docs/reference/events.csv: NodeReady, NodeNotReady,
NodeHasSufficientMemory, Rebooted."""


def node_conditions(
    old: Iterable[api.NodeCondition], health: NodeHealth, now: float
) -> list[api.NodeCondition]:
    """The conditions set by others, followed by the node's own.

    Args:
        old: the conditions shown before; those set by others are kept.
        now: Unix seconds.
    """
    before, stated = {condition["type"]: condition for condition in old}, format_time(now)
    problems = health.problems()
    held = {*health.pressures, *(() if problems else ("Ready",))}
    own: dict[str, api.NodeCondition] = {}
    for (kind, value), (event, message) in CONDITIONS.items():
        if value is (kind in held):
            reported = before.get(kind) or {}
            same = reported.get("status") == str(value)
            own[kind] = {
                "type": kind,
                "status": str(value),
                "lastHeartbeatTime": stated,
                "lastTransitionTime": (same and reported.get("lastTransitionTime")) or stated,
                "reason": f"Kubelet{event.removeprefix('Node')}",
                "message": message,
            }
    if problems:
        message = problems[0] if len(problems) == 1 else f"[{', '.join(problems)}]"
        own["Ready"]["message"] = message
    others = (condition for kind, condition in before.items() if kind not in own)
    return [*others, *own.values()]


MAX_NAMES_PER_IMAGE = 5
CONTROLLER_ATTACHES = "volumes.kubernetes.io/controller-managed-attach-detach"
PROVIDED_IPS = "alpha.kubernetes.io/provided-node-ip"
UNINITIALIZED_TAINT: api.Taint = {
    "key": "node.cloudprovider.kubernetes.io/uninitialized",
    "value": "true",
    "effect": "NoSchedule",
}


class RuntimeStart(Struct, frozen=True):
    """Where the container runtime listens, and what starts it.

    Attributes:
        unit: the runtime's unit; "" where systemd does not run, or the unit is unknown.
        by_up: ./up.sh has its own runtime there.
    """

    endpoint: str = ""
    unit: str = ""
    by_up: bool = False


class RuntimeInfo(Struct, frozen=True):
    """The runtime's report about itself, for the Node object."""

    name: str = ""
    version: str = ""
    handlers: Sequence[api.NodeRuntimeHandler] = ()
    supplemental_groups_policy: bool = False
    features: frozenset[str] = frozenset()
    """Fields of the CRI's RuntimeFeatures, besides the one above, that the runtime reports."""

    def handlers_with(self, feature: str) -> frozenset[str]:
        """Handlers that report a feature; "" is the default one."""
        return frozenset(
            handler.get("name") or ""
            for handler in self.handlers
            if (handler.get("features") or {}).get(feature)
        )


class ImageSummary(Struct, frozen=True):
    """One image in the runtime."""

    names: Sequence[str]
    """Digests first, then tags."""
    size_bytes: int


def default_labels(hostname: str, architecture: str) -> dict[str, str]:
    """The labels that every node has (docs/reference/names.csv: node-label)."""
    return {
        "kubernetes.io/hostname": hostname,
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": architecture,
        "beta.kubernetes.io/os": "linux",
        "beta.kubernetes.io/arch": architecture,
    }


def node_images(images: Iterable[ImageSummary], limit: int) -> list[api.ContainerImage]:
    """The images that a node reports: largest first, at most ``limit`` (-1: all)."""
    ordered = sorted(images, key=lambda image: (-image.size_bytes, list(image.names)))
    kept = ordered if limit < 0 else ordered[:limit]
    return [
        {"names": list(image.names)[:MAX_NAMES_PER_IMAGE], "sizeBytes": image.size_bytes}
        for image in kept
    ]


def reported_addresses(
    options: NodeOptions,
    node_ips: Sequence[str],
    hostname: str,
    reported: Sequence[api.NodeAddress],
) -> list[api.NodeAddress]:
    """The addresses of a status; with a cloud controller, those that it has set are kept.

    Until it has set any, the node shows --node-ip, or only its name without that flag.
    Source: docs/reference/behaviour.md, o1.
    """
    if options.external_cloud_provider:
        if reported:
            return list(reported)
        if not options.node_ips:
            node_ips = ()
    return node_addresses(node_ips, hostname)


def provided_ips(options: NodeOptions) -> str:
    """The --node-ip annotation for a cloud controller; empty: none."""
    supplied = options.node_ips
    if not options.external_cloud_provider or not supplied or supplied[0] in ("0.0.0.0", "::"):
        return ""
    return ",".join(supplied)


def node_addresses(node_ips: Sequence[str], hostname: str) -> list[api.NodeAddress]:
    """An InternalIP for each address, then the Hostname."""
    addresses: list[api.NodeAddress] = [
        {"type": "InternalIP", "address": address} for address in node_ips
    ]
    addresses.append({"type": "Hostname", "address": hostname})
    return addresses


def node_status(
    facts: MachineFacts,
    options: NodeOptions,
    runtime: RuntimeInfo,
    *,
    node_ips: Sequence[str],
    hostname: str,
    images: Iterable[ImageSummary],
    health: NodeHealth,
    old: api.NodeStatus,
    now: float,
    devices: DeviceCounts = NO_DEVICES,
) -> api.NodeStatus:
    """The whole status of the node (docs/reference/behaviour.md, o1)."""
    total = with_foreign(capacity(facts, options), old.get("capacity") or {}, devices)
    status: api.NodeStatus = {
        "addresses": reported_addresses(options, node_ips, hostname, old.get("addresses") or ()),
        "capacity": total,
        "allocatable": allocatable(total, options, devices),
        "conditions": node_conditions(old.get("conditions") or (), health, now),
        "images": node_images(images, options.max_images),
        "nodeInfo": {
            "machineID": facts.machine_id,
            "systemUUID": facts.system_uuid,
            "bootID": facts.boot_id,
            "kernelVersion": facts.kernel_version,
            "osImage": facts.os_image,
            "containerRuntimeVersion": f"{runtime.name}://{runtime.version}",
            "kubeletVersion": options.version,
            "kubeProxyVersion": "",
            "operatingSystem": "linux",
            "architecture": facts.architecture,
        },
    }
    if options.kubelet_port:
        status["daemonEndpoints"] = {"kubeletEndpoint": {"Port": options.kubelet_port}}
    if facts.swap_bytes:
        status["nodeInfo"]["swap"] = {"capacity": facts.swap_bytes}
    if options.report_user_namespace:
        status["nodeInfo"]["runningInUserNamespace"] = facts.in_user_namespace
    if runtime.handlers:
        status["runtimeHandlers"] = list(runtime.handlers)
    if runtime.supplemental_groups_policy:
        status["features"] = {"supplementalGroupsPolicy": True}
    if options.declared_features:
        status["declaredFeatures"] = list(options.declared_features)
    return status


def with_volumes_in_use(
    status: api.NodeStatus, in_use: Sequence[str] | None, old: api.NodeStatus
) -> api.NodeStatus:
    """A status with the volumes that must not be detached; None: the API's list stays.

    Source: docs/reference/behaviour-storage.md, se2.
    """
    reported = old.get("volumesInUse") or []
    listed = list(reported if in_use is None else in_use)
    return {**status, "volumesInUse": listed} if listed or reported else status


def new_node(
    options: NodeOptions, hostname: str, architecture: str, status: api.NodeStatus
) -> api.Node:
    """The Node object for a node that is not yet in the API."""
    taints = list(options.taints)
    if options.external_cloud_provider:
        taints.append(UNINITIALIZED_TAINT)
    spec: api.NodeSpec = {}
    if taints:
        spec["taints"] = taints
    if options.provider_id:
        spec["providerID"] = options.provider_id
    metadata: api.ObjectMeta = {
        "name": options.name,
        "labels": {**default_labels(hostname, architecture), **options.labels},
    }
    notes = {}
    if options.controller_attach_detach:
        notes[CONTROLLER_ATTACHES] = "true"
    if ips := provided_ips(options):
        notes[PROVIDED_IPS] = ips
    if notes:
        metadata["annotations"] = notes
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": metadata,
        "spec": spec,
        "status": status,
    }


def initial_node(
    facts: MachineFacts,
    options: NodeOptions,
    runtime: RuntimeInfo,
    *,
    node_ips: Sequence[str],
    now: float,
) -> api.Node:
    """The node as it would be registered now."""
    status = node_status(
        facts,
        options,
        runtime,
        node_ips=node_ips,
        hostname=facts.hostname,
        images=(),
        health=NodeHealth(),
        old={},
        now=now,
    )
    return new_node(options, facts.hostname, facts.architecture, status)


def metadata_patch(existing: api.Node, desired: api.Node) -> dict[str, object] | None:
    """Labels and annotations to change on a node that is already registered."""
    labels = existing["metadata"].get("labels") or {}
    desired_labels = desired["metadata"].get("labels") or {}
    changed = {
        key: desired_labels[key]
        for key in node_labels.SYNCED
        if key in desired_labels and labels.get(key) != desired_labels[key]
    }
    notes = existing["metadata"].get("annotations") or {}
    desired_notes = desired["metadata"].get("annotations") or {}
    new_notes: dict[str, str | None] = {
        key: text for key, text in desired_notes.items() if notes.get(key) != text
    }
    for key in (CONTROLLER_ATTACHES, PROVIDED_IPS):
        if key in notes and key not in desired_notes:
            new_notes[key] = None
    metadata: dict[str, object] = {}
    if changed:
        metadata["labels"] = changed
    if new_notes:
        metadata["annotations"] = new_notes
    return {"metadata": metadata} if metadata else None


def removed_metadata(node: api.Node, desired: api.Node) -> JSON | None:
    """A patch with the labels and annotations of a registration that the node no longer has.

    Only keys that a start corrects too; one that has another value is left as it is.
    """
    patch = metadata_patch(node, desired)
    changes = cast(JSON, (patch or {}).get("metadata") or {})
    lost = {
        kind: missing
        for kind, values in changes.items()
        if (
            missing := {
                key: value
                for key, value in values.items()
                if value is not None and key not in (cast(JSON, node["metadata"]).get(kind) or {})
            }
        )
    }
    return {"metadata": lost} if lost else None


def machine_labels(node: api.Node, architecture: str) -> JSON | None:
    """A patch for a node whose labels name the wrong operating system or architecture."""
    labels = node["metadata"].get("labels") or {}
    true = {"kubernetes.io/os": "linux", "kubernetes.io/arch": architecture}
    wrong = {key: value for key, value in true.items() if labels.get(key) != value}
    return {"metadata": {"labels": wrong}} if wrong else None


# The first status after a start.
#
# An agent that has just started has no answer yet about its runtime, nor about the readiness for
# volumes. A status written before that would show the node as not Ready although it has been
# Ready all the time. An event would follow, and a second later another status and event. The
# kubelet writes both.


class FirstStatus(Struct, frozen=True):
    """Whether to wait before the first status.

    Attributes:
        wait: seconds to wait at most, until something is known; 0: write it.
        why: for people.
    """

    wait: float
    why: str


def first_status(
    reported: api.NodeStatus, health: NodeHealth, waited: float, period: float
) -> FirstStatus:
    """Decide whether a node that the API shows as Ready waits with its first status.

    It waits for one period at most: after that, the API's status would be older than it is at any
    other time. It never waits longer than a runtime may be silent.

    Args:
        reported: the status in the API.
        health: the content of a status written now.
        waited: seconds since the node was registered.
        period: nodeStatusUpdateFrequency, in seconds.

    Source: docs/reference/behaviour.md, o2, o4.
    """
    if not is_ready(reported):
        return FirstStatus(0.0, "the API does not show the node as Ready")
    known = [problem for problem in health.problems() if problem not in health.unanswered]
    if known:
        return FirstStatus(0.0, f"known: {known[0]}")
    if not health.unanswered:
        return FirstStatus(0.0, "everything has answered")
    left = min(period, RUNTIME_DOWN_AFTER_S) - waited
    if left <= 0:
        return FirstStatus(0.0, f"waited for {waited:.1f} s: {health.unanswered[0]}")
    return FirstStatus(left, f"not answered yet: {health.unanswered[0]}")


# Patches of the status. A field of the node's own that has no content any more is removed.
# Source: docs/reference/behaviour.md, o1, o2.

_MAPS = ("capacity", "allocatable")
"""Maps of a status: a patch removes only the keys that it names."""
_OPTIONAL = ("runtimeHandlers", "features", "declaredFeatures", "daemonEndpoints")
"""Fields of the node's own that a status has only with content."""
_OPTIONAL_INFO = ("swap",)
_LISTS = ("images", "runtimeHandlers", "declaredFeatures")
"""The API leaves these out when they are empty."""
_CONDITIONS = ("MemoryPressure", "DiskPressure", "PIDPressure", "Ready")


def is_changes(reported: api.NodeStatus, status: api.NodeStatus) -> bool:
    """Whether a status is worth a write of its own: more than the heartbeat times has changed.

    Args:
        reported: the status in the API.
        status: what the node would write.
    """
    return _comparable(reported, status) != _comparable(status, status)


def status_patch(reported: api.NodeStatus, status: api.NodeStatus, *, unsure: bool) -> JSON:
    """The strategic merge patch from one to the other; lists that would be merged are replaced.

    Args:
        reported: the status in the API.
        status: what the node writes.
        unsure: ``reported`` may be outdated. All fields are sent, except lists that others write
            too.
    """
    always = set(status) - {"addresses", "volumesInUse"} if unsure else set[str]()
    before, new = _with_content(reported), cast(JSON, status)
    changed = {
        name: value
        for name, value in new.items()
        if name != "conditions" and (name in always or value != before.get(name))
    }
    changed.update({name: None for name in _OPTIONAL if name not in new and before.get(name)})
    for name in _MAPS:
        if name in changed:
            changed[name] = {**dict.fromkeys(before.get(name) or {}), **changed[name]}
    if "nodeInfo" in changed:
        info = before.get("nodeInfo") or {}
        removed = {name: None for name in _OPTIONAL_INFO if name in info}
        changed["nodeInfo"] = {**removed, **changed["nodeInfo"]}
    if "addresses" in changed:
        changed["addresses"] = [*changed["addresses"], {"$patch": "replace"}]
    changed["conditions"] = [
        condition for condition in status["conditions"] if condition["type"] in _CONDITIONS
    ]
    return changed


def _with_content(status: api.NodeStatus) -> JSON:
    """A status without ``daemonEndpoints`` of port 0: that is how the API shows no port at all."""
    endpoint = (status.get("daemonEndpoints") or {}).get("kubeletEndpoint") or {}
    plain = cast(JSON, status)
    if endpoint.get("Port"):
        return plain
    return {name: value for name, value in plain.items() if name != "daemonEndpoints"}


def _comparable(status: api.NodeStatus, own: api.NodeStatus) -> dict[str, Any]:
    """The fields that the node writes, as far as ``status`` has them, in a form to compare."""
    plain = _with_content(status)
    found = {name: plain[name] for name in (*own, *_OPTIONAL) if name in plain}
    found = {name: value for name, value in found.items() if value or name not in _LISTS}
    known = {*(own.get("nodeInfo") or {}), *_OPTIONAL_INFO}
    info = found.get("nodeInfo") or {}
    found["nodeInfo"] = {name: value for name, value in info.items() if name in known}
    found["conditions"] = {
        condition.get("type"): {k: v for k, v in condition.items() if k != "lastHeartbeatTime"}
        for condition in plain.get("conditions") or ()
    }
    return found


def condition_events(old: api.NodeStatus, new: api.NodeStatus) -> list[Reason]:
    """Event reasons for conditions whose status has changed.

    That a new node is not Ready yet is no change, as in the kubelet.
    """
    before = {entry["type"]: entry.get("status") for entry in old.get("conditions") or ()}
    reasons = []
    for entry in new.get("conditions") or ():
        kind, status = entry["type"], entry.get("status", "")
        found = CONDITIONS.get((kind, status == "True"))
        if before.get(kind) == status or status not in ("True", "False") or found is None:
            continue
        if kind == "Ready" and kind not in before and status == "False":
            continue
        reasons.append(found[0])
    return reasons
