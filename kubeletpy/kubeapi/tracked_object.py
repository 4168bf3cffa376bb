"""Objects that pods use: which pods use each, how it is read, and the interface for readers.

Must never log what an object holds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from typing import Any, Protocol

from kubeletpy.base.api.types import JSON
from kubeletpy.base.structs import Component, Hidden, HidesFields, Struct, field
from kubeletpy.kubeapi.errors import ApiError, Forbidden, NotFound
from kubeletpy.kubeapi.protocol import KubeApi, Resource

_KEPT_FIELDS = ("data", "binaryData", "immutable", "type")


class ObjectKey(Struct, frozen=True):
    """Identifies an object of the API."""

    resource: Resource
    namespace: str
    name: str


class Tracked(HidesFields, Struct):
    """An object that pods use."""

    key: ObjectKey
    users: dict[str, bool] = field(default_factory=dict)
    """Pod uid -> whether changes matter to it (a volume is made of the object)."""
    object: Hidden[JSON | None] = None
    known: bool = False
    """Whether ``object`` is what the API returned (None: it does not exist)."""
    outdated: bool = False
    """A pod has registered since it was read without a watch: another object may have its name."""
    error: ApiError | None = None
    """Why it is not usable."""
    settled: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when it is usable, or refused for now."""
    disappointed: bool = False
    """A caller was refused the object and waits to be notified once it is available."""
    task: asyncio.Task[None] | None = None
    idle: asyncio.TimerHandle | None = None
    pressed: set[str] = field(default_factory=set)
    """Uids of pods that cannot continue before it changes."""
    hurry: asyncio.Event = field(default_factory=asyncio.Event)
    pace: float = 0.0
    """Seconds between the last two reads while pods waited."""

    @property
    def usable(self) -> bool:
        """Whether ``object`` is what the API had for all of its users."""
        return self.known and not self.outdated

    @property
    def live(self) -> bool:
        """Whether it is in a volume of some pod, so that its changes matter."""
        return any(self.users.values())


def is_that_object(key: ObjectKey, found: object) -> bool:
    """Whether an answer is the requested object, and not one of another namespace."""
    metadata = found.get("metadata") if isinstance(found, dict) else None
    if not isinstance(metadata, dict) or metadata.get("name") != key.name:
        return False
    return (metadata.get("namespace") or key.namespace) == key.namespace


def worth_keeping(found: JSON) -> JSON:
    """The part of an object that files and variables need."""
    metadata = found["metadata"]
    kept: JSON = {name: found[name] for name in _KEPT_FIELDS if name in found}
    kept["metadata"] = {
        name: metadata[name] for name in ("name", "uid", "resourceVersion") if name in metadata
    }
    return kept


def version(found: JSON | None) -> tuple[str, str] | None:
    """The fields that differ between versions of an object; None: it does not exist."""
    if found is None:
        return None
    metadata = found["metadata"]
    return str(metadata.get("uid")), str(metadata.get("resourceVersion"))


def revision(found: Mapping[str, Any]) -> int:
    """An object's resourceVersion as a number; 0: it has none that could be compared."""
    text = (found.get("metadata") or {}).get("resourceVersion", "")
    return int(text) if text.isascii() and text.isdigit() else 0


def is_immutable(found: JSON | None) -> bool:
    """Whether an object is marked immutable."""
    return found is not None and found.get("immutable") is True


def reported(key: ObjectKey) -> str:
    """Kind and name, for messages."""
    name = f"{key.namespace}/{key.name}" if key.namespace else key.name
    return f'{key.resource.kind.lower()} "{name}"'


# Reads by name, a few at a time.

READS_AT_ONCE = 4
"""Others use the API too: each of their requests waits for at most a few of these."""
FORBIDDEN_WAITS = (0.03, 0.1, 0.3)
"""Seconds before each retry of what was refused. A node may read what a pod of its own refers to,
but its authorizer permits that only a moment after the pod was bound."""


class ObjectReader(Component):
    """Reads, of which no more than READS_AT_ONCE are under way."""

    api: KubeApi

    def __post_init__(self) -> None:
        self._reads = asyncio.Semaphore(READS_AT_ONCE)

    async def read_object(
        self, key: ObjectKey, *, first: bool, resource_version: str = ""
    ) -> JSON | None:
        """An object as it is now; None: it does not exist.

        Args:
            first: it was never read: a refusal may not last.
            resource_version: as of that one or a later one, which a server may have at hand; empty:
                the newest.

        Raises:
            ApiError: it can't be read.
        """
        async with self._reads:
            for wait in FORBIDDEN_WAITS if first else ():
                try:
                    return await self._once(key, resource_version)
                except Forbidden:
                    await asyncio.sleep(wait)
            return await self._once(key, resource_version)

    async def _once(self, key: ObjectKey, version: str) -> JSON | None:
        supplied = {"resource_version": version} if version else {}
        try:
            found = await self.api.get(key.resource, key.name, key.namespace or None, **supplied)
        except NotFound:
            return None
        if not is_that_object(key, found):
            raise ApiError(f"the API server answered with another object than {reported(key)}")
        return found


# The interface for volumes and environments. ``configMapAndSecretChangeDetectionStrategy`` selects
# how changes are noticed: objects are watched (:mod:`kubeletpy.kubeapi.objects`), or read when they
# are requested (:mod:`kubeletpy.kubeapi.objects_on_request`).


class PodObjects(Protocol):
    """The objects that the pods of this node use, by name."""

    def on_change(self, wake: Callable[[str], None]) -> None:
        """Have ``wake(pod uid)`` called for each pod that uses an object that was seen to change,
        or that can be read only now."""

    def register(
        self, uid: str, live: Collection[ObjectKey], on_demand: Collection[ObjectKey] = ()
    ) -> None:
        """Set which objects a pod uses; those it no longer uses are dropped.

        Args:
            uid: of the pod.
            live: objects whose changes the pod must see.
            on_demand: objects that are read now and then.
        """

    def unread(self, uid: str) -> Collection[ObjectKey]:
        """The objects that a pod uses and that no watch has shown yet."""

    def release(self, uid: str) -> None:
        """A pod has ended."""

    async def get(self, key: ObjectKey) -> JSON | None:
        """An object that a pod is registered for; None when it does not exist. Never change it.

        Raises:
            ApiError: it cannot be read (NoAnswerYet: so far); pods that use it are woken once it
                can.
        """

    async def close(self) -> None:
        """Stop all requests and watches."""
