"""What is asked of a Kubernetes API as data, for those who answer all of it in one place.

A class that derives from :class:`Verbs` is a :class:`~kubeletpy.kubeapi.protocol.KubeApi` once it
answers a :class:`Call`. Must know nothing of how a call is answered.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Literal

from kubeletpy.api.types import JSON
from kubeletpy.kubeapi.protocol import JSONPatch, PatchType, Resource, WatchEvent

Verb = Literal["get", "list", "watch", "create", "update", "patch", "delete"]


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


class Verbs(ABC):
    """The verbs of :class:`~kubeletpy.kubeapi.protocol.KubeApi`, each as a call."""

    @abstractmethod
    async def _ask(self, call: Call) -> JSON:
        """Answer a call of any verb but ``watch``."""

    @abstractmethod
    def _follow(self, call: Call) -> AsyncIterator[WatchEvent]:
        """Answer a ``watch``."""

    async def get(self, resource: Resource, name: str, namespace: str | None = None) -> JSON:
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
