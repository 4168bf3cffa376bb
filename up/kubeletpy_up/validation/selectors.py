"""Label selectors, of claims and of storage capacities."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kubeletpy_up.schema import formats
from kubeletpy_up.validation import metadata

if TYPE_CHECKING:
    from kubeletpy.base.api.types import JSON
    from kubeletpy_up.validation.report import Report

_WITH_VALUES, _WITHOUT_VALUES = ("In", "NotIn"), ("Exists", "DoesNotExist")


def label_selector(report: Report, selector: JSON, path: str) -> None:
    """A LabelSelector: its labels and its expressions."""
    metadata.labels(report, selector.get("matchLabels"), f"{path}.matchLabels")
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
