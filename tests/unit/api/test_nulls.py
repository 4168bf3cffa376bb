"""Null keys are absent keys, at any depth."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kubeletpy.api import nulls
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
        ({"a": [{"b": {"c": None}}]}, {"a": [{"b": {}}]}),
    ],
)  # fmt: skip
def test_null_keys_go(value: Any, wanted: Any) -> None:
    assert nulls.loads(json.dumps(value).encode()) == wanted


def test_a_scheduled_pod_of_a_real_api_has_the_right_shape() -> None:
    assert pod_problem(json.loads(SCHEDULED))
    pod = nulls.loads(SCHEDULED)
    assert not pod_problem(pod)
    assert pod["status"]["conditions"] == [
        {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-11-21T06:53:03Z"}
    ]
