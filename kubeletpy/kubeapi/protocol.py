"""A Kubernetes API in plain JSON: verbs for callers, calls as data for implementations.

The real client (:mod:`kubeletpy.kubeapi.client`) and the simulated one answer calls. This module
must never mention a transport (no aiohttp, no URLs); errors: :mod:`kubeletpy.kubeapi.errors`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from enum import Enum
from functools import cached_property
from typing import Any, Literal
from urllib.parse import quote

from kubeletpy.base.api.types import JSON
from kubeletpy.base.structs import Struct
from kubeletpy.kubeapi.errors import BadRequest, Unavailable
from kubeletpy.kubeapi.watch_state import MAX_WATCHES, FailingWatches, StreamedLists, Usage


class Resource(Struct, frozen=True):
    """One resource of the API: what its paths are built from.

    Attributes:
        group: API group; empty for core.
        version: API version, for example ``v1``.
        plural: name in paths, for example ``pods``.
        namespaced: whether objects live in a namespace.
        kind: name in objects, for example ``Pod``.
    """

    group: str
    version: str
    plural: str
    namespaced: bool
    kind: str

    @property
    def api_version(self) -> str:
        """``apiVersion`` of its objects, for example ``coordination.k8s.io/v1``."""
        return f"{self.group}/{self.version}" if self.group else self.version


PODS = Resource("", "v1", "pods", True, "Pod")
NODES = Resource("", "v1", "nodes", False, "Node")
SECRETS = Resource("", "v1", "secrets", True, "Secret")
CONFIGMAPS = Resource("", "v1", "configmaps", True, "ConfigMap")
SERVICES = Resource("", "v1", "services", True, "Service")
SERVICEACCOUNTS = Resource("", "v1", "serviceaccounts", True, "ServiceAccount")
PERSISTENTVOLUMECLAIMS = Resource("", "v1", "persistentvolumeclaims", True, "PersistentVolumeClaim")
PERSISTENTVOLUMES = Resource("", "v1", "persistentvolumes", False, "PersistentVolume")
VOLUMEATTACHMENTS = Resource("storage.k8s.io", "v1", "volumeattachments", False, "VolumeAttachment")
EVENTS = Resource("", "v1", "events", True, "Event")
LEASES = Resource("coordination.k8s.io", "v1", "leases", True, "Lease")
RUNTIMECLASSES = Resource("node.k8s.io", "v1", "runtimeclasses", False, "RuntimeClass")
CSIDRIVERS = Resource("storage.k8s.io", "v1", "csidrivers", False, "CSIDriver")
CSINODES = Resource("storage.k8s.io", "v1", "csinodes", False, "CSINode")
CERTIFICATESIGNINGREQUESTS = Resource(
    "certificates.k8s.io", "v1", "certificatesigningrequests", False, "CertificateSigningRequest"
)
CLUSTERTRUSTBUNDLES = Resource(
    "certificates.k8s.io", "v1", "clustertrustbundles", False, "ClusterTrustBundle"
)
RESOURCECLAIMS = Resource("resource.k8s.io", "v1", "resourceclaims", True, "ResourceClaim")
RESOURCESLICES = Resource("resource.k8s.io", "v1", "resourceslices", False, "ResourceSlice")
TOKENREVIEWS = Resource("authentication.k8s.io", "v1", "tokenreviews", False, "TokenReview")
SUBJECTACCESSREVIEWS = Resource(
    "authorization.k8s.io", "v1", "subjectaccessreviews", False, "SubjectAccessReview"
)


MAX_VERSION_BYTES = 64 * 1024
"""Maximum size of an answer of /version; a real one has about 400."""

JSONPatch = list[dict[str, Any]]
"""The operations of an RFC 6902 patch."""


class PatchType(Enum):
    """How to interpret a patch; the value is its content type."""

    STRATEGIC = "application/strategic-merge-patch+json"
    MERGE = "application/merge-patch+json"
    JSON = "application/json-patch+json"
    APPLY = "application/apply-patch+yaml"


class WatchEvent(Struct, frozen=True):
    """One event of a watch.

    Attributes:
        type: ``ADDED``, ``MODIFIED``, ``DELETED`` or ``BOOKMARK``.
        object: the object; in a bookmark only ``metadata.resourceVersion`` is meaningful.
    """

    type: str
    object: JSON


Verb = Literal["get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"]


class Call(Struct, frozen=True):
    """One request; fields that its verb does not use keep their defaults.

    Attributes:
        name: the object's name; empty for a collection and in ``create`` without a subresource.
        body: the object or patch that is sent.
        timeout_seconds: for a watch: when the server should end it.
        send_initial_events: for a watch: whether it begins with the objects that exist.
        grace_period_seconds: for a delete; None leaves it to the object.
        uid: for a delete: the only object that it may delete.
    """

    verb: Verb
    resource: Resource
    namespace: str | None = None
    name: str = ""
    subresource: str = ""
    body: JSON | JSONPatch | None = None
    patch_type: PatchType = PatchType.STRATEGIC
    field_selector: str = ""
    label_selector: str = ""
    resource_version: str = ""
    limit: int = 0
    continue_: str = ""
    timeout_seconds: int = 0
    allow_bookmarks: bool = False
    send_initial_events: bool = False
    grace_period_seconds: int | None = None
    uid: str | None = None


class KubeApi(ABC):
    """A Kubernetes API. Every call may raise :class:`~kubeletpy.kubeapi.errors.ApiError`.

    ``namespace`` is required for namespaced resources, except in ``list`` and ``watch``, where None
    means all namespaces. Returned objects are shared: never change one in place. Subclasses answer
    a :class:`Call` and need not distinguish the verbs.
    """

    @cached_property
    def streamed_lists(self) -> StreamedLists:
        """Whether this API streams lists."""
        return StreamedLists()

    @cached_property
    def failing_watches(self) -> FailingWatches:
        """Which watches of this API keep failing."""
        return FailingWatches()

    @property
    def usage(self) -> Usage | None:
        """The current load of its connections; None: it has none."""
        return None

    @property
    def watch_capacity(self) -> int:
        """Watches of pods' objects that it carries at once; it may change."""
        return MAX_WATCHES

    @property
    def alone(self) -> bool:
        """Whether the objects that it has shown are from a record, not from a server."""
        return False

    async def version(self) -> bytes:
        """The answer of /version, at most MAX_VERSION_BYTES, not interpreted. An implementation
        without one raises Unavailable."""
        raise Unavailable("the API states no version")

    @abstractmethod
    async def answer(self, call: Call) -> JSON:
        """Answer a call of any verb but ``watch``."""

    @abstractmethod
    def follow(self, call: Call) -> AsyncIterator[WatchEvent]:
        """Answer a ``watch`` call with its events."""

    async def get(
        self,
        resource: Resource,
        name: str,
        namespace: str | None = None,
        *,
        resource_version: str = "",
    ) -> JSON:
        """Read one object: the newest, or with ``resource_version`` one that is as new as that."""
        call = Call("get", resource, namespace, name, resource_version=resource_version)
        return await self.answer(call)

    async def list(
        self,
        resource: Resource,
        namespace: str | None = None,
        *,
        field_selector: str = "",
        label_selector: str = "",
        resource_version: str = "",
        limit: int = 0,
        continue_: str = "",
    ) -> JSON:
        """Read a List object (``items``, ``metadata.resourceVersion``, ``metadata.continue``).

        ``limit`` 0 is no limit.
        """
        return await self.answer(
            Call(
                "list",
                resource,
                namespace,
                field_selector=field_selector,
                label_selector=label_selector,
                resource_version=resource_version,
                limit=limit,
                continue_=continue_,
            )
        )

    def watch(
        self,
        resource: Resource,
        namespace: str | None = None,
        *,
        field_selector: str = "",
        label_selector: str = "",
        resource_version: str,
        timeout_seconds: int,
        allow_bookmarks: bool = True,
        send_initial_events: bool = False,
    ) -> AsyncIterator[WatchEvent]:
        """Follow changes after ``resource_version``; ends without error after ``timeout_seconds``.

        Starts with a BOOKMARK of ``resource_version`` once the server has accepted the watch. With
        ``send_initial_events``, the objects that exist come next, as of that version or a later one
        (if it is empty: as of now). A BOOKMARK ends them: see
        :mod:`~kubeletpy.kubeapi.watch_state`.

        An ERROR event from the server is raised (410 as ``Removed``), not yielded.
        """
        return self.follow(
            Call(
                "watch",
                resource,
                namespace,
                field_selector=field_selector,
                label_selector=label_selector,
                resource_version=resource_version,
                timeout_seconds=timeout_seconds,
                allow_bookmarks=allow_bookmarks,
                send_initial_events=send_initial_events,
            )
        )

    async def create(
        self,
        resource: Resource,
        obj: JSON,
        namespace: str | None = None,
        *,
        subresource: str = "",
        name: str = "",
    ) -> JSON:
        """Create an object; with ``subresource`` and ``name``, create under that object.

        A token: ``create(SERVICEACCOUNTS, request, ns, subresource="token", name="default")``.
        """
        return await self.answer(Call("create", resource, namespace, name, subresource, obj))

    async def update(
        self,
        resource: Resource,
        obj: JSON,
        namespace: str | None = None,
        *,
        subresource: str = "",
        name: str = "",
    ) -> JSON:
        """Replace an object. ``name`` defaults to ``obj["metadata"]["name"]``."""
        name = name or obj.get("metadata", {}).get("name", "")
        return await self.answer(Call("update", resource, namespace, name, subresource, obj))

    async def patch(
        self,
        resource: Resource,
        name: str,
        patch: JSON | JSONPatch,
        namespace: str | None = None,
        *,
        subresource: str = "",
        patch_type: PatchType = PatchType.STRATEGIC,
    ) -> JSON:
        """Change an object. An APPLY patch is forced, with field manager ``kubelet``."""
        return await self.answer(
            Call("patch", resource, namespace, name, subresource, patch, patch_type)
        )

    async def delete(
        self,
        resource: Resource,
        name: str,
        namespace: str | None = None,
        *,
        grace_period_seconds: int | None = None,
        uid: str | None = None,
    ) -> JSON:
        """Delete an object; with ``uid``, only if it still has that uid (else ``Conflict``)."""
        return await self.answer(
            Call(
                "delete",
                resource,
                namespace,
                name,
                grace_period_seconds=grace_period_seconds,
                uid=uid,
            )
        )

    async def delete_collection(
        self, resource: Resource, namespace: str | None = None, *, field_selector: str
    ) -> JSON:
        """Delete the objects that match a selector."""
        return await self.answer(
            Call("deletecollection", resource, namespace, field_selector=field_selector)
        )


# Paths of the API. Names that could escape to another path are refused.


def resource_path(
    resource: Resource, namespace: str | None = None, name: str | None = None, subresource: str = ""
) -> str:
    """The path of a collection (``name`` None) or of an object.

    Raises:
        BadRequest: a name or namespace cannot be part of a path, or a name comes without a
            namespace.
    """
    parts = ["apis", resource.group] if resource.group else ["api"]
    parts.append(resource.version)
    if resource.namespaced and namespace is not None:
        parts += ["namespaces", _segment(namespace, "namespace")]
    elif resource.namespaced and name is not None:
        raise BadRequest(f"{resource.plural} {name!r}: a namespace is needed")
    parts.append(resource.plural)
    if name is not None:
        parts.append(_segment(name, f"name of {resource.plural}"))
    if subresource:
        parts.append(subresource)
    return "/" + "/".join(parts)


def _segment(text: str, what: str) -> str:
    if text in ("", ".", "..") or "/" in text or "%" in text:
        raise BadRequest(f"{text!r} cannot be a {what}")
    return quote(text, safe="")
