"""A pod gets no worker until its admission is decided, whatever happens meanwhile."""

from __future__ import annotations

import asyncio
from typing import Any

from kubeletpy.kubeapi.events.reasons import AdmissionReason
from kubeletpy.pods.pod import Pod
from kubeletpy.resources.admission.checks import Rejection
from kubeletpy.syncloop.admission_gate import Deferred, Others
from tests.unit.podworkers.builders import pod_object
from tests.unit.syncloop.test_loop import Node
from tests.virtual_time import on_virtual_time, settle

SLOW, OTHER = "uid-slow", "uid-other"


class Slow(Node):
    """A node whose pod ``slow`` is admitted or refused when the test sets ``answer``."""

    def __init__(self) -> None:
        super().__init__()
        self.answer: asyncio.Future[Rejection | None] = asyncio.Future()
        self.seen: list[str] = []

    def admit(self, pod: Pod, others: Any) -> Any:
        self.judged.append((pod.uid, [other.uid for other in others]))
        return Deferred(self.settle) if pod.uid == SLOW else None

    async def settle(self, others: Others) -> Rejection | None:
        self.seen = [other.uid for other in others()]
        return await self.answer


async def held() -> Slow:
    node = Slow()
    node.loop.deliver("api", [pod_object("other"), pod_object("slow")])
    await asyncio.sleep(10)
    assert node.syncer.verbs == ["sync"]
    assert node.seen == [OTHER]
    return node


@on_virtual_time
async def test_it_waits_through_housekeeping_and_changes() -> None:
    node = await held()
    node.loop.deliver_event("api", "MODIFIED", pod_object("slow", labels={"a": "b"}))
    node.loop.sync_pod(SLOW)
    await asyncio.sleep(10)
    assert node.queries.record(SLOW) is None
    node.answer.set_result(None)
    await settle()
    record = node.queries.record(SLOW)
    assert record is not None
    assert record.pod is not None
    assert record.pod.labels == {"a": "b"}
    await node.stop()


@on_virtual_time
async def test_it_may_be_refused_in_the_end() -> None:
    node = await held()
    node.answer.set_result(Rejection(AdmissionReason("OutOfcpu"), "too much"))
    await asyncio.sleep(10)
    assert node.statuses.kept[SLOW]["reason"] == "OutOfcpu"
    node.loop.deliver_event("api", "MODIFIED", pod_object("slow", labels={"a": "b"}))
    await asyncio.sleep(10)
    assert node.queries.record(SLOW) is None
    node.loop.deliver_event("api", "MODIFIED", pod_object("slow", deleting=1))
    await asyncio.sleep(3)
    assert node.syncer.verbs[1:] == ["terminate", "finish"]
    await node.stop()


@on_virtual_time
async def test_it_may_be_deleted_meanwhile() -> None:
    node = await held()
    node.loop.deliver_event("api", "MODIFIED", pod_object("slow", deleting=1))
    await asyncio.sleep(3)
    assert node.answer.cancelled()
    assert node.syncer.verbs[1:] == ["terminate", "finish"]
    await node.stop()


@on_virtual_time
async def test_it_may_vanish_meanwhile() -> None:
    node = await held()
    node.loop.deliver_event("api", "DELETED", pod_object("slow"))
    await asyncio.sleep(3)
    assert node.answer.cancelled()
    assert node.queries.record(SLOW) is None or "sync" not in node.syncer.verbs[1:]
    await node.stop()


@on_virtual_time
async def test_admitted_pods_keep_their_placement() -> None:
    node = Slow()
    young, old, running = pod_object("young"), pod_object("old"), pod_object("running")
    young["metadata"]["creationTimestamp"] = "2026-01-03T00:00:00Z"
    old["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z"
    running["metadata"]["creationTimestamp"] = "2026-01-02T00:00:00Z"
    running["status"] = {"startTime": "2026-01-02T00:00:01Z"}
    node.loop.deliver("api", [young, old, running])
    assert [uid for uid, _ in node.judged] == ["uid-running", "uid-old", "uid-young"]
    await node.stop()
