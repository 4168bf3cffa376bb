"""Devices that several claims share: the share of each claim, and exhausted devices."""

from __future__ import annotations

from typing import Any

import pytest

from kubeletpy_up.controllers import device_pools
from kubeletpy_up.controllers.device_allocation import CannotAllocate, allocate
from kubeletpy_up.controllers.device_capacity import share
from kubeletpy_up.controllers.device_pools import Taken
from tests.unit.kubeletpy_up.controllers.test_device_allocation import (
    CLASSES,
    DRIVER,
    NODE,
    claim,
    device,
    exactly,
    slice_of,
)

JSON = dict[str, Any]
RANGE = {"default": "1Gi", "validRange": {"min": "1Gi", "step": "2Gi", "max": "5Gi"}}
OPEN = {"default": "1Gi", "validRange": {"min": "1Gi"}}
VALUES = {"default": "2Gi", "validValues": ["1Gi", "2Gi", "4Gi"]}


@pytest.mark.parametrize(
    ("requested", "policy", "taken"),
    [
        (None, None, "8Gi"),
        ("3Gi", None, "3Gi"),
        ("8Gi", None, "8Gi"),
        ("9Gi", None, None),
        (None, RANGE, "1Gi"),
        ("1", RANGE, "1Gi"),
        ("1Gi", RANGE, "1Gi"),
        ("1025Mi", RANGE, "3Gi"),
        ("3Gi", RANGE, "3Gi"),
        ("5Gi", RANGE, "5Gi"),
        ("6Gi", RANGE, None),
        ("7500M", OPEN, "7500M"),
        (None, VALUES, "2Gi"),
        ("1", VALUES, "1Gi"),
        ("2049Mi", VALUES, "4Gi"),
        ("4Gi", VALUES, "4Gi"),
        ("5Gi", VALUES, None),
    ],
)
def test_the_share_of_a_request(
    requested: str | None, policy: JSON | None, taken: str | None
) -> None:
    capacity: JSON = {"value": "8Gi"} | ({"requestPolicy": policy} if policy else {})
    request = {"capacity": {"requests": {"memory": requested}}} if requested else {}
    found = share({"capacity": {"memory": capacity}}, request)
    assert found == (None if taken is None else {"memory": taken})


def test_a_device_without_the_capacity_does_not_fit() -> None:
    assert share({}, {"capacity": {"requests": {"memory": "1"}}}) is None
    assert share({}, {}) == {}


def shared(name: str, size: str = "8Gi", **more: Any) -> JSON:
    """A device that several claims may share."""
    capacity = {"memory": {"value": size, "requestPolicy": OPEN}}
    return {**device(name, **more), "allowMultipleAllocations": True, "capacity": capacity}


def requesting(size: str, name: str = "r", **more: Any) -> JSON:
    return exactly(name, capacity={"requests": {"memory": size}}, **more)


class Node:
    """A node whose claims are allocated one after another."""

    def __init__(self, *slices: JSON) -> None:
        self.devices = device_pools.on_node(NODE, slices)
        self.claims: list[JSON] = []
        self.shares = 0

    def _share_id(self) -> str:
        self.shares += 1
        return f"share{self.shares}"

    def give(self, *requests: JSON, **more: Any) -> list[tuple[str, str, str | None]]:
        """Allocates a claim; returns request, device and memory of each result."""
        found = allocate(
            claim(*requests, **more),
            self.devices,
            CLASSES,
            device_pools.taken(self.claims),
            self._share_id,
        )
        self.claims.append({"status": {"allocation": found}})
        return [
            (each["request"], each["device"], (each.get("consumedCapacity") or {}).get("memory"))
            for each in found["devices"]["results"]
        ]


