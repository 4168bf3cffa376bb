"""What the agent asks of a Kubernetes API, in plain JSON: anything that implements it plugs in.

The real client (:mod:`kubeletpy.kubeapi.client`) and the simulated one speak this Protocol. It
must never mention a transport (no aiohttp, no URLs); errors: :mod:`kubeletpy.kubeapi.errors`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol

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
EVENTS = Resource("", "v1", "events", True, "Event")
LEASES = Resource("coordination.k8s.io", "v1", "leases", True, "Lease")
RUNTIMECLASSES = Resource("node.k8s.io", "v1", "runtimeclasses", False, "RuntimeClass")
CERTIFICATESIGNINGREQUESTS = Resource(
    "certificates.k8s.io", "v1", "certificatesigningrequests", False, "CertificateSigningRequest"
)
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


class KubeApi(Protocol):
    """A Kubernetes API. Every call may raise :class:`~kubeletpy.kubeapi.errors.ApiError`.

    ``namespace`` is needed where the resource is namespaced, except in ``list`` and ``watch``,
    where None means all namespaces. Objects that come back are shared: never change one in place.
    """

    async def get(self, resource: Resource, name: str, namespace: str | None = None) -> JSON:
        """Read one object."""
        ...

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
        ...

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
        ...

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
        ...

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
        ...

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
        ...

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
        ...
