"""The sync loop on virtual time: the effect of each input on the workers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any

import pytest

from kubeletpy.base.structs import replace
from kubeletpy.base.tasks import Backlog
from kubeletpy.kubeapi.events.reasons import AdmissionReason
from kubeletpy.metrics.registry import Metrics
from kubeletpy.pods.pod import CONFIG_MIRROR, NodePods, Pod
from kubeletpy.pods.pod_manager import PodManager
from kubeletpy.pods.runtime_status import ContainerState, ContainerStatus, PodRuntimeStatus
from kubeletpy.podworkers.state_machine import WorkerQueries
from kubeletpy.podworkers.status_cache import PodStatusCache
from kubeletpy.podworkers.status_composer import rejected_status
from kubeletpy.resources.admission.checks import Rejection
from kubeletpy.resources.allocation.allocation_manager import AllocationManager
from kubeletpy.resources.allocation.checkpoint import ResourceState
from kubeletpy.syncloop.admission_gate import Deferred, Others
from kubeletpy.syncloop.housekeeping import DeadContainers, Housekeeping, UnreadPods, dead_to_remove
from kubeletpy.syncloop.lifecycle import ActivePods, LifecycleEvent, LifecycleType
from kubeletpy.syncloop.loop import SyncLoop
from kubeletpy.syncloop.merge import NAMELESS, Merge
from kubeletpy.syncloop.sources.manifest import ReadySources
from tests.kit.costs import calls
from tests.kit.events import Recorder
from tests.kit.pods import pod_object, runtime_status
from tests.kit.virtual_time import LoopClock, settle
from tests.unit.podworkers.test_workers import FakeRuntime, make_workers, recording_syncer

pytestmark = pytest.mark.virtual_time


class Statuses:
    def __init__(self) -> None:
        self.kept: dict[str, Any] = {}
        self.forgot: list[set[str]] = []

    def get_status(self, uid: str) -> Any:
        return self.kept.get(uid)

    def set_status(self, pod: Pod, status: Any, *, containers_may_run: bool = True) -> None:
        self.kept[pod.uid] = status

    def is_reported(self, uid: str) -> bool:
        return True

    def finish(self, pod: Pod) -> None:
        pass

    def forget_except(self, uids: Iterable[str]) -> None:
        self.forgot.append(set(uids))
        self.kept = {uid: s for uid, s in self.kept.items() if uid in set(uids)}


class Runtime(FakeRuntime):
    def __init__(self) -> None:
        super().__init__()
        self.deleted: list[str] = []

    async def delete_container(self, container_id: str) -> None:
        self.deleted.append(container_id)


class Node:
    """A loop with real workers and a recording syncer."""

    def __init__(self, *sources: str, populated: bool = True, node_name: str = "") -> None:
        self.syncer, self.runtime, self.recorder = recording_syncer(), Runtime(), Recorder()
        self.cache, self.pods, self.statuses = PodStatusCache(), PodManager(), Statuses()
        self.cache.populated = populated
        self.error = ""
        self.refuse: dict[str, Rejection] = {}
        self.slow: dict[str, Deferred] = {}
        self.admitted: list[str] = []
        self.changed: list[tuple[int, int]] = []
        self.judged: list[tuple[str, list[str]]] = []
        self.deleted_mirrors: list[str] = []
        self.found: list[NodePods] = []
        self.notified: list[str] = []
        self.syncer.on_reject = lambda pod, rejection: self.statuses.set_status(
            pod, rejected_status(pod, rejection)
        )
        self.workers = make_workers(
            self.syncer,
            self.cache,
            self.runtime,
            self.recorder,
            current_pod=self.pods.current,
            on_finished=self.pod_finished,
        )
        self.queries = WorkerQueries(self.workers.machine)
        self.active = ActivePods(self.pods, self.queries, self.statuses.get_status)
        self.sources, merge = ReadySources(sources or ("api",)), Merge(node_name=node_name)
        self.unread = UnreadPods(merge, self.pods, self.cache, self.queries.record)
        self.housekeeping = Housekeeping(
            self.pods,
            self.workers,
            self.statuses.forget_except,
            self.cache,
            active=self.active,
            queries=self.queries,
            metrics=Metrics().pods,
            delete_mirror=lambda mirror: self.deleted_mirrors.append(mirror.uid),
            found=self.found.append,
        )
        self.dead = DeadContainers(
            self.runtime.delete_container,
            self.cache,
            self.queries.should_content_be_removed,
            Backlog(),
        )
        self.loop = SyncLoop(
            self.sources,
            merge=merge,
            unread=self.unread,
            pods=self.pods,
            active=self.active,
            workers=self.workers,
            queries=self.queries,
            cache=self.cache,
            housekeeping=self.housekeeping,
            dead_containers=self.dead,
            recorder=self.recorder,
            clock=LoopClock(),
            admit=self.admit,
            allocations=AllocationManager(ResourceState(), self.recorder, LoopClock()),
            runtime_error=lambda: self.error,
            on_api_object=lambda pod: self.notified.append(pod.uid),
            on_admitted=lambda pod: self.admitted.append(pod.uid),
            on_updated=lambda old, new: self.changed.append((old.generation, new.generation)),
        )
        self.task = asyncio.ensure_future(self.loop.run())

    def pod_finished(self, uid: str) -> None:
        self.loop.housekeeping_soon(uid)

    def admit(self, pod: Pod, others: Sequence[Pod]) -> Rejection | Deferred | None:
        self.judged.append((pod.uid, [other.uid for other in others]))
        return self.refuse.get(pod.uid) or self.slow.get(pod.uid)

    async def stop(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)
        await self.workers.close()


def mirror(name: str = "web", uid: str = "m", digest: str = "h") -> Any:
    obj = pod_object(name, uid)
    obj["metadata"]["annotations"] = {CONFIG_MIRROR: digest}
    return obj


async def test_the_life_of_an_api_pod() -> None:
    node = Node()
    node.loop.deliver("api", [pod_object()])
    await settle()
    assert node.syncer.verbs == ["sync"]
    node.loop.deliver_event("api", "MODIFIED", pod_object(deleting=30))
    await settle()
    assert node.syncer.verbs == ["sync", "terminate", "finish"]
    node.loop.deliver_event("api", "DELETED", pod_object(deleting=30))
    await asyncio.sleep(1)
    assert node.workers.machine.records == {}
    assert node.pods.pods() == []
    await node.stop()


async def test_a_new_object_wakes_and_a_new_status_does_not() -> None:
    node = Node()
    node.loop.deliver("api", [pod_object()])
    await settle()
    node.loop.deliver_event("api", "MODIFIED", pod_object(phase="Running"))
    await settle()
    assert node.syncer.verbs == ["sync"]
    assert node.notified == ["uid-web", "uid-web"]
    node.loop.deliver_event("api", "MODIFIED", pod_object(labels={"a": "b"}, phase="Running"))
    await settle()
    assert node.syncer.verbs == ["sync", "sync"]
    gated: Any = pod_object(labels={"a": "b"}, readinessGates=[{"conditionType": "x"}])
    node.loop.deliver_event("api", "MODIFIED", gated)
    await settle()
    gated = {**gated, "status": {"conditions": []}}
    node.loop.deliver_event("api", "MODIFIED", gated)
    await settle()
    assert len(node.syncer.verbs) == 4
    await node.stop()


async def test_nothing_is_killed_before_all_sources_have_spoken() -> None:
    node = Node("api", "file")
    node.cache.set(runtime_status("orphan", name="orphan"))
    node.loop.deliver("api", [pod_object()])
    node.loop.deliver_event("api", "DELETED", pod_object())
    await asyncio.sleep(30)
    assert node.syncer.verbs == ["sync"]
    node.loop.deliver("file", [])
    await asyncio.sleep(0.3)
    assert sorted(node.syncer.verbs) == ["finish", "sync", "terminate", "terminate-runtime"]
    await node.stop()


async def test_orphans_of_the_runtime_get_one_second_and_leave_nothing() -> None:
    node = Node(populated=False)
    node.loop.deliver("api", [])
    node.cache.set(runtime_status("orphan", name="orphan"))
    await asyncio.sleep(10)
    assert node.syncer.verbs == []
    node.cache.populated = True
    await asyncio.sleep(3)
    assert node.syncer.verbs[0] == "terminate-runtime"
    await node.stop()


async def test_an_orphan_is_stopped_when_it_can_be_read() -> None:
    node = Node()
    node.loop.deliver("api", [])
    node.cache.set_error(PodRuntimeStatus("orphan", "orphan", "default"), "no answer")
    await asyncio.sleep(10)
    assert node.syncer.verbs == [], "what is to be stopped is not known"
    node.cache.set(runtime_status("orphan", name="orphan"))
    await asyncio.sleep(3)
    assert node.syncer.verbs[0] == "terminate-runtime"
    await node.stop()


async def test_an_undecodable_pod_in_the_runtime_is_no_orphan() -> None:
    """After a restart, runtime and API both have the pod, but its object cannot be decoded."""
    node = Node()
    nonsense: Any = {**pod_object(), "spec": {"containers": 7}}
    node.cache.set(runtime_status("uid-web"))
    node.loop.deliver("api", [nonsense, pod_object("other")])
    await asyncio.sleep(30)
    assert node.syncer.verbs == ["sync"]
    assert node.unread.holds("uid-web")
    node.loop.deliver_event("api", "DELETED", nonsense)
    await asyncio.sleep(3)
    assert node.syncer.verbs == ["sync", "terminate-runtime"]
    assert not node.unread.holds("uid-web")
    await node.stop()


def of_file(uid: str, name: str, source: str = "file") -> PodRuntimeStatus:
    """A pod in the runtime after the agent has been restarted."""
    status = runtime_status(uid)
    sandboxes = tuple(replace(sandbox, source=source) for sandbox in status.sandboxes)
    return replace(status, name=name, sandboxes=sandboxes)


def stopped(caplog: pytest.LogCaptureFixture) -> set[str]:
    """UIDs of pods that were stopped because no source has them."""
    stated = "stopping a pod that should not run"
    return {vars(record)["uid"] for record in caplog.records if record.message == stated}


async def test_pods_of_other_nodes_are_not_run(caplog: pytest.LogCaptureFixture) -> None:
    def bound(name: str, spec: Any) -> Any:
        return {"metadata": {"name": name, "namespace": "n", "uid": name}, "spec": spec}

    node = Node(node_name="here")
    containers = [{"name": "main", "image": "i"}]
    ours = bound("ours", {"nodeName": "here", "containers": containers})
    theirs = bound("theirs", {"nodeName": "there", "containers": containers})
    unbound, odd = bound("unbound", {}), bound("odd", {"nodeName": ["here"]})
    malformed = bound("malformed", "text")  # it may be ours: what runs of it is left alone
    node.loop.deliver("api", [ours, theirs, unbound, odd, malformed])
    for pod in (ours, theirs, unbound):
        node.loop.deliver_event("api", "ADDED", pod)
    assert [pod.name for pod in node.pods.pods()] == ["ours"]
    assert node.unread.uids() == {"malformed"}
    assert caplog.text.count("not bound to this node") == 5
    node.loop.deliver_event("api", "DELETED", bound("ours", theirs["spec"]))
    assert node.pods.pods() == []
    await node.stop()


async def test_a_pod_that_may_belong_to_an_unreadable_manifest_keeps_running(
    caplog: pytest.LogCaptureFixture,
) -> None:
    node = Node("api", "file")
    for uid, name, source in [
        ("uid-lost", "lost", "file"),
        ("uid-old", "web", "file"),
        ("uid-url", "by-url", "http"),
        ("uid-api", "of-api", "api"),
    ]:
        node.cache.set(of_file(uid, name, source))
    node.loop.deliver("api", [mirror("lost"), mirror("gone", "m2")])
    node.loop.deliver("file", [pod_object("web"), NAMELESS])
    await asyncio.sleep(30)
    assert stopped(caplog) == {"uid-old", "uid-url", "uid-api"}, "none of these can be its own"
    assert node.unread.holds("uid-lost")
    assert not node.unread.holds("uid-web")
    assert set(node.deleted_mirrors) == {"m2"}, "the mirror of what goes on stays"
    assert caplog.text.count("it may belong to a manifest that can't be read") == 1
    node.loop.deliver("file", [pod_object("web")])
    await asyncio.sleep(3)
    assert "uid-lost" in stopped(caplog), "the file was removed"
    assert "m" in node.deleted_mirrors
    assert not node.unread.holds("uid-lost")
    await node.stop()


async def test_a_manifest_that_can_be_read_again_takes_its_pod_up() -> None:
    node = Node("file")
    node.cache.set(of_file("uid-web", "web"))
    node.loop.deliver("file", [NAMELESS])
    await asyncio.sleep(30)
    assert node.syncer.verbs == []
    node.loop.deliver("file", [pod_object("web", "uid-web")])
    await asyncio.sleep(30)
    assert node.syncer.verbs == ["sync"]
    await node.stop()


async def test_a_pod_with_pending_admission_is_no_orphan() -> None:
    node = Node()
    node.cache.set(runtime_status("uid-web"))
    node.loop.deliver("api", [])
    answer = asyncio.get_running_loop().create_future()
    node.loop._held.hold_until("uid-web", answer)
    await asyncio.sleep(30)
    assert node.syncer.verbs == []
    await node.stop()


async def test_only_pods_that_pass_admission_count_as_admitted() -> None:
    node = Node()
    node.refuse["uid-web"] = Rejection(AdmissionReason("OutOfpods"), "too many")
    answers: dict[str, asyncio.Future[Rejection | None]] = {}
    for name in ("let-in", "turned-away"):
        uid = f"uid-{name}"
        answers[uid] = answer = asyncio.get_running_loop().create_future()

        async def settle_later(others: Others, answer: Any = answer) -> Rejection | None:
            found: Rejection | None = await answer
            return found

        node.slow[uid] = Deferred(settle_later)
    names = ("web", "other", "let-in", "turned-away")
    node.loop.deliver("api", [pod_object(name) for name in names])
    await settle()
    assert node.admitted == ["uid-other"]
    answers["uid-let-in"].set_result(None)
    answers["uid-turned-away"].set_result(Rejection(AdmissionReason("OutOfcpu"), "too much"))
    await settle()
    assert node.admitted == ["uid-other", "uid-let-in"]
    await node.stop()


async def test_a_pod_that_is_not_admitted_does_not_count_as_allocated() -> None:
    node = Node()
    answer: asyncio.Future[Rejection | None] = asyncio.get_running_loop().create_future()

    async def settle_later(others: Others) -> Rejection | None:
        return await answer

    node.slow["uid-slow"] = Deferred(settle_later)
    requests = [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]
    node.loop.deliver("api", [pod_object("slow", containers=requests)])
    await settle()
    state = node.loop.allocations.state
    assert state.find("uid-slow") is None
    node.loop.deliver_event("api", "ADDED", pod_object("web"))
    await settle()
    assert node.judged == [("uid-slow", []), ("uid-web", [])]
    answer.set_result(None)
    await settle()
    assert state.find("uid-slow") is not None
    node.loop.deliver_event("api", "ADDED", pod_object("third"))
    await settle()
    assert sorted(node.judged[-1][1]) == ["uid-slow", "uid-web"]
    await node.stop()


async def test_a_useless_priority_of_a_static_pod_is_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    node = Node("file")
    manifest = pod_object("web", "s")
    manifest["spec"]["priorityClassName"] = "high"
    for _ in range(2):
        node.loop.deliver("file", [manifest])
        await settle()
    warned = [record for record in caplog.records if record.message == "priority of a static pod"]
    assert [vars(record)["pod"] for record in warned] == ["default/web"]
    await node.stop()


async def test_a_change_of_a_spec_is_shown_with_what_it_was_before() -> None:
    node = Node()
    before, after = pod_object(), pod_object(hostname="other")
    before["metadata"]["generation"], after["metadata"]["generation"] = 1, 2
    node.loop.deliver("api", [before])
    node.loop.deliver_event("api", "MODIFIED", after)
    await settle()
    assert node.changed == [(1, 2)]
    await node.stop()


async def test_refused_pods() -> None:
    node = Node()
    node.refuse["uid-web"] = Rejection(AdmissionReason("OutOfpods"), "too many")
    node.loop.deliver("api", [pod_object("other"), pod_object()])
    await settle()
    assert node.judged == [("uid-other", []), ("uid-web", ["uid-other"])]
    assert node.recorder.events == [("OutOfpods", "too many")]
    status = node.statuses.kept["uid-web"]
    assert (status["phase"], status["reason"]) == ("Failed", "OutOfpods")
    assert status["message"] == "Pod was rejected: too many"
    assert node.syncer.verbs == ["sync"]
    await asyncio.sleep(10)
    assert node.queries.record("uid-web") is None
    removed = pod_object(deleting=30, phase="Failed")
    node.loop.deliver_event("api", "MODIFIED", pod_object(phase="Failed"))
    assert node.active()[0].uid == "uid-other"
    node.loop.deliver_event("api", "MODIFIED", removed)
    await asyncio.sleep(3)
    assert node.syncer.verbs[1:] == ["finish"]
    await node.stop()


async def test_an_update_of_a_mirror_syncs_its_static_pod() -> None:
    node = Node("api", "file")
    node.loop.deliver("file", [pod_object("web", "s")])
    node.loop.deliver("api", [mirror()])
    await settle()
    assert [pod.uid for pod in node.syncer.pods] == ["s", "s"]
    node.loop.deliver("api", [])
    await settle()
    assert len(node.syncer.pods) == 3
    assert "terminate" not in node.syncer.verbs
    node.loop.deliver("api", [mirror()])
    node.loop.deliver("file", [])
    await asyncio.sleep(5)
    assert "finish" in node.syncer.verbs
    assert "m" in node.deleted_mirrors
    await node.stop()


async def test_a_status_follows_the_mirror_before_it_may_be_written() -> None:
    node, order = Node("api", "file"), list[str]()
    node.loop.workers.refresh_status = lambda uid: order.append(f"refresh {uid}")  # type: ignore[method-assign]
    node.loop.on_api_object = lambda pod: order.append(f"write {pod.uid}")
    node.loop.deliver("file", [pod_object("web", "s")])
    node.loop.deliver("api", [mirror(), pod_object("other", "o")])
    await settle()
    assert order == ["refresh s", "write s", "write o"]
    await node.stop()


async def test_runtime_errors_hold_inputs_back(caplog: pytest.LogCaptureFixture) -> None:
    node = Node()
    node.loop.deliver("api", [pod_object("a"), pod_object("b")])
    await settle()
    node.error = "runtime is down"
    node.loop.deliver_event("api", "ADDED", pod_object("c"))
    node.loop.deliver_event("api", "MODIFIED", pod_object("c", labels={"v": "2"}))
    node.loop.deliver_event("api", "DELETED", pod_object("b"))
    node.loop.runtime_changed("uid-a", [])
    await asyncio.sleep(20)
    assert len(node.syncer.verbs) == 2
    assert [r.message for r in caplog.records] == ["syncing pods is paused"]
    node.error = ""
    await asyncio.sleep(5.1)
    assert [pod.uid for pod in node.syncer.pods[2:]] == ["uid-c", "uid-a"]
    assert node.syncer.pods[2].labels == {"v": "2"}
    assert node.syncer.verbs.count("terminate") == 1
    await node.stop()


async def test_a_runtime_that_is_back_ends_the_wait_at_once() -> None:
    node = Node()
    node.error = "runtime is down"
    node.loop.deliver("api", [pod_object("a")])
    await asyncio.sleep(60)
    node.loop.runtime_health_changed()
    await settle()
    assert node.syncer.verbs == []
    node.error = ""
    node.loop.runtime_health_changed()
    await settle()
    assert node.syncer.verbs == ["sync"]
    await node.stop()


async def test_the_first_relist_is_awaited_without_a_log_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    node = Node()
    node.error = "pleg has yet to be successful"
    node.loop.deliver("api", [pod_object()])
    await asyncio.sleep(0.2)
    node.error = ""
    await asyncio.sleep(0.5)
    assert node.syncer.verbs == ["sync"]
    assert caplog.records == []
    await node.stop()


async def test_the_pleg_wakes_and_old_records_go() -> None:
    node = Node()
    cleaner = asyncio.ensure_future(node.dead.run())
    node.loop.deliver("api", [pod_object()])
    await settle()
    node.cache.set(with_exited("c1", "c2", "c3"))
    node.loop.runtime_changed("uid-web", [LifecycleEvent("uid-web", LifecycleType.DIED, "c3")])
    await settle()
    assert node.syncer.verbs == ["sync", "sync"]
    assert node.runtime.deleted == ["c2", "c1"]
    node.loop.runtime_changed("uid-web", [LifecycleEvent("uid-web", LifecycleType.REMOVED, "c1")])
    await settle()
    assert len(node.syncer.verbs) == 2
    cleaner.cancel()
    await node.stop()


async def test_evicted_pods_lose_their_dead_containers() -> None:
    node = Node()
    cleaner = asyncio.ensure_future(node.dead.run())
    node.loop.deliver("api", [pod_object()])
    await settle()
    node.cache.set(with_exited("c1"))
    evicted: Any = {**pod_object(), "status": {"phase": "Failed", "reason": "Evicted"}}
    node.loop.deliver_event("api", "MODIFIED", evicted)
    await settle()
    assert node.runtime.deleted == ["c1"]
    cleaner.cancel()
    await node.stop()


@pytest.mark.parametrize(("reason", "removed"), [("Evicted", ["c1"]), ("OutOfcpu", [])])
async def test_pods_evicted_under_an_earlier_agent_lose_their_dead_containers(
    reason: str, removed: list[str]
) -> None:
    """The API shows the end already: its object changes no more."""
    node = Node()
    cleaner = asyncio.ensure_future(node.dead.run())
    evicted: Any = {**pod_object(), "status": {"phase": "Failed", "reason": reason}}
    node.loop.deliver("api", [evicted])
    node.cache.set(with_exited("c1"))
    node.loop.housekeeping_soon("uid-web")
    await settle()
    assert set(node.runtime.deleted) == set(removed)
    cleaner.cancel()
    await node.stop()


def with_exited(*ids: str) -> PodRuntimeStatus:
    containers = tuple(
        ContainerStatus(i, "main", ContainerState.EXITED, created_at=n) for n, i in enumerate(ids)
    )
    return PodRuntimeStatus("uid-web", "web", "default", containers=containers, observed_at=9)


@pytest.mark.parametrize(
    ("died", "remove_all", "expected"),
    [
        ("c3", False, ["c2", "c1"]),
        ("c1", False, ["c2", "c1"]),
        ("unknown", False, []),
        (None, False, ["c2", "c1"]),
        (None, True, ["c1", "c2", "c3"]),
    ],
)
def test_dead_to_remove(died: str | None, remove_all: bool, expected: list[str]) -> None:
    status = with_exited("c1", "c2", "c3")
    assert dead_to_remove(status, died, remove_all=remove_all) == expected


async def test_a_quiet_pass_is_cheap() -> None:
    node = Node()
    node.loop.deliver("api", [pod_object(f"p{n}") for n in range(60)])
    for n in range(60):
        node.cache.set(runtime_status(f"uid-p{n}", name=f"p{n}"))
    await asyncio.sleep(5)
    node.housekeeping.run_once(0.0)
    assert calls(lambda: node.housekeeping.run_once(0.0)) < 60 * 34
    for _ in range(18):
        node.housekeeping.run_once(0.0)
    assert len(node.statuses.forgot) >= 20, "a pod may have come and ended since the last pass"
    assert len(node.found) <= 3
    await node.stop()
