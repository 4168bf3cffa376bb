"""The last known objects of the API that this node's pods need to start, to be kept on disk.

Everything that pods refer to is kept, and nothing else. An object is needed if a pod of its
namespace contains its name as a text, or owns it; claims and volumes refer to more. That keeps an
object too many rather than one too few, and needs no list of the fields that refer to objects. The
absence of an object is kept too, for optional references. Must never show what an object holds.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from kubeletpy.base.api.times import parse_time
from kubeletpy.base.api.types import JSON
from kubeletpy.base.structs import Component, Hidden, HidesFields, Struct, field
from kubeletpy.kubeapi import protocol
from kubeletpy.kubeapi.protocol import Call, Resource

COLLECTIONS = (protocol.PODS, protocol.SERVICES, protocol.CSIDRIVERS, protocol.CLUSTERTRUSTBUNDLES)
"""Followed as a whole, or as far as they are about this node."""
SINGLE = (
    protocol.NODES,
    protocol.SECRETS,
    protocol.CONFIGMAPS,
    protocol.SERVICEACCOUNTS,
    protocol.PERSISTENTVOLUMECLAIMS,
    protocol.PERSISTENTVOLUMES,
    protocol.VOLUMEATTACHMENTS,
    protocol.RUNTIMECLASSES,
    protocol.RESOURCECLAIMS,
)
"""Read by name."""
KINDS = {each.plural: each for each in (*COLLECTIONS, *SINGLE)}
"""The kinds by plural. Nothing is kept of another version."""
_NAMED = "metadata.name="
_SERVICE_FIELDS = ("clusterIP", "clusterIPs", "ports", "type")

ObjectId = tuple[str, str, str]
"""Plural of the resource, namespace or "", name."""


class Contents(HidesFields, Struct):
    """All that is known at one moment; :func:`needed` selects from it.

    Attributes:
        objects: each object; None: the API does not have it.
        listed: plurals of the collections that are known in full.
        tokens: request -> uid of the pod it is bound to, and the API's answer.
    """

    objects: Hidden[dict[ObjectId, JSON | None]] = field(default_factory=dict)
    listed: set[str] = field(default_factory=set)
    tokens: Hidden[dict[str, tuple[str, JSON]]] = field(default_factory=dict)

    def copy(self) -> Contents:
        """A copy that shares the objects, which nobody changes."""
        return Contents(dict(self.objects), set(self.listed), dict(self.tokens))


class LastKnown(Component):
    """Collects the API's answers. Use it inside the event loop only."""

    changed: Callable[[], None] = lambda: None
    """Called after each change that is worth a write."""

    def __post_init__(self) -> None:
        self.contents = Contents()
        self._statuses: dict[str, JSON] = {}
        self._pages: dict[str, list[JSON]] = {}

    # -- what was seen --------------------------------------------------------------------------

    def note(self, where: ObjectId, found: JSON | None) -> None:
        """An object as the API has it; None: the API does not have it."""
        objects = self.contents.objects
        if where in objects and _version(objects[where]) == _version(found):
            return
        if found is None and where[0] in _PLURALS_LISTED:
            objects.pop(where, None)
        else:
            objects[where] = None if found is None else _trimmed(where[0], found)
        self.changed()

    def note_all(self, call: Call, items: Iterable[JSON]) -> None:
        """All objects that a list or watch selects."""
        plural = call.resource.plural
        found = {object_id(call.resource, each): each for each in items}
        if (single := selected(call)) is not None:
            self.note(single, found.get(single))
        elif plural in _PLURALS_LISTED:
            objects = self.contents.objects
            for where in [each for each in objects if each[0] == plural and each not in found]:
                self.note(where, None)
            for where, each in found.items():
                self.note(where, each)
            self.contents.listed.add(plural)
            self.changed()

    def note_page(self, call: Call, answer: JSON) -> None:
        """A page of a list; the last one completes it."""
        plural = call.resource.plural
        page = [each for each in answer.get("items") or () if isinstance(each, dict)]
        self._pages[plural] = pages = [*(self._pages[plural] if call.continue_ else ()), *page]
        if not (answer.get("metadata") or {}).get("continue"):
            self.note_all(call, self._pages.pop(plural, pages))

    def note_token(self, call: Call, answer: JSON) -> None:
        """The answer to a request for a token that is bound to a pod."""
        if uid := bound_pod(call):
            self.contents.tokens[_token_key(call)] = uid, answer
            self.changed()

    def note_status(self, uid: str, status: JSON | None) -> None:
        """The newest status of a pod, whether or not the API has it."""
        if status is None or self._statuses.get(uid) is status:
            return
        self._statuses[uid] = status
        self.changed()

    # -- what is known --------------------------------------------------------------------------

    def knows(self, call: Call) -> bool:
        """Whether the answer to a get, list or watch is known."""
        single = selected(call)
        if single is not None:
            return single in self.contents.objects
        return call.resource.plural in self.contents.listed

    def objects(self, call: Call) -> list[JSON]:
        """The known objects that a get, list or watch selects."""
        single, plural = selected(call), call.resource.plural
        if single is not None:
            found = self.contents.objects.get(single)
            return [] if found is None else [found]
        objects = self.contents.objects.items()
        return [each for where, each in objects if where[0] == plural and each is not None]

    def token(self, call: Call) -> JSON | None:
        """The last answer to a request for a token."""
        known = self.contents.tokens.get(_token_key(call))
        return None if known is None else known[1]

    # -- what is kept ---------------------------------------------------------------------------

    def needed(self) -> Callable[[], Contents]:
        """Take hold of what is known; the result selects what pods need, on any thread."""
        contents, statuses = self.contents.copy(), dict(self._statuses)
        return lambda: needed(contents, statuses)

    def forget(self, captured: Contents, kept: Contents) -> None:
        """Drop what was known at a capture and is not needed; collections stay complete."""
        ours = self.contents
        for where, found in captured.objects.items():
            useless = where not in kept.objects and where[0] not in _PLURALS_LISTED
            if useless and ours.objects.get(where) is found:
                ours.objects.pop(where, None)
        for key, token in captured.tokens.items():
            if key not in kept.tokens and ours.tokens.get(key) is token:
                del ours.tokens[key]
        uids = {_uid(each) for each in ours.objects.values() if each is not None}
        self._statuses = {uid: each for uid, each in self._statuses.items() if uid in uids}


