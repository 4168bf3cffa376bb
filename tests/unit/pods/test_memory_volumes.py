"""Sizes of volumes in memory: which are limited, what changes, and pods with other sizes."""

from __future__ import annotations

from typing import Any

import pytest

from kubeletpy.base.api.types import JSON
from kubeletpy.pods.pod import Pod
from kubeletpy.pods.resources import changed_limits, same_size, size_limits, with_size_limits


def volume(name: str, **source: Any) -> Any:
    return {"name": name, "emptyDir": source}


def pod(*volumes: Any) -> Pod:
    metadata: Any = {"name": "p", "namespace": "n", "uid": "u"}
    return Pod(
        {"metadata": metadata, "spec": {"containers": [{"name": "c"}], "volumes": list(volumes)}}
    )


@pytest.mark.parametrize(
    ("one", "limited"),
    [
        (volume("v", medium="Memory", sizeLimit="1Gi"), True),
        (volume("v", medium="Memory"), False),
        (volume("v", medium="Memory", sizeLimit="0"), False),
        (volume("v", medium="Memory", sizeLimit=None), False),
        (volume("v", sizeLimit="1Gi"), False),
        (volume("v", medium="HugePages", sizeLimit="1Gi"), False),
        ({"name": "v", "configMap": {"name": "c"}}, False),
    ],
)
def test_only_volumes_in_memory_with_a_limit_count(one: JSON, limited: bool) -> None:
    assert size_limits(pod(one)) == ({"v": "1Gi"} if limited else {})


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [("1Gi", "1Gi", True), ("1Gi", "1024Mi", True), ("1Gi", "1G", False), ("x", "1", False)],
)
def test_sizes_are_compared_by_amount(one: str, other: str, same: bool) -> None:
    assert same_size(one, other) is same


def test_only_volumes_of_both_pods_change() -> None:
    before, after = {"a": "1Mi", "b": "1Mi", "c": "1Mi"}, {"a": "2Mi", "b": "1024Ki", "d": "1"}
    assert changed_limits(before, after) == {"a": "2Mi"}


def test_a_pod_with_other_sizes_shares_the_rest() -> None:
    memory, disk = volume("m", medium="Memory", sizeLimit="1Mi"), volume("d", sizeLimit="1Mi")
    one = pod(memory, disk)
    made = with_size_limits(one, {"m": "2Mi", "d": "2Mi", "gone": "1"})
    assert made == [volume("m", medium="Memory", sizeLimit="2Mi"), disk]
    assert made is not None
    assert made[1] is disk
    assert memory["emptyDir"]["sizeLimit"] == "1Mi"
    assert with_size_limits(one, {"m": "1024Ki"}) is None
    assert with_size_limits(one, {}) is None
