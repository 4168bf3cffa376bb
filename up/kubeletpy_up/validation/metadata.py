"""metadata: names, labels, annotations, owners, finalizers, and what an update may not change."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from kubeletpy_up.schema import formats

if TYPE_CHECKING:
    from kubeletpy.base.api.types import JSON
    from kubeletpy_up.validation.report import Report


_ANNOTATIONS_LIMIT = 256 * 1024
_STANDARD_FINALIZERS = frozenset({"kubernetes", "orphan", "foregroundDeletion"})
_GROUP_VERSION = re.compile("([^/]*/)?[^/]+")
_IMMUTABLE = ("name", "namespace", "uid", "creationTimestamp")

NameCheck = Callable[[str], Iterable[str]]


def path_segment(name: str) -> list[str]:
    """A name that only has to fit into a path (events, some cluster objects)."""
    if name in (".", ".."):
        return [f"may not be '{name}'"]
    return [f"may not contain '{char}'" for char in "/%" if char in name]


def validate(
    report: Report, obj: JSON, *, namespaced: bool, name_check: NameCheck = formats.dns_subdomain
) -> None:
    """Check an object's metadata. The server has already filled in name and namespace."""
    metadata = obj.get("metadata") or {}
    name, generate = metadata.get("name") or "", metadata.get("generateName") or ""
    if generate:
        # The suffix is added later: check as if it were there.
        for detail in name_check(generate.rstrip("-.") or generate):
            report.invalid("metadata.generateName", generate, detail)
    if not name and not generate:
        report.required("metadata.name", "name or generateName is required")
    elif name:
        report.all_invalid("metadata.name", name, name_check(name))
    if namespaced and metadata.get("namespace"):
        namespace = metadata["namespace"]
        report.all_invalid("metadata.namespace", namespace, formats.dns_label(namespace))
    elif not namespaced and metadata.get("namespace"):
        report.forbidden("metadata.namespace", "not allowed on this type")
    labels(report, metadata.get("labels"), "metadata.labels")
    annotation_map(report, metadata.get("annotations"))
    _owners(report, metadata.get("ownerReferences") or [])
    for index, finalizer in enumerate(metadata.get("finalizers") or []):
        path = f"metadata.finalizers[{index}]"
        details = formats.qualified_name(finalizer)
        if not details and "/" not in finalizer and finalizer not in _STANDARD_FINALIZERS:
            details = ("name is neither a standard finalizer name nor is it fully qualified",)
        report.all_invalid(path, finalizer, details)


def labels(report: Report, supplied: JSON | None, path: str) -> None:
    """Check a map of labels (or a node selector)."""
    for key, value in (supplied or {}).items():
        report.all_invalid(path, key, formats.qualified_name(key))
        report.all_invalid(path, value, formats.label_value(value))


def annotation_map(
    report: Report, supplied: JSON | None, path: str = "metadata.annotations"
) -> None:
    """Check annotations: keys, and 256 KiB in all."""
    size = 0
    for key, value in (supplied or {}).items():
        report.all_invalid(path, key, formats.qualified_name(key.lower()))
        size += len(key) + len(value)
    if size > _ANNOTATIONS_LIMIT:
        report.too_long(path, _ANNOTATIONS_LIMIT)


def _owners(report: Report, owners: list[JSON]) -> None:
    controllers = []
    for index, owner in enumerate(owners):
        path = f"metadata.ownerReferences[{index}]"
        report.require(path, owner, "apiVersion", "kind", "name", "uid", detail="must not be empty")
        version = owner.get("apiVersion") or ""
        if version and not _GROUP_VERSION.fullmatch(version):
            detail = "must be <group>/<version> or <version>"
            report.invalid(f"{path}.apiVersion", version, detail)
        if owner.get("controller"):
            controllers.append(owner.get("name") or "")
    if len(controllers) > 1:
        report.invalid(
            "metadata.ownerReferences",
            owners,
            "Only one reference can have Controller set to true. Found "
            f'"true" in references for {controllers[0]} and {controllers[1]}',
        )


def validate_update(report: Report, new: JSON, old: JSON) -> None:
    """Check that identity is kept, and that nothing but finalizers affects deletion."""
    new_meta, old_meta = new.get("metadata") or {}, old.get("metadata") or {}
    for key in _IMMUTABLE:
        if new_meta.get(key) is not None and new_meta[key] != old_meta.get(key):
            report.invalid(f"metadata.{key}", new_meta[key], "field is immutable")
    if old_meta.get("deletionTimestamp"):
        before = old_meta.get("finalizers") or []
        added = [name for name in new_meta.get("finalizers") or [] if name not in before]
        if added:
            report.forbidden(
                "metadata.finalizers",
                "no new finalizers can be added if the object is being deleted, found new "
                f"finalizers []string{{{', '.join(map(json.dumps, added))}}}",
            )


_WITH_VALUES, _WITHOUT_VALUES = ("In", "NotIn"), ("Exists", "DoesNotExist")


def label_selector(report: Report, selector: JSON, path: str) -> None:
    """Check the labels and expressions of a claim's or storage capacity's LabelSelector."""
    labels(report, selector.get("matchLabels"), f"{path}.matchLabels")
    for index, expression in enumerate(selector.get("matchExpressions") or ()):
        where = f"{path}.matchExpressions[{index}]"
        operator, values = expression.get("operator") or "", expression.get("values") or []
        if operator in _WITH_VALUES:
            if not values:
                detail = "must be specified when `operator` is 'In' or 'NotIn'"
                report.required(f"{where}.values", detail)
        elif operator in _WITHOUT_VALUES:
            if values:
                detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
                report.forbidden(f"{where}.values", detail)
        else:
            report.invalid(f"{where}.operator", operator, "not a valid selector operator")
        key = expression.get("key") or ""
        report.all_invalid(f"{where}.key", key, formats.qualified_name(key))
        for number, value in enumerate(values):
            report.all_invalid(f"{where}.values[{number}]", value, formats.label_value(value))
