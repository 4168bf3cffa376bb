"""Null keys are absent keys, at any depth."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kubeletpy.base.api import object_text
from kubeletpy.pods.shape import pod_problem

SCHEDULED = (
    b'{"metadata":{"name":"p","namespace":"n","uid":"u","creationTimestamp":null},'
    b'"spec":{"containers":[{"name":"c","image":"i","resources":{}}],"nodeName":"m"},'
    b'"status":{"phase":"Pending","conditions":[{"type":"PodScheduled","status":"True",'
    b'"lastProbeTime":null,"lastTransitionTime":"2026-11-21T06:53:03Z"}]}}'
)
"""A pod as an API server sends it: fields without omitempty are null."""


@pytest.mark.parametrize(
    ("value", "desired"),
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
def test_null_keys_are_removed(value: Any, desired: Any) -> None:
    text = json.dumps(value).encode()
    assert object_text.loads(text) == desired
    assert object_text.loads(text + b" " * object_text.MOST_TEXT) == desired


def test_a_scheduled_pod_of_a_real_api_has_the_right_shape() -> None:
    assert pod_problem(json.loads(SCHEDULED))
    pod = object_text.loads(SCHEDULED)
    assert not pod_problem(pod)
    assert pod["status"]["conditions"] == [
        {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-11-21T06:53:03Z"}
    ]


def test_repeated_strings_are_shared() -> None:
    one, other = (object_text.loads(SCHEDULED)["status"]["conditions"][0] for _ in range(2))
    assert all(a is b for a, b in zip(one, other, strict=True))
    assert all(a is b for a, b in zip(one.values(), other.values(), strict=True))


@pytest.mark.parametrize(
    "text", [b'{"data":{"password":"c2VjcmV0"}}', b'{"image":"%s"}' % (b"x" * 65)]
)
def test_secret_or_long_strings_are_not_kept(text: bytes) -> None:
    (one,), (other,) = (_leaves(object_text.loads(text)) for _ in range(2))
    assert one == other
    assert one is not other


def _leaves(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    return [leaf for each in value.values() for leaf in _leaves(each)]


@pytest.mark.parametrize(("more", "shared"), [(0, True), (1, False)])
def test_long_text_is_not_held_up(more: int, shared: bool) -> None:
    text = SCHEDULED + b" " * (object_text.MOST_TEXT - len(SCHEDULED) + more)
    assert (
        next(iter(object_text.loads(text))) is next(iter(object_text.loads(SCHEDULED)))
    ) is shared


def test_shared_strings_are_bounded() -> None:
    before = object_text.loads(SCHEDULED)
    many = {str(number): 0 for number in range(object_text.MOST_SHARED + 1)}
    assert object_text.loads(json.dumps(many).encode()) == many
    after = object_text.loads(SCHEDULED)
    assert next(iter(after)) is not next(iter(before))
    assert object_text.loads(SCHEDULED).keys() == after.keys()
    assert next(iter(object_text.loads(SCHEDULED))) is next(iter(after))
