"""Label and field selectors: parsed once, then matched against every object.

Pure. Must never fail on an object, however odd: only a selector can be wrong.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable

from kubeletpy.base.api.types import JSON
from kubeletpy.base.structs import Struct
from kubeletpy_up.errors import ApiError, bad_request
from kubeletpy_up.schema import formats

_TOKEN = re.compile(r"\s*(==|!=|[=!<>(),]|[^\s=!<>(),]+)")
"""A symbol or word with its leading blanks; at each position there is one way to match."""
_SYMBOLS = frozenset({"==", "!=", "=", "!", "<", ">", "(", ")", ","})
_BOUND = re.compile(r"-?[0-9]{1,19}")
_MAX_LENGTH = 16 << 10
_MAX_KEY, _MAX_VALUE = 253 + 1 + 63, 63
_REPORTED = 100
"""How many characters of a wrong selector its client is shown."""


class Requirement(Struct, frozen=True):
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
    tokens: deque[str] = deque(_TOKEN.findall(text))  # in linear time
    found = [_requirement(tokens)]
    while tokens:
        if tokens.popleft() != ",":
            raise _unreadable(text)
        found.append(_requirement(tokens))
    return tuple(found)


_OF_OBJECTS = {"In": "in", "NotIn": "notin", "Exists": "exists", "DoesNotExist": "!"}


def labels_match(selector: JSON, labels: JSON) -> bool:
    """Whether labels satisfy a LabelSelector object; an empty one is satisfied by all."""
    desired = selector.get("matchLabels") or {}
    terms = [Requirement(key, "in", frozenset({value})) for key, value in desired.items()]
    for supplied in selector.get("matchExpressions") or ():
        values = frozenset(supplied.get("values") or ())
        terms.append(Requirement(supplied["key"], _OF_OBJECTS[supplied["operator"]], values))
    return all(term.matches(labels) for term in terms)


def _unreadable(text: str) -> ApiError:
    return bad_request(f"unable to parse requirement: found {text.strip()[:_REPORTED]!r}")


def _requirement(tokens: deque[str]) -> Requirement:
    """Take one term off the front."""
    absent = bool(tokens) and tokens[0] == "!"
    if absent:
        tokens.popleft()
    key = _word(tokens)
    if len(key) > _MAX_KEY or formats.qualified_name(key):
        raise _unreadable(key)
    if absent or not tokens or tokens[0] == ",":
        return Requirement(key, "!" if absent else "exists")
    operator = tokens.popleft()
    if operator in ("=", "==", "!="):
        value = "" if not tokens or tokens[0] == "," else _value(tokens)
        return Requirement(key, "notin" if operator == "!=" else "in", frozenset({value}))
    if operator in ("in", "notin"):
        return Requirement(key, operator, _listed(tokens))
    if operator in ("<", ">"):
        bound = _word(tokens)
        if not _BOUND.fullmatch(bound):
            raise _unreadable(bound)
        return Requirement(key, operator, frozenset({bound}))
    raise _unreadable(operator)


def _listed(tokens: deque[str]) -> frozenset[str]:
    """``(a, b)``; what is between commas may be empty."""
    if not tokens or tokens.popleft() != "(":
        raise _unreadable("in without (")
    values, between = set(), ""
    while between != ")":
        values.add("" if tokens and tokens[0] in (",", ")") else _value(tokens))
        between = tokens.popleft() if tokens else ""
        if between not in (",", ")"):
            raise _unreadable(between or "( without )")
    return frozenset(values)


def _value(tokens: deque[str]) -> str:
    value = _word(tokens)
    if len(value) > _MAX_VALUE or formats.label_value(value):
        raise _unreadable(value)
    return value


def _word(tokens: deque[str]) -> str:
    if not tokens or tokens[0] in _SYMBOLS:
        raise _unreadable(tokens[0] if tokens else "the end")
    return tokens.popleft()


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
    "resourceslices.resource.k8s.io": _paths("spec.nodeName", "spec.driver"),
    "events": {
        **_paths("reason", "type", "reportingComponent"),
        **{f"involvedObject.{key}": _path("involvedObject", key) for key in _INVOLVED},
        **{f"regarding.{key}": _path("involvedObject", key) for key in _INVOLVED},
        "reportingController": _path("reportingComponent"),
        "source": _event_source,
    },
}


class FieldTerm(Struct, frozen=True):
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
        ApiError: 400, bad syntax, or a field that the resource can't be selected by.
    """
    if len(text) > _MAX_LENGTH:
        raise bad_request("fieldSelector: too long")
    known = {**_COMMON, **_FIELDS.get(storage_key, {})}
    terms = re.findall(r"(?:[^,\\]|\\.)+", text, re.DOTALL)
    return tuple(_field_term(term, known, text) for term in terms)


def _field_term(term: str, known: dict[str, Callable[[JSON], str]], text: str) -> FieldTerm:
    found = re.fullmatch(r"([^=!]+)(==|=|!=)((?:[^\\=]|\\.)*)", term, re.DOTALL)
    if found is None:
        raise bad_request(
            f"invalid selector: '{text[:_REPORTED]}'; can't understand '{term[:_REPORTED]}'"
        )
    path, operator, value = found[1].strip(), found[2], re.sub(r"\\(.)", r"\1", found[3])
    if path not in known and known == _COMMON:
        raise bad_request(
            f'"{path[:_REPORTED]}" is not a known field selector: only "metadata.name", '
            '"metadata.namespace"'
        )
    if path not in known:
        raise bad_request(f"field label not supported: {path[:_REPORTED]}")
    return FieldTerm(path, value, operator == "!=", known[path])


class Selection(Struct, frozen=True):
    """The objects that a list or watch selects. ``namespace`` None: those of all namespaces."""

    namespace: str | None
    labels: tuple[Requirement, ...]
    fields: tuple[FieldTerm, ...]

    def matches(self, obj: JSON) -> bool:
        """Whether an object is selected."""
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
        """The name, if only one is selected by fieldSelector metadata.name=NAME."""
        names = [t.value for t in self.fields if t.path == "metadata.name" and not t.negated]
        return names[0] if names else ""
