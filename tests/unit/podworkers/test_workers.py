"""Running workers, on virtual time, with a syncer that records its calls."""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest

from kubeletpy.base.api import types as api
from kubeletpy.base.host.errors import NO_THREAD, NoThread
from kubeletpy.kubeapi.events.reasons import AdmissionReason
from kubeletpy.metrics.registry import Metrics
from kubeletpy.metrics.trace.spans import Traces
from kubeletpy.pods.pod import Pod
from kubeletpy.pods.runtime_status import ContainerState, PodRuntimeStatus
from kubeletpy.podworkers.records import (
    Event,
    KillOptions,
    PodUpdate,
    StatusOverride,
    SyncOutcome,
    UpdateType,
)
from kubeletpy.podworkers.state_machine import WorkerMachine
from kubeletpy.podworkers.status_cache import PodStatusCache
from kubeletpy.podworkers.syncer import KubePodSyncer
from kubeletpy.podworkers.workers import PodWorkers
from kubeletpy.remote.errors import Unavailable
from kubeletpy.resources.admission.checks import Rejection
from tests.kit.events import Recorder
from tests.kit.pods import make_pod, runtime_status
from tests.kit.virtual_time import LoopClock, eventually, settle

pytestmark = pytest.mark.virtual_time

UID = "uid-web"


class FakeRuntime:
    """Answers get_pod_status only."""

    def __init__(self) -> None:
        self.requested = 0
        self.error: Exception | None = None

    async def get_pod_status(self, uid: str, name: str, namespace: str) -> PodRuntimeStatus:
        self.requested += 1
        if self.error is not None:
            raise self.error
        return PodRuntimeStatus(uid, name, namespace)


class RecordingSyncer(KubePodSyncer):
    """Each verb records its time, and runs the test's function for it."""

    def __post_init__(self) -> None:
        self.calls: list[tuple[str, float]] = []
        self.graces: list[int] = []
        self.pods: list[Pod] = []
        self.refreshed: list[tuple[Pod, Pod | None, StatusOverride | None]] = []
        self.completed: list[Pod] = []
        self.rejected: list[tuple[str, Rejection]] = []
        self.on_reject: Callable[[Pod, Rejection], None] = lambda pod, rejection: None
        self.on_sync: Callable[[], Awaitable[SyncOutcome]] = self._ok
        self.on_terminate: Callable[[], Awaitable[SyncOutcome]] = self._ok
        self.on_finish: Callable[[], Awaitable[SyncOutcome]] = self._ok

    def connect(self, cache: PodStatusCache, runtime: Any, recorder: Any, traces: Traces) -> None:
        """Read the status of pods from a runtime, as a syncer does."""
        self.cache, self.recorder, self.traces = cache, recorder, traces
        self.read_pod, self.clock = getattr(runtime, "get_pod_status", self.read_pod), LoopClock()

    async def _ok(self) -> SyncOutcome:
        return SyncOutcome()

    def _note(self, verb: str) -> None:
        self.calls.append((verb, asyncio.get_running_loop().time()))

    async def sync_pod(
        self,
        pod: Pod,
        mirror: Pod | None,
        status: PodRuntimeStatus,
        is_terminating: Callable[[], bool],
    ) -> SyncOutcome:
        self._note("sync")
        self.pods.append(pod)
        return await self.on_sync()

    async def sync_terminating_pod(
        self, pod: Pod, status: PodRuntimeStatus, grace: int, status_override: StatusOverride | None
    ) -> SyncOutcome:
        self._note("terminate")
        self.graces.append(grace)
        return await self.on_terminate()

    async def sync_terminating_runtime_pod(self, status: PodRuntimeStatus) -> SyncOutcome:
        self._note("terminate-runtime")
        return await self.on_terminate()

    async def sync_terminated_pod(self, pod: Pod, status: PodRuntimeStatus) -> SyncOutcome:
        self._note("finish")
        return await self.on_finish()

    def refresh(self, pod: Pod, mirror: Pod | None, override: StatusOverride | None = None) -> None:
        self.refreshed.append((pod, mirror, override))

    def complete(self, pod: Pod) -> None:
        self.completed.append(pod)

    def reject(self, pod: Pod, rejection: Rejection) -> None:
        self.rejected.append((pod.uid, rejection))
        self.on_reject(pod, rejection)

    @property
    def verbs(self) -> list[str]:
        return [verb for verb, _ in self.calls]


