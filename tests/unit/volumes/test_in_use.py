"""volumesInUse: what leaves it may be detached at once, whatever is mounted."""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace
from typing import Any

from kubeletpy.volumes.attach.attached import Attached
from kubeletpy.volumes.claims.model import Cause, VolumeSpec, Waits
from kubeletpy.volumes.operations.acts import VolumeActs
from kubeletpy.volumes.operations.executor import VolumeOperations
from kubeletpy.volumes.operations.expander import Expander
from kubeletpy.volumes.operations.notices import VolumeNotices
from tests.sim.volume_plugin import SimulatedDisk, SimulatedPlugin
from tests.unit.volumes.claim_objects import pod, spec
from tests.virtual_time import on_virtual_time, settle


class Node:
    """What surrounds operations."""

    def __init__(self, disk: SimulatedDisk) -> None:
        self.shown: frozenset[str] | None = None
        no: Any = None
        self.operations = VolumeOperations(
            [SimulatedPlugin(disk, random.Random(1))],
            self,
            VolumeActs(Expander(no, no, no, "n"), VolumeNotices(no)).carry_out,
            self,
            changed=lambda uid: None,
        )

    def attachment(self, spec: VolumeSpec) -> Attached | Waits:
        return Attached()

    def blocked(self, spec: VolumeSpec) -> Waits | None:
        return None

    def in_use(self) -> frozenset[str] | None:
        return self.shown

    def ended(self, *args: Any) -> None:
        pass

    def counted(self, *args: Any) -> None:
        pass


def attachable(name: str) -> VolumeSpec:
    return spec(name, spec_name=name, pod_volume=name, attachable=True)


@on_virtual_time
async def test_what_is_found_staged_stays_listed_until_the_node_is_known() -> None:
    disk = SimulatedDisk()
    disk.staged = {"va", "vb"}
    node = Node(disk)
    await node.operations.take_over()
    await settle()
    assert node.operations.volumes_in_use() is None, "the API's list stays"
    node.shown = frozenset({"va", "gone"})
    node.operations.look()
    await settle()
    assert node.operations.volumes_in_use() == ["va"], "vb needs no attachment"
    node.shown = frozenset()
    node.operations.look()
    await settle()
    assert node.operations.volumes_in_use() == ["va"], "something of it is there"
    await node.operations.close()


@on_virtual_time
async def test_nothing_is_staged_while_a_status_without_it_may_be_on_its_way() -> None:
    node = Node(SimulatedDisk())
    node.shown = frozenset({"va"})  # of a time when another pod had it
    await node.operations.take_over()
    await settle()
    assert node.operations.volumes_in_use() == []
    node.operations.demand(pod("u1"), [attachable("va")], {})
    waits = await node.operations.settled("u1")
    assert waits["va"].cause is Cause.NOT_IN_USE_YET
    assert node.operations.volumes_in_use() == ["va"]
    node.operations.look()
    assert not await node.operations.settled("u1")
    await asyncio.sleep(0)
    await node.operations.close()


class NobodyAttaches(Node):
    """There is no attacher."""

    def attachment(self, spec: VolumeSpec) -> Attached | Waits:
        return Waits(Cause.NOT_ATTACHED, "va", "not yet") if spec.attachable else Attached()


@on_virtual_time
async def test_a_volume_whose_driver_needs_no_attaching_any_more_leaves_the_list() -> None:
    node = NobodyAttaches(SimulatedDisk())
    node.shown = frozenset()
    await node.operations.take_over()
    node.operations.demand(pod("u1"), [attachable("va")], {})
    assert (await node.operations.settled("u1"))["va"].cause is Cause.NOT_ATTACHED
    assert node.operations.volumes_in_use() == ["va"]
    node.shown = frozenset({"va"})
    node.operations.demand(pod("u1"), [replace(attachable("va"), attachable=False)], {})
    assert not await node.operations.settled("u1")
    node.operations.look()
    await settle()
    assert node.operations.volumes_in_use() == []
    await node.operations.close()
