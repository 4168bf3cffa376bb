"""Label and field selectors: read once, then asked for every object.

Pure. Must never fail on an object, however odd: only a selector can be wrong.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from kubeletpy.api.types import JSON
from kubeletpy.localapi.errors import bad_request

_KEY = r"(?:[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?/)?[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?"
_VALUE = r"(?:[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?)?"
_EXISTS = re.compile(rf"\s*(!?)\s*({_KEY})\s*")
_EQUALS = re.compile(rf"\s*({_KEY})\s*(==|=|!=)\s*({_VALUE})\s*")
_IN = re.compile(rf"\s*({_KEY})\s+(in|notin)\s*\(([^()]*)\)\s*")
_ORDER = re.compile(rf"\s*({_KEY})\s*([<>])\s*(-?\d+)\s*")
_VALUE_ONLY = re.compile(_VALUE)
_TERM = re.compile(r"(?:[^,(]|\([^)]*\))+")
_MAX_LENGTH = 16 << 10


@dataclass(frozen=True, slots=True)
class Requirement:
    """One term: ``operator`` is exists, !, in, notin, < or >."""

    key: str
    operator: str
    values: frozenset[str] = frozenset()

    def matches(self, labels: JSON) -> bool:
        """Whether the labels satisfy it. Absent keys satisfy ``notin`` and ``!``."""
        present = self.key in labels
        if self.operator == "exists":
            return present
        if self.operator == "!":
            return not present
        if self.operator == "in":
            return present and labels[self.key] in self.values
        if self.operator == "notin":
            return not present or labels[self.key] not in self.values
        try:
            found, bound = int(labels[self.key]), int(next(iter(self.values)))
        except (KeyError, TypeError, ValueError):
            return False
        return found > bound if self.operator == ">" else found < bound


def parse_labels(text: str) -> tuple[Requirement, ...]:
    """Read a label selector such as ``a=b,c in (d,e),!f``.

    Raises:
        ApiError: 400.
    """
    if not text.strip():
        return ()
    if len(text) > _MAX_LENGTH:
        raise bad_request("labelSelector: too long")
    terms = _TERM.findall(text)
    if ",".join(terms) != text:
        raise bad_request(f"unable to parse requirement: invalid selector {text!r}")
    return tuple(_requirement(term) for term in terms)


def _requirement(term: str) -> Requirement:
    if found := _EQUALS.fullmatch(term):
        operator = "notin" if found[2] == "!=" else "in"
        return Requirement(found[1], operator, frozenset({found[3]}))
    if found := _IN.fullmatch(term):
        values = [value.strip() for value in found[3].split(",")]
        if all(_VALUE_ONLY.fullmatch(value) for value in values):
            return Requirement(found[1], found[2], frozenset(values))
    if found := _ORDER.fullmatch(term):
        return Requirement(found[1], found[2], frozenset({found[3]}))
    if found := _EXISTS.fullmatch(term):
        return Requirement(found[2], "!" if found[1] else "exists")
    raise bad_request(f"unable to parse requirement: found {term.strip()!r}")


def _path(*keys: str, absent: str = "") -> Callable[[JSON], str]:
    def read(obj: JSON) -> str:
        current: object = obj
        for key in keys:
            current = current.get(key) if isinstance(current, dict) else None
        if isinstance(current, bool):
            return "true" if current else "false"
        return absent if current is None else str(current)

    return read


def _paths(*dotted: str) -> dict[str, Callable[[JSON], str]]:
    return {path: _path(*path.split(".")) for path in dotted}


def _event_source(event: JSON) -> str:
    return _path("source", "component")(event) or _path("reportingComponent")(event)


_INVOLVED = ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")
_COMMON = _paths("metadata.name", "metadata.namespace")
_FIELDS: dict[str, dict[str, Callable[[JSON], str]]] = {
    "pods": {
        **_paths(
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "status.phase",
            "status.podIP",
            "status.nominatedNodeName",
        ),
        "spec.hostNetwork": _path("spec", "hostNetwork", absent="false"),
    },
    "nodes": {"spec.unschedulable": _path("spec", "unschedulable", absent="false")},
    "services": _paths("spec.clusterIP", "spec.type"),
    "secrets": _paths("type"),
    "namespaces": _paths("status.phase"),
    "certificatesigningrequests.certificates.k8s.io": _paths("spec.signerName"),
    "events": {
        **_paths("reason", "type", "reportingComponent"),
        **{f"involvedObject.{key}": _path("involvedObject", key) for key in _INVOLVED},
        **{f"regarding.{key}": _path("involvedObject", key) for key in _INVOLVED},
        "reportingController": _path("reportingComponent"),
        "source": _event_source,
    },
}


@dataclass(frozen=True, slots=True)
class FieldTerm:
    """One term of a field selector."""

    path: str
    value: str
    negated: bool
    read: Callable[[JSON], str]

    def matches(self, obj: JSON) -> bool:
        """Whether the object satisfies it."""
        return (self.read(obj) == self.value) != self.negated


def parse_fields(storage_key: str, text: str) -> tuple[FieldTerm, ...]:
    """Read a field selector such as ``spec.nodeName=a,status.phase!=Running``.

    Raises:
        ApiError: 400, bad syntax or a field that the resource can't be selected by.
    """
    if len(text) > _MAX_LENGTH:
        raise bad_request("fieldSelector: too long")
    known = {**_COMMON, **_FIELDS.get(storage_key, {})}
    return tuple(_field_term(term, known, text) for term in _split_fields(text) if term)


def _split_fields(text: str) -> list[str]:
    return re.findall(r"(?:[^,\\]|\\.)+", text, re.DOTALL)


def _field_term(term: str, known: dict[str, Callable[[JSON], str]], text: str) -> FieldTerm:
    found = re.fullmatch(r"([^=!]+)(==|=|!=)((?:[^\\=]|\\.)*)", term, re.DOTALL)
    if found is None:
        raise bad_request(f"invalid field selector {text!r}: can't understand {term!r}")
    path, operator, value = found[1].strip(), found[2], re.sub(r"\\(.)", r"\1", found[3])
    if path not in known:
        raise bad_request(f'field label not supported: "{path}"')
    return FieldTerm(path, value, operator == "!=", known[path])


@dataclass(frozen=True, slots=True)
class Selection:
    """What a list or watch asks for. ``namespace`` None is all of them."""

    namespace: str | None
    labels: tuple[Requirement, ...]
    fields: tuple[FieldTerm, ...]

    def matches(self, obj: JSON) -> bool:
        """Whether an object is asked for."""
        meta = obj.get("metadata") or {}
        if self.namespace is not None and meta.get("namespace") != self.namespace:
            return False
        if self.labels:
            labels = meta.get("labels") or {}
            if not all(requirement.matches(labels) for requirement in self.labels):
                return False
        return all(term.matches(obj) for term in self.fields)

    @property
    def single_name(self) -> str:
        """The name, if only one is asked for by fieldSelector metadata.name=NAME."""
        names = [t.value for t in self.fields if t.path == "metadata.name" and not t.negated]
        return names[0] if names else ""


def select(storage_key: str, namespace: str | None, labels: str, fields: str) -> Selection:
    """Read both selectors.

    Raises:
        ApiError: 400.
    """
    return Selection(namespace, parse_labels(labels), parse_fields(storage_key, fields))
