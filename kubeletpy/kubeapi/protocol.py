"""What the agent asks of a Kubernetes API, in plain JSON: verbs for those who ask, calls as data
for those who answer all of them in one place.

The real client (:mod:`kubeletpy.kubeapi.client`) and the simulated one answer calls. This module
must never mention a transport (no aiohttp, no URLs); errors: :mod:`kubeletpy.kubeapi.errors`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from dataclasses import dataclass
from enum import Enum
from typing import Any, Literal

from kubeletpy.api.types import JSON


@dataclass(frozen=True, slots=True)
class Resource:
    """One resource of the API: what a path is made of.

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
RESOURCECLAIMS = Resource("resource.k8s.io", "v1", "resourceclaims", True, "ResourceClaim")
RESOURCESLICES = Resource("resource.k8s.io", "v1", "resourceslices", False, "ResourceSlice")
TOKENREVIEWS = Resource("authentication.k8s.io", "v1", "tokenreviews", False, "TokenReview")
SUBJECTACCESSREVIEWS = Resource(
    "authorization.k8s.io", "v1", "subjectaccessreviews", False, "SubjectAccessReview"
)


JSONPatch = list[dict[str, Any]]
"""The operations of an RFC 6902 patch."""


class PatchType(Enum):
    """How a patch is to be read; the value is its content type."""

    STRATEGIC = "application/strategic-merge-patch+json"
    MERGE = "application/merge-patch+json"
    JSON = "application/json-patch+json"
    APPLY = "application/apply-patch+yaml"


@dataclass(frozen=True, slots=True)
class WatchEvent:
    """One thing a watch saw.

    Attributes:
        type: ``ADDED``, ``MODIFIED``, ``DELETED`` or ``BOOKMARK``.
        object: the object; of a bookmark only ``metadata.resourceVersion`` counts.
    """

    type: str
    object: JSON


Verb = Literal["get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"]


@dataclass(frozen=True, slots=True)
class Call:
    """One request; fields that its verb does not know are as they are made here.

    Attributes:
        name: of the object; empty for a collection and in ``create`` without a subresource.
        body: the object or patch that is sent.
        timeout_seconds: of a watch: when the server is to end it.
        grace_period_seconds: of a delete; None leaves it to the object.
        uid: of a delete: the only object that it may delete.
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
    grace_period_seconds: int | None = None
    uid: str | None = None


class KubeApi(ABC):
    """A Kubernetes API. Every call may raise :class:`~kubeletpy.kubeapi.errors.ApiError`.

    ``namespace`` is needed where the resource is namespaced, except in ``list`` and ``watch``,
    where None means all namespaces. Objects that come back are shared: never change one in place.
    Whoever derives from it answers a :class:`Call`, and need not know the verbs.
    """

    @abstractmethod
    async def _ask(self, call: Call) -> JSON:
        """Answer a call of any verb but ``watch``."""

    @abstractmethod
    def _follow(self, call: Call) -> AsyncIterator[WatchEvent]:
        """Answer a ``watch``."""

    async def get(self, resource: Resource, name: str, namespace: str | None = None) -> JSON:
        """Read one object."""
        return await self._ask(Call("get", resource, namespace, name))

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
        return await self._ask(
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
    ) -> AsyncIterator[WatchEvent]:
        """Follow changes after ``resource_version``; ends without error after ``timeout_seconds``.

        Begins with a BOOKMARK of ``resource_version`` once the server has accepted the watch.

        An ERROR event of the server is raised (410 as ``Gone``), not yielded.
        """
        return self._follow(
            Call(
                "watch",
                resource,
                namespace,
                field_selector=field_selector,
                label_selector=label_selector,
                resource_version=resource_version,
                timeout_seconds=timeout_seconds,
                allow_bookmarks=allow_bookmarks,
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
        return await self._ask(Call("create", resource, namespace, name, subresource, obj))

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
        return await self._ask(Call("update", resource, namespace, name, subresource, obj))

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
        return await self._ask(
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
        """Delete an object; with ``uid``, only if it is still that one (``Conflict`` otherwise)."""
        return await self._ask(
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
        """Delete the objects that a selector selects."""
        return await self._ask(
            Call("deletecollection", resource, namespace, field_selector=field_selector)
        )
