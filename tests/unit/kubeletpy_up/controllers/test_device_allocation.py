"""Devices allocated to claims, and the reasons when there are none."""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest

from kubeletpy_up.controllers import device_pools
from kubeletpy_up.controllers.device_allocation import CannotAllocate, allocate
from kubeletpy_up.controllers.device_pools import Devices, Taken

JSON = dict[str, Any]
DRIVER = "gpu.example.com"
NODE: JSON = {"metadata": {"name": "n1", "labels": {"zone": "a"}}}
CLASSES: dict[str, JSON] = {
    "gpu": {"spec": {"config": [{"opaque": {"driver": DRIVER, "parameters": {"a": 1}}}]}},
    "big": {"spec": {"selectors": [{"cel": {"expression": f'device.attributes["{DRIVER}"].big'}}]}},
}


def device(name: str, **facts: Any) -> JSON:
    """A device with attributes of the given values."""
    others = ("taints", "consumesCounters")
    more: JSON = {key: facts.pop(key) for key in others if key in facts}
    kinds = {bool: "bool", int: "int", str: "string"}
    attributes = {key: {kinds[type(value)]: value} for key, value in facts.items()}
    return {"name": name, "attributes": attributes, **more}


def slice_of(*devices: JSON, name: str = "s", pool: JSON | None = None, **spec: Any) -> JSON:
    about = {"name": "n1", "generation": 1, "resourceSliceCount": 1, **(pool or {})}
    where = {} if spec.keys() & {"allNodes", "nodeSelector", "perDeviceNodeSelection"} else NODE_N1
    supplied = {"driver": DRIVER, "pool": about, "devices": list(devices), **where, **spec}
    return {"metadata": {"name": name}, "spec": supplied}


NODE_N1 = {"nodeName": "n1"}


def exactly(name: str = "r", named: str = "gpu", **spec: Any) -> JSON:
    supplied = {"deviceClassName": named, "allocationMode": "ExactCount", **spec}
    if supplied["allocationMode"] == "ExactCount":
        supplied.setdefault("count", 1)
    return {"name": name, "exactly": supplied}


def claim(*requests: JSON, **devices: Any) -> JSON:
    return {"metadata": {"name": "c"}, "spec": {"devices": {"requests": list(requests), **devices}}}


def supplied(what: JSON, *slices: JSON, removed: tuple[str, ...] = ()) -> list[tuple[str, str]]:
    """Returns request and device of each result."""
    found = allocation(what, *slices, removed=removed)
    return [(each["request"], each["device"]) for each in found["devices"]["results"]]


def allocation(what: JSON, *slices: JSON, removed: tuple[str, ...] = ()) -> JSON:
    devices = device_pools.on_node(NODE, slices)
    ids = {each.id for each in devices.all if each.id[2] in removed}
    return allocate(what, devices, CLASSES, Taken(ids), lambda: "id")


THREE = slice_of(
    device("d0", big=True, numa=0), device("d1", big=False, numa=1), device("d2", big=True, numa=1)
)


def test_the_first_that_are_free() -> None:
    assert supplied(claim(exactly()), THREE) == [("r", "d0")]
    assert supplied(claim(exactly(count=2)), THREE, removed=("d0",)) == [("r", "d1"), ("r", "d2")]
    assert supplied(claim(exactly(named="big", count=2)), THREE) == [("r", "d0"), ("r", "d2")]
    assert supplied(claim(exactly(allocationMode="All", named="big")), THREE) == [
        ("r", "d0"),
        ("r", "d2"),
    ]


def test_the_recorded_allocation() -> None:
    config = [{"requests": ["r"], "opaque": {"driver": DRIVER, "parameters": {"b": 2}}}]
    found = allocation(claim(exactly(), config=config), THREE)
    assert found == {
        "devices": {
            "results": [{"request": "r", "driver": DRIVER, "pool": "n1", "device": "d0"}],
            "config": [
                {"source": "FromClass", "requests": ["r"], **CLASSES["gpu"]["spec"]["config"][0]},
                {"source": "FromClaim", **config[0]},
            ],
        },
        "nodeSelector": device_pools.one_node("n1"),
    }