def test_claims_share_a_device_until_it_is_full() -> None:
    node = Node(slice_of(shared("d0"), shared("d1")))
    assert node.give(requesting("5Gi")) == [("r", "d0", "5Gi")]
    assert node.give(requesting("3Gi")) == [("r", "d0", "3Gi")]
    assert node.give(exactly()) == [("r", "d1", "1Gi")]
    results = [each["status"]["allocation"]["devices"]["results"][0] for each in node.claims]
    assert [each["shareID"] for each in results] == ["share1", "share2", "share3"]
    with pytest.raises(CannotAllocate, match="1 of class gpu requested, 2 selected, 0 free"):
        node.give(requesting("7200Mi"))
    with pytest.raises(CannotAllocate, match="0 free, 2 without the capacity"):
        node.give(requesting("9Gi"))
    del node.claims[0]
    assert node.give(requesting("5Gi")) == [("r", "d0", "5Gi")]


def test_requests_of_one_claim_share_but_one_request_gets_distinct_devices() -> None:
    node = Node(slice_of(shared("d0"), shared("d1")))
    both = (requesting("4Gi", "a"), requesting("4Gi", "b"))
    assert node.give(*both) == [("a", "d0", "4Gi"), ("b", "d0", "4Gi")]
    with pytest.raises(CannotAllocate):
        node.give(requesting("1Gi", count=2))
    assert Node(slice_of(shared("d0"), shared("d1"))).give(requesting("1Gi", count=2)) == [
        ("r", "d0", "1Gi"),
        ("r", "d1", "1Gi"),
    ]


def test_a_choice_without_a_solution_is_undone() -> None:
    """The first request must leave the large device to the second."""
    node = Node(slice_of(shared("d0", numa=0), shared("d1", "4Gi", numa=0)))
    assert node.give(requesting("4Gi", "a"), requesting("8Gi", "b")) == [
        ("a", "d1", "4Gi"),
        ("b", "d0", "8Gi"),
    ]
    assert node.shares == 2


def test_all_that_have_the_capacity() -> None:
    node = Node(slice_of(shared("d0"), shared("d1", "4Gi"), shared("d2")))
    everything = requesting("5Gi", allocationMode="All")
    assert node.give(everything) == [("r", "d0", "5Gi"), ("r", "d2", "5Gi")]


def test_an_unshared_device_needs_the_capacity_and_is_allocated_completely() -> None:
    small = {**device("small"), "capacity": {"memory": {"value": "1Gi"}}}
    large = {**device("large"), "capacity": {"memory": {"value": "8Gi"}}}
    node = Node(slice_of(small, large))
    assert node.give(requesting("2Gi")) == [("r", "large", None)]
    assert "shareID" not in node.claims[0]["status"]["allocation"]["devices"]["results"][0]
    with pytest.raises(CannotAllocate, match="2 selected, 0 free, 1 without the capacity"):
        node.give(requesting("2Gi"))


def test_shared_counters_are_taken_with_the_first_share() -> None:
    consumes = [{"counterSet": "all", "counters": {"slots": {"value": "1"}}}]
    sets = [{"name": "all", "counters": {"slots": {"value": "1"}}}]
    node = Node(
        slice_of(
            *(shared(name, consumesCounters=consumes) for name in ("d0", "d1")), sharedCounters=sets
        )
    )
    assert node.give(requesting("4Gi")) == [("r", "d0", "4Gi")]
    assert node.give(requesting("4Gi")) == [("r", "d0", "4Gi")]
    with pytest.raises(CannotAllocate):
        node.give(requesting("4Gi"))
    node.claims.clear()
    both = (requesting("8Gi", "a"), requesting("8Gi", "b"))
    with pytest.raises(CannotAllocate):
        node.give(*both)


def test_admin_access_to_a_shared_device_takes_a_share() -> None:
    node = Node(slice_of(shared("d0")))
    assert node.give(requesting("8Gi", adminAccess=True)) == [("r", "d0", "8Gi")]
    with pytest.raises(CannotAllocate):
        node.give(requesting("1Gi"))


def test_a_device_allocated_exclusively_stays_exclusive() -> None:
    devices = device_pools.on_node(NODE, [slice_of(shared("d0"))])
    with pytest.raises(CannotAllocate):
        allocate(
            claim(exactly()), devices, CLASSES, Taken({(DRIVER, "n1", "d0")}), lambda: "unused"
        )