def recording_syncer() -> RecordingSyncer:
    """A syncer that has only what its ``connect`` gets."""
    unused: list[Any] = [None] * 9
    return RecordingSyncer((), *unused)


def make_workers(
    syncer: RecordingSyncer,
    cache: PodStatusCache,
    runtime: Any,
    recorder: Recorder,
    *,
    metrics: Any = None,
    **more: Any,
) -> PodWorkers:
    """Workers with a fixed jitter."""
    traces = more.setdefault("traces", Traces())
    syncer.connect(cache, runtime, recorder, traces)
    return PodWorkers(
        WorkerMachine(),
        syncer,
        cast(Any, syncer),
        cache,
        recorder=recorder,
        clock=LoopClock(),
        rng=random.Random(1),
        metrics=metrics or Metrics().workers,
        **more,
    )


class Setup:
    def __init__(self, populated: bool = True, **more: Any) -> None:
        self.syncer, self.runtime, self.recorder = recording_syncer(), FakeRuntime(), Recorder()
        self.cache = PodStatusCache()
        self.cache.populated = populated
        self.log: list[Event] = []
        self.metrics = Metrics()
        self.workers = make_workers(
            self.syncer,
            self.cache,
            self.runtime,
            self.recorder,
            event_log=lambda event, effects: self.log.append(event),
            metrics=self.metrics.workers,
            **more,
        )

    def send(self, kind: UpdateType, pod: Pod | None = None, **kwargs: Any) -> None:
        self.workers.update_pod(PodUpdate(kind, pod=pod or make_pod(), **kwargs))

    def counted(self) -> tuple[int, int]:
        """Pods and regular containers in kubelet_containers_per_pod_count."""
        name = "\nkubelet_containers_per_pod_count_{} (\\d+)"
        text = self.metrics.render().decode()
        count, total = (re.search(name.format(what), text) for what in ("count", "sum"))
        assert count and total
        return int(count[1]), int(total[1])

    def starts_for_a_second(self) -> None:
        """Each sync lasts a second and then stores a status read at 50."""

        async def starts() -> SyncOutcome:
            await asyncio.sleep(1)
            self.cache.set(runtime_status(at=50), own=True)
            return SyncOutcome()

        self.syncer.on_sync = starts


def sleeping(
    seconds: float, outcome: SyncOutcome | None = None
) -> Callable[[], Awaitable[SyncOutcome]]:
    async def act() -> SyncOutcome:
        await asyncio.sleep(seconds)
        return outcome or SyncOutcome()

    return act


async def test_a_sync_that_waits_is_cut_short_by_termination() -> None:
    s = Setup()
    s.syncer.on_sync = sleeping(1000)
    s.send(UpdateType.CREATE)
    await asyncio.sleep(1)
    s.send(UpdateType.KILL, kill=KillOptions(grace_override=4))
    await settle()
    assert s.syncer.calls[1] == ("terminate", 1.0)
    assert s.syncer.graces == [4]


async def test_termination_before_the_step_has_begun() -> None:
    s = Setup()
    s.send(UpdateType.CREATE)
    s.send(UpdateType.KILL)
    await settle()
    assert s.syncer.verbs == ["terminate", "finish"]


async def test_the_latest_message_wins() -> None:
    s = Setup()
    s.syncer.on_sync = sleeping(1)
    for version in ("1", "2", "3"):
        s.send(UpdateType.UPDATE, make_pod(labels={"v": version}))
    await asyncio.sleep(5)
    assert [pod.labels["v"] for pod in s.syncer.pods] == ["1", "3"]


async def test_a_backoff_ends_at_its_instant() -> None:
    s = Setup()
    due = LoopClock().now() + 7.25
    s.syncer.on_sync = sleeping(0, SyncOutcome(error="CrashLoopBackOff", retry_at=due))
    s.send(UpdateType.CREATE)
    await asyncio.sleep(7.3)
    verb, at = s.syncer.calls[1]
    assert verb == "sync"
    assert at == pytest.approx(7.25, abs=1e-6)


async def test_a_failing_step_is_repeated_later_and_a_message_runs_at_once() -> None:
    s = Setup()
    s.syncer.on_sync = sleeping(0, SyncOutcome(error="no"))
    s.send(UpdateType.CREATE)
    await asyncio.sleep(5)
    s.send(UpdateType.UPDATE)
    await asyncio.sleep(16)
    times = [at for _, at in s.syncer.calls]
    assert times[:2] == [0.0, 5.0]
    assert 15.0 <= times[2] <= 20.0
    assert len(times) == 3