def test_the_first_satisfiable_alternative() -> None:
    many = {"name": "many", "deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 4}
    one = {**many, "name": "one", "count": 1}
    desired = {"name": "r", "firstAvailable": [many, one]}
    assert supplied(claim(desired), THREE) == [("r/one", "d0")]


def test_constraints() -> None:
    same = [{"requests": ["a", "b"], "matchAttribute": f"{DRIVER}/numa"}]
    two = claim(exactly("a"), exactly("b"), constraints=same)
    assert supplied(two, THREE) == [("a", "d1"), ("b", "d2")]
    with pytest.raises(CannotAllocate, match="no combination of devices"):
        supplied(two, THREE, removed=("d2",))
    apart = [{"distinctAttribute": f"{DRIVER}/numa"}]
    assert supplied(claim(exactly(count=2), constraints=apart), THREE) == [("r", "d0"), ("r", "d1")]
    unknown = [{"matchAttribute": f"{DRIVER}/nix"}]
    with pytest.raises(CannotAllocate):
        supplied(claim(exactly(), constraints=unknown), THREE)


def test_admin_access_gets_allocated_devices() -> None:
    everything = exactly(allocationMode="All", adminAccess=True)
    found = allocation(claim(everything), THREE, removed=("d0", "d1"))
    assert [each["adminAccess"] for each in found["devices"]["results"]] == [True] * 3
    assert device_pools.taken([{"status": {"allocation": found}}]).devices == set()


def test_taints() -> None:
    taint = {"key": "k", "value": "v", "effect": "NoSchedule"}
    tainted = slice_of(
        device("d0", taints=[taint]), device("d1", taints=[{**taint, "effect": "None"}])
    )
    assert supplied(claim(exactly()), tainted) == [("r", "d1")]
    borne = [{"key": "k", "operator": "Equal", "value": "v"}]
    assert supplied(claim(exactly(tolerations=borne)), tainted) == [("r", "d0")]
    with pytest.raises(
        CannotAllocate, match="2 of class gpu requested, 2 selected, 1 free, 1 tainted"
    ):
        supplied(claim(exactly(count=2)), tainted)


def test_counters_that_devices_share() -> None:
    def part(name: str, amount: str) -> JSON:
        uses = [{"counterSet": "mem", "counters": {"m": {"value": amount}}}]
        return device(name, consumesCounters=uses)

    whole = {"name": "mem", "counters": {"m": {"value": "80Gi"}}}
    pool = {"resourceSliceCount": 2}
    counters = slice_of(name="counters", pool=pool, sharedCounters=[whole])
    parts = slice_of(part("whole", "80Gi"), part("half", "40Gi"), part("rest", "40Gi"), pool=pool)
    two = claim(exactly(count=2))
    assert supplied(two, counters, parts) == [("r", "half"), ("r", "rest")]
    assert supplied(claim(exactly()), counters, parts, removed=("half",)) == [("r", "rest")]
    with pytest.raises(CannotAllocate):
        supplied(two, counters, parts, removed=("half",))


def test_pools() -> None:
    old = slice_of(device("old"), name="a")
    new = slice_of(device("new"), name="b", pool={"generation": 2})
    assert supplied(claim(exactly()), old, new) == [("r", "new")]
    half = slice_of(device("d0"), pool={"resourceSliceCount": 2})
    with pytest.raises(CannotAllocate, match="being changed: gpu"):
        supplied(claim(exactly()), half)


def test_where_devices_are() -> None:
    zone = {"key": "zone", "operator": "In", "values": ["a"]}
    here = {"nodeSelectorTerms": [{"matchExpressions": [zone]}]}
    by_label = slice_of(device("d0"), nodeSelector=here)
    assert allocation(claim(exactly()), by_label)["nodeSelector"] == here
    everywhere = slice_of(device("d0"), allNodes=True)
    assert "nodeSelector" not in allocation(claim(exactly()), everywhere)
    mixed = slice_of(
        {**device("d0"), "nodeName": "n2"},
        {**device("d1"), "nodeName": "n1"},
        perDeviceNodeSelection=True,
    )
    assert supplied(claim(exactly()), mixed) == [("r", "d1")]


@pytest.mark.parametrize(
    ("what", "why"),
    [
        (claim(exactly(named="nope")), "request r: device class nope does not exist"),
        (claim(exactly(count=4)), "4 of class gpu requested, 3 selected, 3 free"),
        (claim(exactly(capacity={"requests": {"m": "1"}})), "0 free, 3 without the capacity"),
        (
            claim(exactly(selectors=[{"cel": {"expression": f'device.attributes["{DRIVER}"].x'}}])),
            "device gpu.example.com/n1/d0: CEL runtime error: no such key: x",
        ),
        (claim(exactly(count=33)), "33 of class gpu requested"),
    ],
)
def test_reasons(what: JSON, why: str) -> None:
    with pytest.raises(CannotAllocate, match=why):
        supplied(what, THREE)


def test_devices_that_cannot_be_allocated_are_named() -> None:
    waits = {**device("d0"), "bindingConditions": ["Ready"]}
    with pytest.raises(CannotAllocate, match="1 more cannot be given here: it has binding cond"):
        supplied(claim(exactly()), slice_of(waits))


def test_a_search_ends() -> None:
    many = [device(f"d{index}", numa=index) for index in range(40)]
    same = [{"matchAttribute": f"{DRIVER}/numa"}]
    requests = [exactly(f"r{index}", count=3) for index in range(8)]
    with pytest.raises(CannotAllocate):
        supplied(claim(*requests, constraints=[*same]), slice_of(*many))


@pytest.mark.parametrize("seed", range(40))
def test_allocations_agree_with_exhaustive_search(seed: int) -> None:
    """An allocation is found exactly when some choice of devices is valid."""
    rng = random.Random(seed)
    every = [device(f"d{i}", big=rng.random() < 0.6, numa=rng.randrange(3)) for i in range(5)]
    requests = [
        exactly(f"r{i}", rng.choice(["gpu", "big"]), count=rng.randrange(1, 3))
        for i in range(rng.randrange(1, 4))
    ]
    kind = rng.choice(["matchAttribute", "distinctAttribute"])
    constraints = [{kind: f"{DRIVER}/numa"}] if rng.random() < 0.7 else []
    what = claim(*requests, constraints=constraints)
    slots = [each for each in requests for _ in range(each["exactly"]["count"])]

    def right(chosen: tuple[JSON, ...]) -> bool:
        for request, each in zip(slots, chosen, strict=True):
            if request["exactly"]["deviceClassName"] == "big" and not _fact(each, "big"):
                return False
        nodes = [_fact(each, "numa") for each in chosen]
        if constraints:
            return len(set(nodes)) == (1 if kind == "matchAttribute" else len(nodes))
        return True

    possible = any(map(right, itertools.permutations(every, len(slots))))
    try:
        found = supplied(what, slice_of(*every))
    except CannotAllocate:
        assert not possible
        return
    by_name = {each["name"]: each for each in every}
    assert len({name for _, name in found}) == len(slots)
    assert right(tuple(by_name[name] for _, name in found))


def _fact(what: JSON, name: str) -> Any:
    (value,) = what["attributes"][name].values()
    return value


def test_a_claim_without_requests() -> None:
    assert allocate(claim(), Devices(), CLASSES, Taken(), lambda: "id") == {
        "devices": {"results": []}
    }
