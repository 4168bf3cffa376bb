"""Null keys are absent keys, at any depth."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kubeletpy.api.nulls import drop_nulls, may_have_nulls
from kubeletpy.pods.shape import pod_problem

SCHEDULED = (
    b'{"metadata":{"name":"p","namespace":"n","uid":"u","creationTimestamp":null},'
    b'"spec":{"containers":[{"name":"c","image":"i","resources":{}}],"nodeName":"m"},'
    b'"status":{"phase":"Pending","conditions":[{"type":"PodScheduled","status":"True",'
    b'"lastProbeTime":null,"lastTransitionTime":"2026-11-21T06:53:03Z"}]}}'
)
"""As a real API server sends it: fields without omitempty are null."""


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        ({"a": None}, {}),
        ({"a": {"b": None, "c": 1}}, {"a": {"c": 1}}),
        ({"d": [{"e": None}, [{"f": None}]]}, {"d": [{}, [{}]]}),
        ({"a": [None, "x"]}, {"a": [None, "x"]}),
        ({"a": "null", "b": 0, "c": "", "d": False}, {"a": "null", "b": 0, "c": "", "d": False}),
        ([{"a": None}], [{}]),
        (None, None),
        # nothing here reads it
        ({"managedFields": [{"a": None}]}, {"managedFields": [{"a": None}]}),
    ],
)  # fmt: skip
def test_null_keys_go(value: Any, wanted: Any) -> None:
    drop_nulls(value)
    assert value == wanted


def test_nesting_has_no_limit() -> None:
    value: Any = {"x": None}
    for _ in range(100_000):
        value = {"x": value}
    drop_nulls(value)


def test_a_scheduled_pod_of_a_real_api_has_the_right_shape() -> None:
    pod = json.loads(SCHEDULED)
    assert pod_problem(pod)
    assert may_have_nulls(SCHEDULED)
    drop_nulls(pod)
    assert not pod_problem(pod)
    assert pod["status"]["conditions"] == [
        {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-11-21T06:53:03Z"}
    ]
