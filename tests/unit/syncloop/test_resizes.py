"""The loop with in-place resizes: workers and admission see the allocated pods."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kubeletpy.kubeapi.events.reasons import AdmissionReason
from kubeletpy.pods.pod import Pod
from kubeletpy.resources.admission.checks import Rejection
from kubeletpy.resources.allocation.allocation_manager import AllocationManager
from kubeletpy.resources.allocation.checkpoint import ResourceState
from tests.unit.podworkers.builders import pod_object
from tests.unit.syncloop.test_loop import Node
from tests.virtual_time import LoopClock, on_virtual_time, settle

NO_ROOM = Rejection(AdmissionReason("OutOfcpu"), "no room")


class Sized(Node):
    """A node whose pods can be resized."""

    def __init__(self) -> None:
        super().__init__()
        self.room = True
        self.state = ResourceState()
        self.seen: list[tuple[str, str]] = []
        self.beside: list[str] = []
        self.allocations = AllocationManager(
            self.state,
            self.recorder,
            LoopClock(),
            judge=lambda pod: None if self.room else NO_ROOM,
            current=self.pods.get,
            sync=self.loop.sync_pod,
            sources_ready=self.sources.all,
        )
        for holder in (self.loop, self.loop._admitting):
            holder.allocations = self.allocations
        self.workers.allocated = self.allocations.allocated

    def admit(self, pod: Pod, others: Sequence[Pod]) -> Rejection | None:
        self.beside = [cpu(other.object) for other in others]
        self.seen.append((pod.uid, cpu(pod.object)))
        return self.refuse.get(pod.uid)

    def synced(self, uid: str) -> list[str]:
        """The CPU request in each sync of a pod."""
        return [cpu(pod.object) for pod in self.syncer.pods if pod.uid == uid]


def cpu(obj: Any) -> str:
    return str(obj["spec"]["containers"][0]["resources"]["requests"]["cpu"])


def sized(name: str, amount: str, **more: Any) -> Any:
    main = {"name": "main", "image": "img", "resources": {"requests": {"cpu": amount}}}
    return pod_object(name, containers=[main], **more)


@on_virtual_time
async def test_a_worker_sees_a_pod_as_it_is_allocated() -> None:
    node = Sized()
    node.loop.deliver("api", [sized("a", "1")])
    await settle()
    node.room = False
    node.loop.deliver_event("api", "MODIFIED", sized("a", "2"))
    await settle()
    assert set(node.synced("uid-a")) == {"1"}
    node.loop.deliver_event("api", "ADDED", sized("b", "1"))
    assert node.beside == ["1"], "others count as they are allocated"
    node.room = True
    node.loop.deliver_event("api", "DELETED", sized("b", "1"))
    await settle()
    assert node.synced("uid-a")[-1] == "2"
    await node.stop()


@on_virtual_time
async def test_an_update_that_fits_is_one_sync() -> None:
    node = Sized()
    node.loop.deliver("api", [sized("a", "1")])
    await settle()
    before = len(node.synced("uid-a"))
    node.loop.deliver_event("api", "MODIFIED", sized("a", "2"))
    await settle()
    assert node.synced("uid-a")[before:] == ["2"]
    await node.stop()


@on_virtual_time
async def test_a_pod_is_admitted_again_as_it_was() -> None:
    node = Sized()
    node.state.set("uid-a", "main", {"requests": {"cpu": "1"}})
    node.loop.deliver("api", [sized("a", "9")])
    assert node.seen == [("uid-a", "1")]
    await node.stop()


@on_virtual_time
async def test_a_refused_pod_has_no_allocation() -> None:
    node = Sized()
    node.refuse["uid-a"] = NO_ROOM
    node.loop.deliver("api", [sized("a", "1")])
    await settle()
    node.loop.deliver_event("api", "MODIFIED", sized("a", "2"))
    await settle()
    assert node.state.uids() == []
    assert node.synced("uid-a") == []
    await node.stop()