_PLURALS_LISTED = frozenset(each.plural for each in COLLECTIONS)


def object_id(resource: Resource, found: Mapping[str, Any]) -> ObjectId:
    """The identity of an object, which may be malformed."""
    metadata = found.get("metadata")
    metadata = metadata if isinstance(metadata, dict) else {}
    namespace = str(metadata.get("namespace") or "") if resource.namespaced else ""
    return resource.plural, namespace, str(metadata.get("name") or "")


def is_kept(call: Call) -> bool:
    """Whether the answers of the kind that a call is about are kept."""
    return KINDS.get(call.resource.plural) == call.resource


def selected(call: Call) -> ObjectId | None:
    """The object that a get, or a list or watch by name, is about; None: several."""
    name = call.name if call.verb == "get" else call.field_selector.partition(_NAMED)[2]
    namespace = (call.namespace or "") if call.resource.namespaced else ""
    return (call.resource.plural, namespace, name) if name else None


def bound_pod(call: Call) -> str:
    """The uid of the pod that a requested token is bound to; "" for another call."""
    if (call.verb, call.subresource) != ("create", "token") or not isinstance(call.body, dict):
        return ""
    return str(((call.body.get("spec") or {}).get("boundObjectRef") or {}).get("uid") or "")


def _token_key(call: Call) -> str:
    return json.dumps([call.namespace, call.name, call.body], sort_keys=True)


def _uid(found: Mapping[str, Any]) -> str:
    return str((found.get("metadata") or {}).get("uid") or "")


def _version(found: JSON | None) -> tuple[str, str] | None:
    if found is None:
        return None
    return _uid(found), str((found.get("metadata") or {}).get("resourceVersion") or "")


def _trimmed(plural: str, found: JSON) -> JSON:
    """The part of an object that a start needs."""
    metadata = {k: v for k, v in found["metadata"].items() if k != "managedFields"}
    if plural == protocol.SERVICES.plural:
        spec = found.get("spec") or {}
        kept = ("name", "namespace", "uid", "resourceVersion")
        return {
            "metadata": {name: metadata[name] for name in kept if name in metadata},
            "spec": {name: spec[name] for name in _SERVICE_FIELDS if name in spec},
        }
    if plural == protocol.NODES.plural:
        status = {k: v for k, v in (found.get("status") or {}).items() if k != "images"}
        return {**found, "metadata": metadata, "status": status}
    return {**found, "metadata": metadata}


