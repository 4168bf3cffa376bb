"""The policies by which devices that are shared give their capacity.

Source: validation of resource.k8s.io/v1 of an API server.
"""

from __future__ import annotations

import itertools
from decimal import ROUND_CEILING, Decimal
from typing import TYPE_CHECKING, Any

from kubeletpy_up.schema import formats
from kubeletpy_up.validation import amounts

if TYPE_CHECKING:
    from kubeletpy.base.api.types import JSON
    from kubeletpy_up.validation.report import Report

MAX_VALUES = 10
_NO_DEFAULT = "default value is not valid according to the requestPolicy"
_BOTH = (
    "exactly one policy can be specified, cannot specify "
    '"validValues" and "validRange" at the same time'
)


def request_policy(report: Report, capacity: JSON, path: str, *, shared: bool) -> None:
    """The policy of one capacity of a device, whose value is known to be a quantity."""
    policy = capacity.get("requestPolicy")
    if policy is None:
        return
    if not shared:
        report.forbidden(path, "allowMultipleAllocations must be true")
        return
    values, between = policy.get("validValues") or (), policy.get("validRange")
    before = len(report.causes)
    _quantity(report, policy, "default", path)
    for index, value in enumerate(values):
        amounts.quantity(report, value, f"{path}.validValues[{index}]")
    for name in ("min", "max"):
        _quantity(report, between or {}, name, f"{path}.validRange")
    if len(report.causes) > before:
        return
    if values and between is not None:
        report.forbidden(path, _BOTH)
    elif (values or between is not None) and policy.get("default") is None:
        kind = "validValues" if values else "validRange"
        report.required(f"{path}.default", f"required when {kind} is defined")
    elif values:
        _values(report, policy, capacity["value"], f"{path}.validValues")
    elif between is not None:
        _range(report, policy, capacity["value"], f"{path}.validRange")


def _quantity(report: Report, supplied: JSON, name: str, path: str) -> None:
    if supplied.get(name) is not None:
        amounts.quantity(report, supplied[name], f"{path}.{name}")


def _values(report: Report, policy: JSON, most: Any, path: str) -> None:
    values = policy["validValues"]
    report.at_most(path, values, MAX_VALUES)
    for index, (one, other) in enumerate(itertools.pairwise(values), 1):
        if _amount(one) > _amount(other):
            report.invalid(f"{path}[{index}]", other, "values must be sorted in ascending order")
        if _amount(one) == _amount(other):
            report.duplicate(f"{path}[{index}]", other)
    for index, value in enumerate(values):
        if _amount(value) > _amount(most):
            detail = f"option is larger than capacity value: {most}"
            report.invalid(f"{path}[{index}]", value, detail)
    if all(_amount(value) != _amount(policy["default"]) for value in values):
        report.invalid(path, policy["default"], _NO_DEFAULT)


def _range(report: Report, policy: JSON, most: Any, path: str) -> None:
    between, default = policy["validRange"], policy["default"]
    least, upper, step = between.get("min"), between.get("max"), between.get("step")
    if least is None:
        report.required(f"{path}.min", "required when validRange is defined")
        return
    if _amount(least) > _amount(most):
        report.invalid(f"{path}.min", least, f"min is larger than capacity value: {most}")
    if _amount(default) < _amount(least):
        detail = f"default is less than min: {least}"
        report.invalid(f"{path}.default", default, detail)
    if upper is not None:
        where = f"{path}.max"
        if _amount(least) > _amount(upper):
            report.invalid(where, least, f"min is larger than max: {upper}")
        if _amount(upper) > _amount(most):
            report.invalid(where, upper, f"max is larger than capacity value: {most}")
        if _amount(default) > _amount(upper):
            detail = f"default is more than max: {upper}"
            report.invalid(f"{path}.default", default, detail)
    if step is not None:
        _step(report, policy, most, f"{path}.step")


def _step(report: Report, policy: JSON, most: Any, path: str) -> None:
    between = policy["validRange"]
    least, step = between["min"], between["step"]
    if _amount(step) <= 0:
        report.invalid(path, step, "must be greater than zero")
        return
    added = _amount(least) + _amount(step)
    if added > _amount(most):
        reported = formats.binary(_whole(least) + _whole(step))
        report.invalid(path, step, f"one step {reported} is larger than capacity value: {most}")
    for value in (policy["default"], between.get("max")):
        if value is not None and (_whole(value) - _whole(least)) % _whole(step):
            detail = f"value is not a multiple of a given step ({step}) from ({least})"
            report.invalid(path, value, detail)


def _amount(text: Any) -> Decimal:
    return formats.read(str(text))[0]


def _whole(text: Any) -> int:
    return int(_amount(text).to_integral_value(ROUND_CEILING))
