"""Values of cgroups at their bounds."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubeletpy.pods.resources import (
    MAX_SHARES,
    MIN_SHARES,
    amounts,
    shares_to_weight,
    weight_to_shares,
)
from kubeletpy.resources.cgroups.values import (
    HUGEPAGES_UNBOUNDED,
    NO_LIMIT,
    PodCgroupSettings,
    kubepods_group,
    milli,
    pod_resources,
    reserved_group,
)
from tests.unit.resources.cgroups.pods import fixed, pod


@pytest.mark.parametrize(
    ("shares", "weight"),
    [(-5, 1), (1, 1), (2, 1), (3, 1), (28, 1), (29, 2), (262_143, 9_999), (262_145, 10_000)],
)
def test_weights_at_their_bounds(shares: int, weight: int) -> None:
    assert shares_to_weight(shares) == weight


@pytest.mark.parametrize(("weight", "shares"), [(1, 2), (2, 28), (39, 998), (10_000, 262_144)])
def test_shares_of_weights(weight: int, shares: int) -> None:
    assert weight_to_shares(weight) == shares


@given(st.integers(MIN_SHARES, MAX_SHARES - 1), st.integers(1, 1000))
def test_more_shares_are_never_less_weight(shares: int, more: int) -> None:
    weight = shares_to_weight(shares)
    assert 1 <= weight <= shares_to_weight(min(shares + more, MAX_SHARES)) <= 10_000
    assert weight_to_shares(weight) <= shares < weight_to_shares(weight + 1) + 1


@pytest.mark.parametrize(("limit", "pids"), [(-1, None), (0, None), (1, 1), (7, 7)])
def test_a_pids_limit_below_one_sets_no_limit(limit: int, pids: int | None) -> None:
    assert pod_resources(pod(), PodCgroupSettings(pids_limit=limit)).pids == pids
    assert pod_resources(pod(fixed("1", "1Mi")), PodCgroupSettings(pids_limit=limit)).pids == pids


def test_the_defaults() -> None:
    assert PodCgroupSettings() == PodCgroupSettings(True, 100_000, -1, ())
    assert (NO_LIMIT, HUGEPAGES_UNBOUNDED) == (-1, 2**62)


@pytest.mark.parametrize(
    ("max_pids", "reserved", "pids"),
    [(0, "0", None), (1, "0", 1), (1, "1", 0), (1, "2", 0), (-1, "0", None), (5, "2", 3)],
)
def test_pids_of_the_node(max_pids: int, reserved: str, pids: int | None) -> None:
    capacity = {"cpu": "1", "memory": "1Mi"}
    group = kubepods_group(capacity, [{"pid": reserved}], max_pids=max_pids, enforce=True)
    assert group.pids == pids


@pytest.mark.parametrize(
    ("memory", "left"), [("1Mi", 0), ("1048575", 1), ("1048577", 0), ("0", 1 << 20)]
)
def test_memory_of_the_node(memory: str, left: int) -> None:
    capacity = {"cpu": "1", "memory": "1Mi", "hugepages-2Mi": "4Mi"}
    group = kubepods_group(
        capacity, [{"memory": memory}], max_pids=0, enforce=True, hugepage_sizes=("2MB", "1GB")
    )
    assert (group.memory, group.shares) == (left, 1024)
    assert group.hugepages == {"2MB": 4 << 20, "1GB": 0}


def test_unreserved_resources_are_not_limited() -> None:
    group = reserved_group(
        {"hugepages-2Mi": "2Mi"}, compressible=False, hugepage_sizes=("2MB", "1GB")
    )
    assert (group.shares, group.memory, group.pids) == (None, None, None)
    assert group.hugepages == {"2MB": 2 << 20, "1GB": 0}


def test_thousandths_are_rounded_up() -> None:
    supplied = amounts({"cpu": "1.5m"})
    assert (milli(supplied, "cpu"), milli(supplied, "memory")) == (2, 0)
