"""Which resources this API serves, with their names, kinds, verbs and subresources. Pure.

Loaded once from the discovery facts in ``data/api-resources.json``. Kinds that nothing here acts on
(deployments, quotas, …) are listed, but never stored: :mod:`kubeletpy_up.cluster_kinds` has the
reasons. Must never depend on how a resource behaves: :mod:`kubeletpy_up.registry.registry` does.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from typing import Any

from kubeletpy.base.structs import Struct, replace
from kubeletpy_up import cluster_kinds
from kubeletpy_up.data import load_json

_NOT_SERVED = frozenset(
    {
        # Nothing here acts on these: kinds of a cluster, and one that nobody writes.
        "replicationcontrollers",
        "podtemplates",
        "resourcequotas",
        "limitranges",
        "componentstatuses",
        "volumeattributesclasses",
        "selfsubjectrulesreviews",
        "devicetaintrules",
        # The agent requests these where pods mount them; no signer and no publisher is here.
        "clustertrustbundles",
        "podcertificaterequests",
        # Drivers report their storage in it, but its gate is off.
        "csinodes/status",
        # Proxying to a workload.
        "services/proxy",
        "pods/proxy",
    }
)
METRICS_GROUP = "metrics.k8s.io"
_METRICS = {
    f"/apis/{METRICS_GROUP}/v1beta1": [
        {"name": "nodes", "singularName": "", "namespaced": False, "kind": "NodeMetrics"},
        {"name": "pods", "singularName": "", "namespaced": True, "kind": "PodMetrics"},
    ]
}
"""The resources that a metrics server adds to an API; answered by the nodes."""
PROXIED = frozenset({"nodes/proxy", "pods/attach", "pods/exec", "pods/log", "pods/portforward"})
"""Subresources that the node's own server answers: no object is read or written."""


class SubresourceInfo(Struct, frozen=True):
    """A path below an object, such as ``status``: its kind (perhaps of another group) and verbs."""

    name: str
    kind: str
    verbs: tuple[str, ...]
    group: str = ""
    version: str = ""


@dataclass(frozen=True, slots=True)
class ResourceInfo:
    """One resource of one group and version. ``group`` is empty for the core group."""

    group: str
    version: str
    plural: str
    kind: str
    singular: str
    namespaced: bool
    verbs: tuple[str, ...]
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    subresources: tuple[SubresourceInfo, ...] = ()
    entries: tuple[dict[str, Any], ...] = field(default=(), compare=False, repr=False)
    """The discovery entries (resource first, then subresources) as in APIResourceList."""
    refusal: str = ""
    """Why nothing of it is stored: the message that answers every write. Empty: it is stored."""

    @property
    def group_version(self) -> str:
        """``v1`` or ``GROUP/VERSION``: the objects' apiVersion."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def api_path(self) -> str:
        """The path of its group: ``/api/v1`` or ``/apis/GROUP/VERSION``."""
        return f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"

    @property
    def key(self) -> str:
        """``pods`` or ``leases.coordination.k8s.io``: unique among all resources."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def storage_key(self) -> str:
        """The key that objects are stored under: both event APIs show the same objects."""
        return "events" if self.plural == "events" else self.key

    def is_proxied(self, subresource: str) -> bool:
        """Whether a subresource is answered by a node."""
        return not self.group and f"{self.plural}/{subresource}" in PROXIED

    def subresource(self, name: str) -> SubresourceInfo | None:
        """The subresource of that name, if there is one."""
        return next((s for s in self.subresources if s.name == name), None)


def _served(name: str) -> bool:
    return name not in _NOT_SERVED and name.split("/", maxsplit=1)[0] not in _NOT_SERVED


@cache
def raw() -> dict[str, Any]:
    """The whole fact table: ``version``, ``resources``, ``table_columns``."""
    loaded: dict[str, Any] = load_json("api-resources.json")
    return loaded


@cache
def all_resources() -> tuple[ResourceInfo, ...]:
    """Every resource that objects are stored of or that answers, in discovery order."""
    found: list[ResourceInfo] = []
    added = {
        path: [{**entry, "verbs": ["get", "list"]} for entry in entries]
        for path, entries in _METRICS.items()
    }
    for path, listed in {**raw()["resources"], **added}.items():
        group_version = path.removeprefix("/apis/").removeprefix("/api/")
        group, _, version = group_version.rpartition("/")
        entries = [entry for entry in listed if _served(entry["name"])]
        for entry in entries:
            if "/" not in entry["name"]:
                found.append(_resource(group, version, entry, entries))
    return tuple(found)


def _resource(
    group: str, version: str, entry: dict[str, Any], entries: list[dict[str, Any]]
) -> ResourceInfo:
    name = entry["name"]
    below = [other for other in entries if other["name"].startswith(name + "/")]
    return ResourceInfo(
        group=group,
        version=version,
        plural=name,
        kind=entry["kind"],
        singular=entry["singularName"],
        namespaced=entry["namespaced"],
        verbs=tuple(entry["verbs"]),
        short_names=tuple(entry.get("shortNames", ())),
        categories=tuple(entry.get("categories", ())),
        subresources=tuple(
            SubresourceInfo(
                other["name"].split("/", 1)[1],
                other["kind"],
                tuple(other["verbs"]),
                other.get("group", ""),
                other.get("version", ""),
            )
            for other in below
        ),
        entries=(entry, *below),
    )


@cache
def listed_resources() -> tuple[ResourceInfo, ...]:
    """The resources in discovery: all that are stored, then the kinds of a cluster."""
    refused = (
        replace(_resource(each.group, each.version, each.entry(), []), refusal=each.refusal)
        for each in cluster_kinds.CLUSTER_KINDS
    )
    return (*all_resources(), *refused)


@cache
def _by_key() -> dict[str, ResourceInfo]:
    # of several versions, the first
    return {resource.key: resource for resource in reversed(listed_resources())}


@cache
def _by_plural() -> dict[str, ResourceInfo]:
    found: dict[str, ResourceInfo] = {}
    for resource in listed_resources():
        found.setdefault(resource.plural, resource)
    return found


@cache
def _by_path() -> dict[tuple[str, str, str], ResourceInfo]:
    return {(r.group, r.version, r.plural): r for r in listed_resources()}


def find(name: str) -> ResourceInfo | None:
    """A resource by key (``events.events.k8s.io``) or plural (``pods``, core first)."""
    return _by_key().get(name) or _by_plural().get(name)


def find_in_group(group: str, version: str, plural: str) -> ResourceInfo | None:
    """A resource as a request path names it."""
    return _by_path().get((group, version, plural))


@cache
def find_kind(group_version: str, kind: str) -> ResourceInfo | None:
    """The stored resource of an apiVersion and kind."""
    found = (r for r in all_resources() if (r.group_version, r.kind) == (group_version, kind))
    return next((r for r in found if "delete" in r.verbs), None)


@cache
def group_versions() -> tuple[tuple[str, str], ...]:
    """Served (group, version) pairs in discovery order, the core group (``("", "v1")``) first."""
    return tuple(dict.fromkeys((r.group, r.version) for r in listed_resources()))
