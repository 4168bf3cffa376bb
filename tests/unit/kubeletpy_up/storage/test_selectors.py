"""Selectors: their grammar, and what they match."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubeletpy_up.errors import ApiError
from kubeletpy_up.registry.reading import ListOptions
from kubeletpy_up.requests import Caller
from kubeletpy_up.storage.selectors import parse_fields, parse_labels
from tests.kit.costs import is_linear
from tests.kit.embedded import make_registry


@pytest.mark.parametrize(
    ("text", "labels", "matches"),
    [
        ("", {}, True),
        ("a=1", {"a": "1"}, True),
        ("a==1", {"a": "2"}, False),
        ("a = 1 , b=2", {"a": "1", "b": "2"}, True),
        ("a=", {"a": ""}, True),
        ("a=", {}, False),
        ("a!=1", {}, True),
        ("a!=1", {"a": "1"}, False),
        ("a in (1, 2)", {"a": "2"}, True),
        ("a in (1,2)", {}, False),
        ("a notin (1,2)", {}, True),
        ("a notin (1,2),b", {"b": ""}, True),
        ("a", {"a": "x"}, True),
        ("!a", {"a": "x"}, False),
        ("!a", {}, True),
        ("a>3", {"a": "4"}, True),
        ("a<3", {"a": "4"}, False),
        ("a>3", {"a": "x"}, False),
        ("in in (in),notin", {"in": "in", "notin": "x"}, True),
        ("a in ()", {"a": ""}, True),
        ("a in (,b)", {"a": ""}, True),
        (" a\tnotin( b )", {"a": "b"}, False),
        ("a=,b", {"a": "", "b": "x"}, True),
        ("example.com/a=1", {"example.com/a": "1"}, True),
    ],
)
def test_labels(text: str, labels: dict[str, str], matches: bool) -> None:
    assert all(r.matches(labels) for r in parse_labels(text)) is matches


BAD = ["a in", "a in (1", "=1", "a=b=c", "a,,b", ",", "a b", "a in (x y)", "-a", "a=b!", "!", "a>"]
BAD += ["a>x", "a in (b,(c))", "a in b", "a in (b", "(a)", "!a=b", "a/b/c", "a" * 64]
BAD += ["a=" + "b" * 64, "a>" + "9" * 20, "a in (b) c", "a=b,"]


@pytest.mark.parametrize("text", BAD)
def test_bad_label_selectors(text: str) -> None:
    with pytest.raises(ApiError) as caught:
        parse_labels(text)
    assert caught.value.code == 400


PIECES = [" ", "a ", "a", "(", ")", "a(", "!", "=", ",", "a,", "a in (", "-", "a.", "/", "\\"]


@pytest.mark.parametrize("piece", PIECES)
@pytest.mark.parametrize("end", ["", "!", "a"])
def test_no_selector_costs_more_than_its_length(piece: str, end: str) -> None:
    def read(size: int) -> None:
        text = (piece * size)[: size - 1] + end
        for parse in (parse_labels, lambda t: parse_fields("pods", t)):
            with contextlib.suppress(ApiError):
                parse(text)

    assert is_linear(read, size=4 << 10), "four times this is the longest that is read"


def test_selectors_of_unauthorized_callers_are_not_parsed() -> None:
    for text in ("a b", " " * 20_000, "a in ("):
        for options in (ListOptions(label_selector=text), ListOptions(field_selector="x=y")):
            with pytest.raises(ApiError) as caught:
                make_registry().list(Caller("eve"), "pods", None, options)
            assert caught.value.code == 403


POD = {
    "metadata": {"name": "p", "namespace": "d"},
    "spec": {"nodeName": "n", "restartPolicy": "Always"},
    "status": {"phase": "Running"},
}


@pytest.mark.parametrize(
    ("resource", "text", "obj", "matches"),
    [
        ("pods", "spec.nodeName=n,status.phase!=Failed", POD, True),
        ("pods", "spec.nodeName=", POD, False),
        ("pods", "spec.hostNetwork=false", POD, True),
        ("pods", "metadata.name=p,metadata.namespace==d", POD, True),
        ("pods", r"metadata.name=a\,b", {"metadata": {"name": "a,b"}}, True),
        ("nodes", "spec.unschedulable=true", {"spec": {"unschedulable": True}}, True),
        ("nodes", "spec.unschedulable=false", {}, True),
        ("events", "involvedObject.name=x,type=Normal", {"involvedObject": {"name": "x"}}, False),
        ("events", "source=kubelet", {"source": {"component": "kubelet"}}, True),
        ("events", "source=kubelet", {"reportingComponent": "kubelet"}, True),
        ("configmaps", "", {}, True),
    ],
)
def test_fields(resource: str, text: str, obj: dict[str, object], matches: bool) -> None:
    assert all(term.matches(obj) for term in parse_fields(resource, text)) is matches


@pytest.mark.parametrize(
    ("resource", "text"),
    [("pods", "spec.color=red"), ("configmaps", "spec.nodeName=n"), ("pods", "metadata.name")],
)
def test_bad_field_selectors(resource: str, text: str) -> None:
    with pytest.raises(ApiError) as caught:
        parse_fields(resource, text)
    assert caught.value.code == 400


@given(st.text(max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    for read in (parse_labels, lambda t: parse_fields("pods", t)):
        try:
            terms = read(text)
        except ApiError as error:
            assert error.code == 400
        else:
            for term in terms:
                term.matches({})
