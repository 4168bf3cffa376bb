"""volumesInUse: a volume that leaves the list may be detached at once, even if it is mounted."""

from __future__ import annotations

import asyncio
import random

import pytest

from kubeletpy.base.structs import replace
from kubeletpy.volumes.claims.model import VolumeSpec, WaitCause, Waits
from kubeletpy.volumes.claims.resolve import Attached, not_in_use_yet
from kubeletpy.volumes.operations.model import (
    InUse,
    Operation,
    OperationKind,
    PodDemand,
    Volume,
    attachable_as_reported,
)
from tests.kit.virtual_time import settle
from tests.kit.volumes import ObservedNode, pod, spec, volume_manager
from tests.sim.volume_plugin import SimulatedDisk, SimulatedPlugin

pytestmark = pytest.mark.virtual_time


class Node(ObservedNode):
    """A node whose volumes are all attached."""

    def __init__(self, disk: SimulatedDisk) -> None:
        super().__init__()
        self.manager = volume_manager(SimulatedPlugin(disk, random.Random(1)), self)


def attachable(name: str) -> VolumeSpec:
    return spec(name, spec_name=name, pod_volume=name, attachable=True)


async def test_staged_volumes_stay_listed_until_the_node_is_known() -> None:
    disk = SimulatedDisk()
    disk.staged = {"va", "vb"}
    node = Node(disk)
    await node.manager.run()
    await settle()
    assert node.manager.volumes_in_use() is None, "the API's list stays"
    node.in_use = frozenset({"va", "gone"})
    node.manager.replan_soon()
    await settle()
    assert node.manager.volumes_in_use() == ["va"], "vb needs no attachment"
    node.in_use = frozenset()
    node.manager.replan_soon()
    await settle()
    assert node.manager.volumes_in_use() == ["va"], "something of it is there"
    await node.manager.close()


async def test_nothing_is_staged_while_a_status_without_it_may_be_on_its_way() -> None:
    node = Node(SimulatedDisk())
    node.in_use = frozenset({"va"})  # from the time when another pod had it
    await node.manager.run()
    await settle()
    assert node.manager.volumes_in_use() == []
    node.manager.demand(pod("u1"), [attachable("va")], {})
    waits = await node.manager.settled("u1")
    assert waits["va"].cause is WaitCause.NOT_IN_USE_YET
    assert node.manager.volumes_in_use() == ["va"]
    node.manager.replan_soon()
    waits = await node.manager.settled("u1")
    assert waits["va"].cause is WaitCause.NOT_IN_USE_YET, "the list without it may be there by now"
    node.manager.volumes_in_use_written()
    assert not await node.manager.settled("u1")
    await asyncio.sleep(0)
    await node.manager.close()


class NobodyAttaches(Node):
    """There is no attacher."""

    def attachment(self, spec: VolumeSpec) -> Attached | Waits:
        return Waits(WaitCause.NOT_ATTACHED, "va", "not yet") if spec.attachable else Attached()


async def test_a_volume_whose_driver_needs_no_attaching_any_more_leaves_the_list() -> None:
    node = NobodyAttaches(SimulatedDisk())
    node.in_use = frozenset()
    await node.manager.run()
    node.manager.demand(pod("u1"), [attachable("va")], {})
    assert (await node.manager.settled("u1"))["va"].cause is WaitCause.NOT_ATTACHED
    assert node.manager.volumes_in_use() == ["va"]
    node.in_use = frozenset({"va"})
    node.manager.demand(pod("u1"), [replace(attachable("va"), attachable=False)], {})
    assert not await node.manager.settled("u1")
    node.manager.replan_soon()
    await settle()
    assert node.manager.volumes_in_use() == []
    await node.manager.close()


def test_a_list_that_has_grown_makes_volumes_usable_once_it_is_written() -> None:
    a, b, listed = attachable("a"), attachable("b"), InUse()
    assert listed.report() is None
    assert listed.unreported(a) is None
    assert not InUse().written(), "nothing was reported"
    one, both = [PodDemand("u1", (a, spec("c")))], [PodDemand("u1", (a, b))]
    assert [listed.update(one, {}, ()) for _ in range(2)] == [True, False]
    assert listed.report() == ["a"]
    assert not listed.written()
    assert (listed.unreported(a), listed.unreported(spec("c"))) == (None, None)
    assert listed.update(both, {}, ())
    assert listed.report() == ["a", "b"]
    assert listed.unreported(a) is None
    assert listed.unreported(b) == not_in_use_yet('volume "b"')
    assert listed.written()
    assert listed.unreported(b) is None
    assert not listed.written()


def test_present_volumes_and_those_with_operations_are_in_use() -> None:
    listed = InUse()
    running = [
        Operation(OperationKind.STAGE, "a", "p", "wanted", spec=attachable("a")),
        Operation(OperationKind.STAGE, "b", "p", "wanted", spec=spec("b")),
        Operation(OperationKind.UNSTAGE, "c", "p", "unused"),
    ]
    actual = {"d": Volume("d", "p", attachable=True), "e": Volume("e", "p")}
    assert listed.update([], actual, running)
    assert listed.report() == ["a", "d"]


def test_volumes_in_use_according_to_the_api_are_attachable() -> None:
    actual = {name: Volume(name, "p", attachable=name == "b") for name in ("a", "b", "c", "d")}
    reported = frozenset({"a", "b", "c", "gone"})
    found = attachable_as_reported([PodDemand("u1", (spec("c"),))], actual, reported)
    assert found == {"a": Volume("a", "p", attachable=True)}
