"""The Node object as registered, and its status as kept up to date. Pure: time is an argument."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import cast

from kubeletpy.base.api import names as node_labels
from kubeletpy.base.api import types as api
from kubeletpy.base.api.types import JSON
from kubeletpy.base.structs import Struct
from kubeletpy.node.conditions import NodeHealth, node_conditions
from kubeletpy.node.facts import MachineFacts
from kubeletpy.node.options import NodeOptions
from kubeletpy.node.resources import allocatable, capacity, with_foreign
from kubeletpy.pods.granted import NO_DEVICES, DeviceCounts

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


def shown_addresses(
    options: NodeOptions,
    node_ips: Sequence[str],
    hostname: str,
    shown: Sequence[api.NodeAddress],
) -> list[api.NodeAddress]:
    """The addresses of a status; with a cloud controller, those that it has set are kept.

    Until it has set any, the node shows --node-ip, or only its name without that flag.
    Source: docs/reference/behaviour.md, o1.
    """
    if options.external_cloud_provider:
        if shown:
            return list(shown)
        if not options.node_ips:
            node_ips = ()
    return node_addresses(node_ips, hostname)


def provided_ips(options: NodeOptions) -> str:
    """The --node-ip annotation for a cloud controller; empty: none."""
    given = options.node_ips
    if not options.external_cloud_provider or not given or given[0] in ("0.0.0.0", "::"):
        return ""
    return ",".join(given)


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
        "addresses": shown_addresses(options, node_ips, hostname, old.get("addresses") or ()),
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
    shown = old.get("volumesInUse") or []
    listed = list(shown if in_use is None else in_use)
    return {**status, "volumesInUse": listed} if listed or shown else status


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


def metadata_patch(existing: api.Node, wanted: api.Node) -> dict[str, object] | None:
    """Labels and annotations to change on a node that is already registered."""
    labels = existing["metadata"].get("labels") or {}
    wanted_labels = wanted["metadata"].get("labels") or {}
    changed = {
        key: wanted_labels[key]
        for key in node_labels.SYNCED
        if key in wanted_labels and labels.get(key) != wanted_labels[key]
    }
    notes = existing["metadata"].get("annotations") or {}
    wanted_notes = wanted["metadata"].get("annotations") or {}
    new_notes: dict[str, str | None] = {
        key: text for key, text in wanted_notes.items() if notes.get(key) != text
    }
    for key in (CONTROLLER_ATTACHES, PROVIDED_IPS):
        if key in notes and key not in wanted_notes:
            new_notes[key] = None
    metadata: dict[str, object] = {}
    if changed:
        metadata["labels"] = changed
    if new_notes:
        metadata["annotations"] = new_notes
    return {"metadata": metadata} if metadata else None


def removed_metadata(node: api.Node, wanted: api.Node) -> JSON | None:
    """A patch with the labels and annotations of a registration that the node no longer has.

    Only keys that a start corrects too; one that has another value is left as it is.
    """
    patch = metadata_patch(node, wanted)
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


def is_ready(status: api.NodeStatus) -> bool:
    """Whether a status shows the node as Ready."""
    return any(
        condition.get("type") == "Ready" and condition.get("status") == "True"
        for condition in status.get("conditions") or ()
    )
