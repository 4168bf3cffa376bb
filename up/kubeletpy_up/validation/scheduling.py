"""Tolerations, taints, affinity and spreading: checked so that a manifest's typos show here too."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kubeletpy_up.schema import formats
from kubeletpy_up.validation import metadata

if TYPE_CHECKING:
    from kubeletpy.base.api.types import JSON
    from kubeletpy_up.validation.report import Report

_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_OPERATORS = ("Equal", "Exists")
_COMPARISONS = ("Lt", "Gt")
"""They need the gate TaintTolerationComparisonOperators."""
_NODE_OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")
_UNSATISFIABLE = ("DoNotSchedule", "ScheduleAnyway")


def tolerations(report: Report, supplied: list[JSON], path: str) -> None:
    """Check ``spec.tolerations`` of a pod."""
    for index, toleration in enumerate(supplied):
        where = f"{path}[{index}]"
        key, operator = toleration.get("key") or "", toleration.get("operator") or ""
        value, effect = toleration.get("value") or "", toleration.get("effect") or ""
        if key:
            report.all_invalid(f"{where}.key", key, formats.qualified_name(key))
        elif operator != "Exists":
            report.invalid(
                f"{where}.operator",
                operator,
                'operator must be Exists when `key` is empty, which means "match all values and '
                'all keys"',
            )
        if toleration.get("tolerationSeconds") is not None and effect != "NoExecute":
            detail = "effect must be 'NoExecute' when `tolerationSeconds` is set"
            report.invalid(f"{where}.effect", effect, detail)
        if operator in ("", "Equal"):
            details = formats.label_value(value)
            if details:
                report.invalid(f"{where}.operator", value, ";".join(details))
        elif operator == "Exists":
            if value:
                detail = "value must be empty when `operator` is 'Exists'"
                report.invalid(f"{where}.operator", value, detail)
        else:
            reported = (*_OPERATORS, *_COMPARISONS) if operator in _COMPARISONS else _OPERATORS
            report.unsupported(f"{where}.operator", operator, reported)
        if effect and effect not in _EFFECTS:
            report.unsupported(f"{where}.effect", effect, _EFFECTS)


def taints(report: Report, supplied: list[JSON], path: str) -> None:
    """Check ``spec.taints`` of a Node."""
    seen: set[tuple[str, str]] = set()
    for index, taint in enumerate(supplied):
        where = f"{path}[{index}]"
        key, value, effect = (taint.get(name) or "" for name in ("key", "value", "effect"))
        report.all_invalid(f"{where}.key", key, formats.qualified_name(key))
        details = formats.label_value(value)
        if details:
            report.invalid(f"{where}.value", value, ";".join(details))
        report.one_of(f"{where}.effect", effect, _EFFECTS)
        if (key, effect) in seen:
            report.duplicate(where, taint)
        seen.add((key, effect))


def _node_term(report: Report, term: JSON, path: str) -> None:
    for index, expression in enumerate(term.get("matchExpressions") or ()):
        where = f"{path}.matchExpressions[{index}]"
        key, operator = expression.get("key") or "", expression.get("operator") or ""
        values = expression.get("values") or []
        report.all_invalid(f"{where}.key", key, formats.qualified_name(key))
        if operator not in _NODE_OPERATORS:
            report.invalid(f"{where}.operator", operator, "not a valid selector operator")
        elif operator in ("In", "NotIn") and not values:
            detail = "must be specified when `operator` is 'In' or 'NotIn'"
            report.required(f"{where}.values", detail)
        elif operator in ("Exists", "DoesNotExist") and values:
            detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
            report.forbidden(f"{where}.values", detail)
        elif operator in ("Gt", "Lt") and len(values) != 1:
            detail = "must be specified single value when `operator` is 'Lt' or 'Gt'"
            report.required(f"{where}.values", detail)


def node_selector(report: Report, supplied: JSON, path: str) -> None:
    """A NodeSelector: at least one term."""
    where, terms = f"{path}.nodeSelectorTerms", supplied.get("nodeSelectorTerms") or []
    if not terms:
        report.required(where, "must have at least one node selector term")
    for index, term in enumerate(terms):
        _node_term(report, term, f"{where}[{index}]")


def _pod_term(report: Report, term: JSON, path: str) -> None:
    if not term.get("topologyKey"):
        report.required(f"{path}.topologyKey", "can not be empty")
    selector = term.get("labelSelector") or {}
    metadata.labels(report, selector.get("matchLabels"), f"{path}.labelSelector.matchLabels")


def affinity(report: Report, supplied: JSON, path: str) -> None:
    """Check ``spec.affinity`` of a pod."""
    node = supplied.get("nodeAffinity") or {}
    required = node.get("requiredDuringSchedulingIgnoredDuringExecution")
    hard = "requiredDuringSchedulingIgnoredDuringExecution"
    soft = "preferredDuringSchedulingIgnoredDuringExecution"
    if required is not None:
        node_selector(report, required, f"{path}.nodeAffinity.{hard}")
    for index, preferred in enumerate(node.get(soft) or ()):
        where = f"{path}.nodeAffinity.{soft}[{index}]"
        _weight(report, preferred, where)
        _node_term(report, preferred.get("preference") or {}, f"{where}.preference")
    for kind in ("podAffinity", "podAntiAffinity"):
        rules = supplied.get(kind) or {}
        for index, term in enumerate(rules.get(hard) or ()):
            _pod_term(report, term, f"{path}.{kind}.{hard}[{index}]")
        for index, preferred in enumerate(rules.get(soft) or ()):
            where = f"{path}.{kind}.{soft}[{index}]"
            _weight(report, preferred, where)
            _pod_term(report, preferred.get("podAffinityTerm") or {}, f"{where}.podAffinityTerm")


def _weight(report: Report, preferred: JSON, path: str) -> None:
    weight = preferred.get("weight") or 0
    if not 1 <= weight <= 100:
        report.invalid(f"{path}.weight", weight, "must be in the range 1-100")


def spread(report: Report, supplied: list[JSON], path: str) -> None:
    """Check ``spec.topologySpreadConstraints`` of a pod."""
    for index, constraint in enumerate(supplied):
        where = f"{path}[{index}]"
        if (constraint.get("maxSkew") or 0) <= 0:
            value = constraint.get("maxSkew") or 0
            report.invalid(f"{where}.maxSkew", value, "must be greater than zero")
        if not constraint.get("topologyKey"):
            report.required(f"{where}.topologyKey", "can not be empty")
        action = constraint.get("whenUnsatisfiable") or ""
        report.supported(f"{where}.whenUnsatisfiable", action, _UNSATISFIABLE)
