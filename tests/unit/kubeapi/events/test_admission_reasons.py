"""Reasons for rejecting pods: one enumeration that agrees with the tables and the metric."""

from __future__ import annotations

import ast
import re
from typing import get_type_hints

import pytest

from kubeletpy.kubeapi.events.reasons import OUT_OF, AdmissionReason, metric_label
from kubeletpy.resources.admission.checks import Rejection
from kubeletpy.resources.placement.model import AllocationRefused
from tools.rulebook.product import code, modules

REFUSALS = {"Rejection": 0, "predicate": 0, "AllocationRefused": 1}
"""Callables that create a refusal, with the position of the reason in their arguments."""


@pytest.mark.parametrize(
    ("reason", "label"),
    [(AdmissionReason.OUT_OF_PODS, "OutOfpods"), (AdmissionReason.TAINT_TOLERATION, "Other")],
)
def test_the_label_of_a_reason(reason: AdmissionReason, label: str) -> None:
    assert metric_label(reason) == label


@pytest.mark.parametrize("reason", list(AdmissionReason))
def test_each_reason_has_a_user(reason: AdmissionReason) -> None:
    resource = reason.startswith(OUT_OF)
    assert resource or re.search(rf"\bAdmissionReason\.{reason.name}\b", code())


def test_extended_resources_have_reasons_but_one_label() -> None:
    reason = AdmissionReason("OutOfexample.com/gpu")
    assert reason == "OutOfexample.com/gpu"
    assert f"{reason}" == reason.value == "OutOfexample.com/gpu"
    assert hash(reason) == hash("OutOfexample.com/gpu")
    assert metric_label(reason) == "OutOfExtendedResources"
    assert reason not in list(AdmissionReason)


@pytest.mark.parametrize("text", ["", "Taken", "outOfcpu"])
def test_no_other_text_is_a_reason(text: str) -> None:
    with pytest.raises(ValueError, match=repr(text)):
        AdmissionReason(text)


def test_no_refusal_spells_its_reason_out() -> None:
    spelled = [
        f"{path.name}:{call.lineno}"
        for path in modules()
        if any(name in (text := path.read_text()) for name in REFUSALS)
        for call in ast.walk(ast.parse(text))
        if isinstance(call, ast.Call) and (at := REFUSALS.get(ast.unparse(call.func))) is not None
        for reason in (
            *call.args[at : at + 1],
            *(each.value for each in call.keywords if each.arg == "reason"),
        )
        if isinstance(reason, ast.Constant | ast.JoinedStr)
    ]
    assert spelled == []


def test_a_type_checker_refuses_other_reasons() -> None:
    assert get_type_hints(Rejection)["reason"] is AdmissionReason
    assert get_type_hints(AllocationRefused.__init__)["reason"] is AdmissionReason
