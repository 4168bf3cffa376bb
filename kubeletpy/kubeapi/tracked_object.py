"""One object that pods use: which pods use it, and what is known about it.

Must never log what an object holds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from kubeletpy.base.api.types import JSON
from kubeletpy.base.structs import Hidden, HidesFields, Struct, field
from kubeletpy.kubeapi.errors import ApiError
from kubeletpy.kubeapi.protocol import Resource

_KEPT_FIELDS = ("data", "binaryData", "immutable", "type")


class ObjectKey(Struct, frozen=True):
    """One object."""

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


def shown(key: ObjectKey) -> str:
    """Kind and name, for messages."""
    name = f"{key.namespace}/{key.name}" if key.namespace else key.name
    return f'{key.resource.kind.lower()} "{name}"'
