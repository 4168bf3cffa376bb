"""Strategic merge patches: answers to malformed ones, and kinds without a definition."""

from __future__ import annotations

from typing import Any

import pytest

from kubeletpy_up.errors import ApiError
from kubeletpy_up.patching.apply import strategic_merge

POD = "io.k8s.api.core.v1.Pod"


@pytest.mark.parametrize(
    ("patch", "code"),
    [
        ({"spec": {"containers": [{"image": "x"}]}}, 422),
        ({"spec": {"containers": ["x"]}}, 400),
        ({"metadata": {"$patch": "explode"}}, 400),
    ],
)
def test_malformed(patch: dict[str, Any], code: int) -> None:
    with pytest.raises(ApiError) as caught:
        strategic_merge(POD, {"spec": {"containers": [{"name": "a"}]}}, patch)
    assert caught.value.code == code


def test_lists_are_keyed_by_the_definition() -> None:
    supplied = {"spec": {"containers": [{"name": "a", "image": "x"}, {"name": "b"}]}}
    patch = {"spec": {"containers": [{"name": "a", "tty": True}]}}
    assert strategic_merge(POD, supplied, patch) == {
        "spec": {"containers": [{"name": "a", "image": "x", "tty": True}, {"name": "b"}]}
    }
    assert strategic_merge(None, supplied, patch) == patch
