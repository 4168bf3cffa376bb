"""Server-printed tables: what ``kubectl get`` shows (meta.k8s.io/v1 Table).

Columns are those of the fact table in ``data/api-resources.json``; every row carries all of them,
kubectl hides those of priority 1 without ``-o wide``.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import TYPE_CHECKING, Any, Literal

from kubeletpy_up import resources
from kubeletpy_up.printers import others, pods
from kubeletpy_up.printers.cells import human_duration

if TYPE_CHECKING:
    from kubeletpy.base.api.types import JSON
    from kubeletpy_up.resources import ResourceInfo

__all__ = ["human_duration", "to_table"]

IncludeObject = Literal["Metadata", "Object", "None"]

_DESCRIPTIONS = {"Name": "Name must be unique within a namespace.", "Age": "Time since creation."}
_DEFAULT_COLUMNS = (("Name", "string", "name", 0), ("Age", "string", "", 0))


@cache
def _columns(path: str, plural: str) -> tuple[JSON, ...]:
    known = resources.raw()["table_columns"].get(f"{path}/{plural}") if _has_row(plural) else None
    return tuple(
        {
            "name": name,
            "type": kind,
            "format": form,
            "description": _DESCRIPTIONS.get(name, name),
            "priority": priority,
        }
        for name, kind, form, priority in known or _DEFAULT_COLUMNS
    )


def _has_row(plural: str) -> bool:
    return plural == "pods" or plural in others.ROWS


def _cells(plural: str, obj: JSON, now: float) -> list[Any]:
    if plural == "pods":
        return pods.row(obj, now)
    return others.ROWS.get(plural, others.name_and_age)(obj, now)


def partial(obj: JSON, version: str) -> JSON:
    """Only the metadata of an object; ``version`` of meta.k8s.io."""
    return {
        "kind": "PartialObjectMetadata",
        "apiVersion": f"meta.k8s.io/{version}",
        "metadata": obj.get("metadata") or {},
    }


def to_table(
    resource: ResourceInfo,
    objects: Iterable[JSON],
    list_meta: JSON,
    now: float,
    include_object: IncludeObject = "Metadata",
    *,
    is_list: bool = False,
    with_columns: bool = True,
    version: str = "v1",
) -> JSON:
    """Print objects as a Table.

    Args:
        resource: whose columns to use.
        list_meta: the list's metadata (resourceVersion, continue, …), or the object's own.
        now: Unix seconds, for ages.
        include_object: what of each object travels with its row.
        is_list: whether they are those of a list, which marks the default class.
        with_columns: a watch sends the columns with its first event only.
        version: of meta.k8s.io; kubectl before 1.24 may request v1beta1.
    """
    printed = resource.plural if resource.group != resources.METRICS_GROUP else ""
    rows: list[JSON] = []
    default = ""
    if is_list and printed == "storageclasses":
        objects = list(objects)
        default = others.default_class(objects)
    for obj in objects:
        row: JSON = {"cells": _cells(printed, obj, now)}
        if default and row["cells"][0] == default:
            row["cells"][0] += " (default)"
        ended = pods.conditions(obj) if printed == "pods" else []
        if ended:
            row["conditions"] = ended
        if include_object == "Object":
            row["object"] = obj
        elif include_object == "Metadata":
            row["object"] = partial(obj, version)
        else:
            row["object"] = None
        rows.append(row)
    columns = list(_columns(resource.api_path, printed)) if with_columns else None
    return {
        "kind": "Table",
        "apiVersion": f"meta.k8s.io/{version}",
        "metadata": list_meta,
        "columnDefinitions": columns,
        "rows": rows,
    }