def needed(contents: Contents, statuses: Mapping[str, JSON]) -> Contents:
    """Select the objects that pods need; each pod with its newest status.

    Args:
        contents: everything that is known.
        statuses: uid -> the newest status of a pod.
    """
    found, needs, rest = Contents(listed=set(contents.listed)), _Needs(), dict(contents.objects)
    for where in [each for each in rest if each[0] == protocol.PODS.plural]:
        pod = rest.pop(where)
        assert pod is not None, "a pod that was removed is not kept"
        uid = _uid(pod)
        found.objects[where] = {**pod, "status": statuses[uid]} if uid in statuses else pod
        needs.add_pod(where[1], uid, pod)
    more = True
    while more:
        more = False
        for where, obj in list(rest.items()):
            if needs.includes(where, obj):
                found.objects[where] = rest.pop(where)
                if where[0] in _REFER and obj is not None:
                    needs.elsewhere.update(_texts(obj.get("spec")))
                    more = True
    found.tokens = {key: each for key, each in contents.tokens.items() if each[0] in needs.uids}
    return found


class _Needs(Struct):
    """The names that pods, and the claims and volumes that they need, refer to."""

    uids: set[str] = field(default_factory=set)
    texts: dict[str, set[str]] = field(default_factory=dict)
    """Namespace -> every text of its pods."""
    elsewhere: set[str] = field(default_factory=set)
    """Every text of claims and volumes, and of pods for objects without a namespace."""

    def add_pod(self, namespace: str, uid: str, pod: JSON) -> None:
        """Add what a pod refers to."""
        mentioned = set(_texts(pod))
        self.uids.add(uid)
        self.texts.setdefault(namespace, set()).update(mentioned)
        self.texts.setdefault("", set()).update(mentioned)

    def includes(self, where: ObjectId, obj: JSON | None) -> bool:
        """Whether an object is needed."""
        plural, namespace, name = where
        if plural in (protocol.NODES.plural, protocol.CSIDRIVERS.plural):
            return True
        if plural == protocol.SERVICES.plural:
            return namespace in self.texts or (namespace, name) == ("default", "kubernetes")
        obj = obj or {}
        if plural == protocol.CLUSTERTRUSTBUNDLES.plural:
            signer = (obj.get("spec") or {}).get("signerName") or name
            return not self.texts.get("", set()).isdisjoint((name, signer))
        if plural == protocol.VOLUMEATTACHMENTS.plural:
            name = ((obj.get("spec") or {}).get("source") or {}).get("persistentVolumeName", name)
        owners = (obj.get("metadata") or {}).get("ownerReferences") or ()
        return (
            name in self.texts.get(namespace, ())
            or name in self.elsewhere
            or any(owner.get("uid") in self.uids for owner in owners)
        )


_REFER = (protocol.PERSISTENTVOLUMECLAIMS.plural, protocol.PERSISTENTVOLUMES.plural)
"""Objects that refer to others, in any namespace."""


def _texts(value: Any) -> Iterator[str]:
    """Every text in a JSON value, but for the keys."""
    pending = [value]
    while pending:
        each = pending.pop()
        if isinstance(each, str):
            yield each
        elif isinstance(each, dict):
            pending.extend(each.values())
        elif isinstance(each, list):
            pending.extend(each)


# The contents as text.


def to_json(contents: Contents) -> JSON:
    """The contents for a file."""
    return {
        "objects": [[*where, found] for where, found in contents.objects.items()],
        "listed": sorted(contents.listed),
        "tokens": [[key, *each] for key, each in contents.tokens.items()],
    }


def from_json(found: Any) -> Contents:
    """Read the contents of a file. Raises ValueError if they are anything else."""
    try:
        contents = Contents(listed={str(each) for each in found["listed"]})
        for plural, namespace, name, obj in found["objects"]:
            if obj is not None and object_id(KINDS[plural], obj) != (plural, namespace, name):
                raise ValueError("an object has another name")
            contents.objects[plural, namespace, name] = obj
        for key, uid, answer in found["tokens"]:
            parse_time(answer["status"]["expirationTimestamp"])
            contents.tokens[str(key)] = str(uid), answer
    except (TypeError, KeyError, AttributeError) as error:
        raise ValueError("it has another form") from error
    return contents
