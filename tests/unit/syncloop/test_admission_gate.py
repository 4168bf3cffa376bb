"""Admission over time: the node is read again, pods are preempted, others are held meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kubeletpy.agent.served import refused_at_start
from kubeletpy.kubeapi.events.reasons import AdmissionReason
from kubeletpy.metrics.registry import Metrics
from kubeletpy.pods.pod import Pod
from kubeletpy.podworkers.records import KillOptions
from kubeletpy.resources.admission.checks import Admitted, NodeState, Preempt, Refused, Rejection
from kubeletpy.resources.allocation.allocation_manager import AllocationManager
from kubeletpy.resources.allocation.checkpoint import ResourceState
from kubeletpy.syncloop.admission_gate import AdmissionGate, Deferred, HeldPods, Others, Settle
from tests.kit.cgroups import container, fixed, pod
from tests.kit.pods import pod_object
from tests.kit.virtual_time import LoopClock, settle
from tests.unit.syncloop.test_loop import Node

pytestmark = pytest.mark.virtual_time

CRITICAL: dict[str, Any] = {"priority": 2_000_000_000}
FITS = Rejection(
    AdmissionReason("OutOfcpu"),
    "Node didn't have enough resource: cpu, requested: 3000, used: 0, capacity: 2000",
)


def node(**labels: str) -> Any:
    return {
        "metadata": {"name": "n", "labels": labels},
        "status": {"allocatable": {"cpu": "2", "memory": "1Gi", "pods": "10"}},
    }


class Gate:
    def __init__(self, state: NodeState | None = None, *, resizes_preempt: bool = True) -> None:
        self.node: Any = node()
        self.newest: Any = None
        self.requested = 0
        self.active: list[Pod] = []
        self.killed: list[str] = []
        self.overrides: list[KillOptions] = []
        self.events: list[str] = []
        self.metrics = Metrics()
        self.places: dict[str, Rejection | Settle] = {}
        """Outcome of placing a pod, by uid."""
        self.plugins: dict[str, Awaitable[None]] = {}
        """Plugins that a pod waits for, by uid."""
        self.placed: list[str] = []
        self.slow_kill = asyncio.Event()
        self.slow_kill.set()
        self.gate = AdmissionGate(
            lambda: state or NodeState(),
            self,
            LoopClock(),
            self.metrics.workers,
            node=lambda: self.node,
            newest_node=self.fetch_node,
            kill=self.kill,
            place=self.place,
            plugins=lambda requested: self.plugins.get(requested.uid),
            resizes_preempt=resizes_preempt,
        )

    def place(self, requested: Pod) -> Rejection | Settle | None:
        self.placed.append(requested.uid)
        return self.places.get(requested.uid)

    async def fetch_node(self) -> Any:
        self.requested += 1
        return self.newest

    async def kill(self, victim: Pod, options: KillOptions) -> None:
        await self.slow_kill.wait()
        self.killed.append(victim.uid)
        self.overrides.append(options)
        self.active = [other for other in self.active if other.uid != victim.uid]
        if victim.uid == "slow":
            raise TimeoutError

    def event(self, ref: Any, kind: str, reason: str, text: str, annotations: Any = None) -> None:
        self.events.append(f"{ref['uid']} {kind} {reason}: {text}")

    async def settled(self, requested: Pod) -> Rejection | None:
        answer = self.gate(requested, self.active)
        assert isinstance(answer, Deferred)
        return await answer.settle(lambda: self.active)

    def rejections(self, reason: str) -> float:
        return float(self.metrics.workers.admission_rejections.labels(reason)._value.get())


async def test_most_pods_are_judged_at_once() -> None:
    gate = Gate()
    assert gate.gate(pod(), []) is None
    assert gate.gate(pod(container("3")), []) == FITS
    assert gate.gate(pod(nodeName="m"), []) is not None
    broken = gate.gate(pod(container("many")), [])
    assert isinstance(broken, Rejection)
    assert broken.reason == "UnexpectedAdmissionError"
    assert gate.rejections("OutOfcpu") == 1
    assert gate.rejections("Other") == 1
    assert gate.rejections("UnexpectedAdmissionError") == 1


async def test_a_pod_that_waits_for_devices_does_not_block_others() -> None:
    gate, answers = Gate(), asyncio.Event()
    no = Rejection(AdmissionReason("UnexpectedAdmissionError"), "the plugin says no")

    async def settle_a() -> None:
        await answers.wait()

    async def settle_b() -> Rejection:
        return no

    gate.places = {
        "a": settle_a,
        "b": settle_b,
        "c": Rejection(AdmissionReason("TopologyAffinityError"), "far"),
    }
    waiting = asyncio.ensure_future(gate.settled(pod(uid="a")))
    await settle()
    assert await gate.settled(pod(uid="b")) == no
    assert gate.gate(pod(uid="c"), []) == Rejection(AdmissionReason("TopologyAffinityError"), "far")
    assert gate.gate(pod(uid="d"), []) is None
    assert not waiting.done()
    answers.set()
    assert await waiting is None
    assert gate.rejections("TopologyAffinityError") == 1
    assert gate.rejections("UnexpectedAdmissionError") == 1


async def test_the_node_is_read_again_before_a_pod_is_refused_for_a_label() -> None:
    gate = Gate()
    wants = pod(nodeSelector={"disk": "ssd"})
    gate.newest = node(disk="ssd")
    assert await gate.settled(wants) is None
    gate.newest = None
    refused = await gate.settled(wants)
    assert refused is not None
    assert refused.reason == "NodeAffinity"
    assert gate.requested == 2


async def test_a_critical_pod_waits_until_others_gave_way() -> None:
    gate = Gate()
    gate.active = [pod(container("1"), uid="a"), pod(container("1"), uid="b")]
    gate.slow_kill.clear()
    waiting = asyncio.ensure_future(gate.settled(pod(container("500m"), uid="c", **CRITICAL)))
    await settle()
    assert not waiting.done()
    gate.slow_kill.set()
    assert await waiting is None
    assert gate.killed == ["a"]
    assert gate.events == ["a Warning Preempting: Preempted in order to admit critical pod"]
    (options,) = gate.overrides
    assert options.evict
    assert options.grace_override is None
    assert options.status_override is not None
    assert options.status_override({"phase": "Running"})["reason"] == "Preempting"


async def test_foresee_changes_nothing() -> None:
    gate = Gate()
    gate.active = [pod(container("1"), uid="a"), pod(container("1"), uid="b")]
    small, big = pod(container("500m"), uid="c", **CRITICAL), pod(container("3"), uid="d")
    found, victims = gate.gate.foresee(small, gate.active)
    assert isinstance(found, Preempt)
    assert [victim.uid for victim in victims] == ["a"]
    assert gate.gate.foresee(small, []) == (Admitted(), ())
    assert gate.gate.foresee(big, []) == (Refused(FITS), ())
    others = [pod(fixed("2", "1Mi"), uid="a", **CRITICAL)]
    refused, _ = gate.gate.foresee(small, others)
    assert isinstance(refused, Refused)
    assert refused.rejection.message == (
        "Unexpected error while attempting to recover from admission failure: preemption: error "
        "finding a set of pods to preempt: no set of running pods found to reclaim resources: "
        "[(res: cpu, q: 500), ]"
    )
    stranger = pod(nodeSelector={"disk": "fast"}, uid="e")
    assert isinstance(gate.gate.foresee(stranger, [])[0], Refused)
    await settle()
    assert (gate.killed, gate.events, gate.requested) == ([], [], 0)
    assert gate.rejections("OutOfcpu") == 0


async def test_two_critical_pods_do_not_preempt_for_the_same_space() -> None:
    gate = Gate()
    gate.active = [pod(container("1"), uid="a"), pod(container("1"), uid="b")]
    one, two = (pod(container("1"), uid=uid, **CRITICAL) for uid in ("c", "d"))

    async def admitted(requested: Pod) -> None:
        assert await gate.settled(requested) is None
        gate.active.append(requested)

    await asyncio.gather(admitted(one), admitted(two))
    assert sorted(gate.killed) == ["a", "b"]


async def test_a_pod_that_fits_after_no_preemption_is_refused() -> None:
    gate = Gate()
    gate.active = [pod(fixed("2", "1Mi"), uid="a", **CRITICAL)]
    refused = await gate.settled(pod(container("1"), uid="c", **CRITICAL))
    assert refused is not None
    assert refused.reason == "UnexpectedAdmissionError"
    assert "no set of running pods found to reclaim resources" in refused.message
    assert gate.killed == []


async def test_a_victim_that_does_not_end_in_time_is_not_awaited() -> None:
    gate = Gate()
    gate.active = [pod(container("2"), uid="slow")]
    assert await gate.settled(pod(container("1"), uid="c", **CRITICAL)) is None


async def test_requests_are_read_once_per_object() -> None:
    gate = Gate()
    others = [pod(container("10m"), uid=f"o{n}") for n in range(5)]
    for _ in range(3):
        assert gate.gate(pod(container("10m")), others) is None
    kept = gate.gate._needs["o1"]
    gate.gate(pod(container("10m")), others)
    assert gate.gate._needs["o1"] is kept
    for n in range(100):
        gate.gate(pod(container("10m"), uid=f"x{n}"), others)
    assert len(gate.gate._needs) < 40


# -- pods that wait -----------------------------------------------------------------------------


async def test_a_held_pod_is_settled_once() -> None:
    notified: list[tuple[str, Rejection | None]] = []
    held = HeldPods(lambda uid, rejection: notified.append((uid, rejection)))
    answers: dict[str, asyncio.Future[Rejection | None]] = {}
    for uid in "abcd":
        answers[uid] = asyncio.get_running_loop().create_future()
        held.hold_until(uid, answers[uid])
    assert held.waiting == frozenset("abcd")
    answers["a"].set_result(None)
    answers["b"].set_result(FITS)
    answers["c"].set_exception(RuntimeError("broken"))
    held.forget("d")
    await settle()
    assert notified[:2] == [("a", None), ("b", FITS)]
    assert notified[2][0] == "c"
    assert notified[2][1] is not None
    assert notified[2][1].reason == "UnexpectedAdmissionError"
    assert len(notified) == 3
    assert held.waiting == frozenset()
    held.refuse("b")
    assert held.holds("b")
    assert not held.holds("a")
    held.forget("b")
    assert not held.holds("b")


def as_it_has(of: Pod, cpu: str) -> Pod:
    """The pod while its container still has a CPU amount other than the allocated one."""
    entry: Any = {"name": of.containers[0]["name"], "resources": {"requests": {"cpu": cpu}}}
    return Pod({**of.object, "status": {"containerStatuses": [entry]}})


async def test_a_resize_is_judged_beside_running_and_admitted_pods() -> None:
    gate = Gate()
    other = pod(container("500m"), uid="b")
    assert gate.gate.fits(pod(container("1500m")), [other]) is None
    refused = gate.gate.fits(pod(container("1501m")), [other])
    assert refused is not None
    assert refused.reason == "OutOfcpu"
    shrinking = as_it_has(other, "1")
    assert gate.gate.fits(pod(container("1500m")), [shrinking]) is not None
    growing = as_it_has(other, "100m")
    assert gate.gate.fits(pod(container("1501m")), [growing]) is not None
    itself = as_it_has(pod(container("500m")), "2")
    assert gate.gate.fits(itself, [pod(container("1500m"), uid="b")]) is None
    assert gate.rejections("OutOfcpu") == 0, "a resize is no admission"


async def test_the_scheduler_preempts_for_a_resize_where_the_gate_is_on() -> None:
    gate = Gate(resizes_preempt=False)
    gate.active = [pod(container("1"), uid="a")]
    wants = pod(container("1500m"), **CRITICAL)
    refused = gate.gate.fits(wants, gate.active)
    await settle()
    assert refused is not None
    assert refused.reason == "OutOfcpu"
    assert (gate.killed, gate.events) == ([], [])
    answer = gate.gate(wants, gate.active)
    assert isinstance(answer, Deferred)
    assert await answer.settle(lambda: gate.active) is None
    assert gate.killed == ["a"], "the pod itself is admitted as ever"


@pytest.mark.parametrize(
    ("declared", "events"),
    [
        (None, []),
        (("InPlacePodLevelResourcesVerticalScaling",), []),
        (
            (),
            [
                "u Warning FailedNodeDeclaredFeaturesCheck: Pod requires node features that are "
                "not available: InPlacePodLevelResourcesVerticalScaling"
            ],
        ),
    ],
)
async def test_an_update_that_needs_what_the_node_does_not_declare_has_an_event(
    declared: Any, events: list[str]
) -> None:
    gate = Gate(NodeState(declared_features=declared))
    old = pod(container("1"), uid="u")
    new = pod(container("1"), uid="u", resources={"requests": {"cpu": "2"}})
    gate.gate.updated(old, new)
    gate.gate.updated(new, new)
    assert gate.events == events


async def test_other_pods_are_preempted_for_the_resize_of_a_critical_pod() -> None:
    gate = Gate()
    gate.active = [pod(container("1"), uid="a"), pod(container("500m"), uid="b")]
    gate.slow_kill.clear()
    wants = pod(container("1500m"), **CRITICAL)
    refused = gate.gate.fits(wants, gate.active)
    assert refused is not None
    assert refused.reason == "OutOfcpu"
    gate.gate.fits(wants, gate.active)
    gate.slow_kill.set()
    await settle()
    assert gate.killed == ["a"], "once"
    assert gate.gate.fits(wants, gate.active) is None
    nobody = gate.gate.fits(pod(container("3"), **CRITICAL), [])
    assert nobody is not None
    assert nobody.reason == "UnexpectedAdmissionError"
    gate.slow_kill.clear()
    gate.active = [pod(container("1"), uid="c")]
    gate.gate.fits(wants, gate.active)
    await gate.gate.close()
    await settle()
    assert gate.killed == ["a"]


async def test_a_pod_is_placed_after_its_plugins_have_returned() -> None:
    gate, refusal = (
        Gate(),
        Rejection(AdmissionReason("UnexpectedAdmissionError"), "Allocate failed"),
    )
    requested = pod(container("100m"), uid="u")
    for answer in (None, refusal):
        gate.placed.clear()
        gate.plugins["u"] = asyncio.sleep(10)
        if answer is not None:
            gate.places["u"] = answer
        waits = asyncio.create_task(gate.settled(requested))
        await asyncio.sleep(9)
        assert gate.placed == []
        assert await waits == answer
        assert gate.placed == ["u"]
    assert gate.rejections("UnexpectedAdmissionError") == 1


async def test_pods_whose_plugins_come_back_together_are_admitted_one_by_one() -> None:
    """A node with two CPUs refuses one of three pods with a CPU each that are judged at once."""
    gate = Gate()
    pods = [pod(container("1"), uid=uid) for uid in "abc"]
    outcomes: dict[str, Rejection | None] = {}
    held = HeldPods(lambda uid, rejection: outcomes.update({uid: rejection}))
    gate.active = pods

    def admitted() -> list[Pod]:
        refused = {uid for uid, rejection in outcomes.items() if rejection is not None}
        return [each for each in pods if each.uid not in held.undecided | refused]

    back = asyncio.Event()
    for each in pods:
        gate.plugins[each.uid] = cast(Any, back.wait())
        answer = gate.gate(each, pods)
        assert isinstance(answer, Deferred)
        held.hold_until(each.uid, answer.settle(admitted))
    await asyncio.sleep(10)
    assert held.undecided == held.waiting == frozenset("abc")
    back.set()
    await settle()
    assert [uid for uid, rejection in outcomes.items() if rejection is None] == ["a", "b"]
    refusal = outcomes["c"]
    assert refusal is not None
    assert refusal.reason == "OutOfcpu"


async def test_pods_that_the_next_start_would_not_admit_are_listed_for_explain() -> None:
    gate = Gate()
    pods = [
        pod(uid=f"u{n}", nodeSelector={"disk": "ssd"}, status={"startTime": "2026-01-01T00:00:00Z"})
        for n in range(7)
    ]
    core: Any = SimpleNamespace(running=lambda: pods, admission=SimpleNamespace(gate=gate.gate))
    gate.node = node(disk="ssd")
    assert refused_at_start(core) == []
    gate.node = node(disk="hdd")
    reported = refused_at_start(core)
    assert reported[0] == (
        "pod default/p runs, but the next start of the agent ends it: NodeAffinity: Predicate "
        "NodeAffinity failed: node(s) didn't match Pod's node affinity/selector"
    )
    assert reported[5:] == ["2 more pods likewise"]
    assert gate.rejections("NodeAffinity") == 0, "nothing was refused"


# The loop with in-place resizes: workers and admission see the allocated pods.

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


async def test_an_update_that_fits_is_one_sync() -> None:
    node = Sized()
    node.loop.deliver("api", [sized("a", "1")])
    await settle()
    before = len(node.synced("uid-a"))
    node.loop.deliver_event("api", "MODIFIED", sized("a", "2"))
    await settle()
    assert node.synced("uid-a")[before:] == ["2"]
    await node.stop()


async def test_a_pod_is_admitted_again_as_it_was() -> None:
    node = Sized()
    node.state.set("uid-a", "main", {"requests": {"cpu": "1"}})
    node.loop.deliver("api", [sized("a", "9")])
    assert node.seen == [("uid-a", "1")]
    await node.stop()


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


# A pod gets no worker until its admission is decided, whatever happens meanwhile.

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


async def test_it_may_be_deleted_meanwhile() -> None:
    node = await held()
    node.loop.deliver_event("api", "MODIFIED", pod_object("slow", deleting=1))
    await asyncio.sleep(3)
    assert node.answer.cancelled()
    assert node.syncer.verbs[1:] == ["terminate", "finish"]
    await node.stop()


async def test_it_may_vanish_meanwhile() -> None:
    node = await held()
    node.loop.deliver_event("api", "DELETED", pod_object("slow"))
    await asyncio.sleep(3)
    assert node.answer.cancelled()
    assert node.queries.record(SLOW) is None or "sync" not in node.syncer.verbs[1:]
    await node.stop()


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
