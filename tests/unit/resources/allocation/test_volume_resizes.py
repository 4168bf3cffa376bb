"""Resizes of volumes in memory: allocated with the rest of a resize, or infeasible on cgroup v1."""

from __future__ import annotations

import pytest

from kubeletpy.pods.pod import Pod
from kubeletpy.resources.allocation.resources import (
    Infeasible,
    PodResources,
    ResizeRules,
    infeasible,
)
from tests.unit.resources.allocation.pods import needs, pod
from tests.unit.resources.allocation.test_allocation_manager import SMALL, Node
from tests.virtual_time import on_virtual_time

ON = ResizeRules(memory_volumes=True)
ON_V1 = ResizeRules(memory_volumes=True, cgroup_v2=False)
V1 = Infeasible(
    "cgroups_v1_unsupported",
    "Memory-backed emptyDir volume resize is not supported on cgroups v1",
)


def sized(size: str, cpu: str = "cpu=1", generation: int = 1) -> Pod:
    made = pod(a=needs(cpu) if cpu else {}, generation=generation)
    volumes = [{"name": "v", "emptyDir": {"medium": "Memory", "sizeLimit": size}}]
    return Pod({**made.object, "spec": {**made.spec, "volumes": volumes}})  # type: ignore[typeddict-item]


def size(node: Node) -> str:
    volumes = node.manager.allocated(node.pods["u1"]).spec["volumes"]
    return str(volumes[0]["emptyDir"]["sizeLimit"])


@pytest.mark.parametrize(
    ("rules", "new", "verdict"),
    [
        (ON, sized("2Mi"), None),
        (ON_V1, sized("2Mi"), V1),
        (ON_V1, sized("1024Ki"), None),
        (ON_V1, sized("1Mi", "cpu=2"), None),
        (ResizeRules(cgroup_v2=False), sized("2Mi"), None),
    ],
    ids=["v2", "v1", "the same amount", "other resources", "gate off"],
)
def test_sizes_can_be_changed_on_cgroup_v2_only(
    rules: ResizeRules, new: Pod, verdict: Infeasible | None
) -> None:
    assert infeasible(new, sized("1Mi"), rules) == verdict


@on_virtual_time
async def test_a_size_is_allocated_and_reported() -> None:
    node = Node(rules=ON)
    node.admit(sized("1Mi"))
    node.update(sized("2Mi", generation=2))
    assert size(node) == "2Mi"
    assert node.conditions() == {"PodResizeInProgress": ""}
    assert node.reasons == ["ResizeStarted"]
    assert node.state.volumes("u1") == {"v": "2Mi"}


@on_virtual_time
async def test_a_size_is_deferred_with_its_resize() -> None:
    node = Node(rules=ON)
    node.admit(sized("1Mi"))
    node.room = False
    node.update(sized("2Mi", "cpu=2", generation=2))
    assert size(node) == "1Mi"
    assert node.conditions() == {"PodResizePending": "Deferred"}
    node.room = True
    node.manager.removed(["u2"])
    assert (size(node), node.cpu()) == ("2Mi", "2")


@on_virtual_time
async def test_on_cgroup_v1_a_size_is_infeasible_and_counted() -> None:
    node = Node(rules=ON_V1)
    node.admit(sized("1Mi"))
    node.update(sized("2Mi", generation=2))
    assert size(node) == "1Mi"
    assert node.conditions() == {"PodResizePending": "Infeasible"}
    name = "kubelet_pod_infeasible_resizes_total"
    assert node.counted(name, reason_detail="cgroups_v1_unsupported") == 1


@on_virtual_time
async def test_a_pod_without_cpu_and_memory_can_resize_its_volumes() -> None:
    node = Node(rules=ON)
    node.admit(sized("1Mi", ""))
    assert node.state.find("u1") == PodResources({"a": {}}, None, {"v": "1Mi"})
    node.update(sized("2Mi", "", generation=2))
    assert size(node) == "2Mi"


@on_virtual_time
async def test_a_record_older_than_the_gate_gets_sizes() -> None:
    node = Node(rules=ON)
    node.state.put("u1", PodResources({"a": SMALL}))
    node.admit(sized("1Mi"))
    assert node.state.find("u1") == PodResources({"a": SMALL}, None, {"v": "1Mi"})


@on_virtual_time
async def test_without_the_gate_sizes_are_neither_recorded_nor_a_resize() -> None:
    node = Node()
    node.admit(sized("1Mi"))
    assert node.state.find("u1") == PodResources({"a": SMALL})
    node.update(sized("2Mi", generation=2))
    assert node.conditions() == {}
    assert not node.events
