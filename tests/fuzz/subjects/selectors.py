"""Selectors that clients send."""

from __future__ import annotations

from kubeletpy_up.errors import ApiError
from kubeletpy_up.storage.selectors import parse_fields, parse_labels
from tests.fuzz.target import target, text

LABELS = {"a": "b", "x.io/y": "5"}


@target(
    ApiError,
    seeds=(b"a=b,c in (d,e),!f,g notin (),h>5", b"a==b,x.io/y,c!=d"),
    parts=(b" in (", b" notin (", b",", b"!=", b"==", b")", b" " * 16),
)
def label_selector(data: bytes) -> None:
    """A label selector, and whether labels match it."""
    for requirement in parse_labels(text(data)):
        requirement.matches(LABELS)


@target(
    ApiError,
    seeds=(b"spec.nodeName=a,status.phase!=Running", b"metadata.name==a\\,b"),
    parts=(b"spec.nodeName", b"metadata.name", b"\\,", b"\\=", b"=", b"!="),
)
def field_selector(data: bytes) -> None:
    """A field selector, and whether a pod matches it."""
    for term in parse_fields("pods", text(data)):
        term.matches({"metadata": {"name": "a"}, "spec": {}, "status": {}})