@pytest.mark.parametrize(
    ("error", "why"),
    [(KeyError("bug"), "KeyError: 'bug'"), (NoThread(), f"[Errno 11] {NO_THREAD}")],
    ids=["a bug", "the machine"],
)
async def test_a_fault_in_a_step_ends_neither_pod_nor_agent(
    error: Exception, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    s = Setup()

    async def broken() -> SyncOutcome:
        raise error

    s.syncer.on_sync = broken
    s.send(UpdateType.CREATE)
    await asyncio.sleep(20)
    assert len(s.syncer.calls) >= 2
    assert any(why == entry.decision.why for entry in s.workers.notes.history.decisions(UID))
    assert {vars(record)["pod"] for record in caplog.records} == {"default/web"}
    assert "update: create" in vars(caplog.records[0])["events"][0]


async def test_kill_pod_waits_until_nothing_runs() -> None:
    s = Setup()
    s.syncer.on_terminate = sleeping(3)
    s.send(UpdateType.CREATE)
    await settle()
    await s.workers.kill_pod(make_pod(), KillOptions(grace_override=2))
    assert asyncio.get_running_loop().time() == 3.0
    await s.workers.kill_pod(make_pod(), KillOptions())


async def test_kill_pod_times_out_and_the_kill_continues() -> None:
    s = Setup()
    s.syncer.on_terminate = sleeping(100)
    with pytest.raises(TimeoutError):
        await s.workers.kill_pod(make_pod(), KillOptions(grace_override=20))
    assert asyncio.get_running_loop().time() == 30.0
    assert s.recorder.events[0][0] == "ExceededGracePeriod"
    await asyncio.sleep(75)
    assert s.workers._queries.should_be_finished(UID)


async def test_a_new_pod_needs_no_question_once_the_runtime_was_listed() -> None:
    s = Setup()
    s.send(UpdateType.CREATE)
    await settle()
    assert s.runtime.requested == 0
    before = Setup(populated=False)
    before.send(UpdateType.CREATE)
    await settle()
    assert before.runtime.requested == 1


async def test_no_status_no_step() -> None:
    s = Setup(populated=False)
    s.runtime.error = Unavailable("ListPodSandbox", "gone")
    s.send(UpdateType.CREATE)
    await settle()
    assert s.syncer.calls == []
    assert s.recorder.events[0][0] == "FailedSync"
    s.runtime.error = None
    await asyncio.sleep(16)
    assert s.syncer.verbs == ["sync"]


async def test_an_interrupted_step_makes_the_worker_read_the_status() -> None:
    s = Setup()
    s.syncer.on_sync = sleeping(1000)
    s.send(UpdateType.CREATE)
    await settle()
    s.send(UpdateType.KILL)
    await settle()
    assert s.runtime.requested == 1


async def test_a_change_that_the_worker_has_seen_does_not_wake_it() -> None:
    s = Setup()
    s.starts_for_a_second()
    s.send(UpdateType.CREATE)
    await asyncio.sleep(0.5)
    s.cache.set(runtime_status(state=ContainerState.CREATED, at=40))
    s.workers.runtime_changed(UID)
    await asyncio.sleep(10)
    assert s.syncer.verbs == ["sync"]
    assert not s.cache.set(runtime_status(at=60))


async def test_an_exit_during_a_step_is_synced_right_after_it() -> None:
    s = Setup()
    s.starts_for_a_second()
    s.send(UpdateType.CREATE)
    await asyncio.sleep(0.5)
    s.cache.set(runtime_status(state=ContainerState.EXITED, at=60))
    s.workers.runtime_changed(UID)
    await asyncio.sleep(0.6)
    assert s.syncer.calls == [("sync", 0.0), ("sync", 1.0)]


async def test_close_leaves_pods_and_ends_promptly() -> None:
    s = Setup()
    s.syncer.on_sync = sleeping(1000)
    s.send(UpdateType.CREATE)
    await settle()
    await s.workers.close()
    assert asyncio.get_running_loop().time() == 0.0
    await asyncio.sleep(100)
    assert s.syncer.verbs == ["sync"]


async def test_an_idle_pod_has_no_task() -> None:
    s = Setup()
    s.send(UpdateType.CREATE)
    await eventually(lambda: s.workers.busy == 0)
    assert len(asyncio.all_tasks()) == 1


async def test_the_log_replays() -> None:
    s = Setup()
    s.syncer.on_sync = sleeping(1, SyncOutcome(error="x"))
    s.send(UpdateType.CREATE)
    await asyncio.sleep(100)
    s.send(UpdateType.KILL)
    await asyncio.sleep(10)
    s.workers.orphan_pass(frozenset())
    machine = WorkerMachine()
    for event in s.log:
        machine.handle(event)
    assert machine.records == s.workers.machine.records == {}


async def test_containers_of_a_pod_are_counted_at_its_first_step_only() -> None:
    setup = Setup()
    containers = [{"name": name, "image": "i"} for name in "abc"]
    inits = [{"name": "init", "image": "i"}]
    setup.send(UpdateType.CREATE, make_pod(containers=containers, initContainers=inits))
    await settle()
    setup.send(UpdateType.UPDATE, make_pod(containers=containers))
    await settle()
    assert setup.counted() == (1, 3)
    setup.send(UpdateType.KILL, make_pod("gone", "uid-gone", deleting=0))
    await settle()
    assert setup.counted() == (2, 4), "one that ends with its first step counts too"
    setup.send(UpdateType.KILL, None, runtime_pod=runtime_status("uid-orphan"))
    await settle()
    assert setup.counted() == (2, 4), "a pod that only the runtime has is not counted"


async def test_probe_results_are_shown_while_a_step_runs() -> None:
    pod, mirror = make_pod(), None
    s = Setup(current_pod=lambda uid: (pod, mirror))
    release = asyncio.Event()

    async def busy() -> SyncOutcome:
        await release.wait()
        return SyncOutcome()

    s.syncer.on_sync = busy
    s.workers.refresh_status(UID)
    s.send(UpdateType.CREATE, pod)
    await settle()
    assert s.syncer.refreshed == [], "before the first step nothing is known of it"
    s.workers.refresh_status(UID)
    assert s.syncer.refreshed == [(pod, None, None)]
    release.set()
    await settle()
    assert s.syncer.verbs == ["sync"], "it needs no step of its own"


async def test_the_status_of_an_evicted_pod_keeps_showing_the_eviction() -> None:
    pod = make_pod()
    s = Setup(current_pod=lambda uid: (pod, None))
    s.send(UpdateType.CREATE, pod)
    await settle()
    stopped = asyncio.Event()

    async def stopping() -> SyncOutcome:
        await stopped.wait()
        return SyncOutcome()

    def evicted(status: api.PodStatus) -> api.PodStatus:
        return {**status, "reason": "Evicted"}

    s.syncer.on_terminate = stopping
    s.send(UpdateType.KILL, pod, kill=KillOptions(evict=True, status_override=evicted))
    await settle()
    s.workers.refresh_status(UID)
    assert s.syncer.refreshed == [(pod, None, evicted)]
    stopped.set()
    await settle()
    s.workers.refresh_status(UID)
    assert len(s.syncer.refreshed) == 1, "its end is reported already"


async def test_the_status_of_an_ended_pod_is_completed_without_a_step() -> None:
    s = Setup()
    for kind in (UpdateType.CREATE, UpdateType.KILL):
        s.send(kind)
        await settle()
    verbs, more = s.syncer.verbs, make_pod(ephemeralContainers=[{"name": "debug", "image": "i"}])
    s.send(UpdateType.UPDATE, more)
    await settle()
    assert (s.syncer.completed, s.syncer.verbs) == ([more], verbs)


async def test_a_refused_pod_has_a_status_and_no_step() -> None:
    s = Setup()
    rejection = Rejection(AdmissionReason("OutOfcpu"), "Node didn't have enough resource: cpu")
    s.workers.reject(make_pod(), rejection)
    await settle()
    assert s.syncer.rejected == [(UID, rejection)]
    assert s.syncer.verbs == []
    assert s.workers.machine.records == {}
    (entry,) = s.workers.notes.history.decisions(UID)
    assert entry.decision.why == "OutOfcpu: Node didn't have enough resource: cpu"
    s.send(UpdateType.CREATE)
    s.send(UpdateType.KILL)
    s.workers.reject(make_pod(), rejection)
    assert len(s.syncer.rejected) == 1, "a pod that is ending reports its own end"
