"""How pods end: the order, the time it takes, and the reports about those that do not."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kubeletpy.base.api.times import parse_time
from kubeletpy.base.api.types import JSON
from kubeletpy.base.structs import replace
from kubeletpy.config import KubeletSettings
from kubeletpy.node.shutdown.logind import Logind
from kubeletpy_up.requests import ADMIN
from tests.sim import scripts
from tests.sim.invariants import entries
from tests.sim.loop import run
from tests.sim.records import Container, Sandbox
from tests.sim.test_scenarios import both, node_ready, play, state, status
from tests.sim.user import NAMESPACE, container, pod, sidecar
from tests.sim.world import World

MANY = 60


async def until(world: World, condition: Callable[[], object], within: float) -> None:
    """Wait until a condition holds; polls it every 20 ms."""
    due = world.loop.time() + within
    while not condition():
        assert world.loop.time() < due, world.history.report(["condition not met"])
        await asyncio.sleep(0.02)


def event_messages(world: World, name: str, reason: str) -> list[str]:
    """Messages of the events of a pod that have a reason."""
    found = [entry.object for _, entry in world.registry.store.entries("events")]
    return [
        event["message"]
        for event in found
        if event["involvedObject"].get("name") == name and event["reason"] == reason
    ]


def moment(world: World, what: str) -> float:
    """When the runtime's history first has an entry like ``exit c3 main``."""
    verb, name = what.split()
    return next(
        float(line.split()[0])
        for line in world.history.lines
        if f"runtime  {verb} " in line and f" {name}#" in line
    )


def signals(world: World) -> dict[str, float]:
    """Record from now on: container id -> when SIGTERM, or a stop, reached it."""
    notified: dict[str, float] = {}

    def observe(what: str, whom: Container | Sandbox) -> None:
        if what == "stop-asked" and isinstance(whom, Container):
            notified.setdefault(whom.id, world.loop.time())

    world.runtime.observers.append(observe)
    return notified


def many(kind: str, grace: int) -> Iterable[JSON]:
    return (pod(f"p{n}", [container("c", kind)], grace=grace) for n in range(MANY))


# -- order ---------------------------------------------------------------------------------------


@both
def test_sidecars_end_after_the_others_the_last_first(tmp_path: Path, events: bool) -> None:
    async def scenario(world: World) -> None:
        init = [sidecar("first", "slowstop"), container("i", "done"), sidecar("second", "slowstop")]
        world.user.create(pod("a", [container("main", "slowstop")], init=init, grace=30))
        await world.converges(20)
        world.user.delete("a")
        await until(world, lambda: world.user.get("a") is None, 30)
        ends = [moment(world, f"exit {name}") for name in ("main", "second", "first")]
        assert ends[1] - ends[0] >= 3.0, "a sidecar is stopped when the one after it has ended"
        assert ends[2] - ends[1] >= 3.0

    play(scenario, tmp_path, events=events)


@both
def test_a_job_is_done_when_its_main_container_is(tmp_path: Path, events: bool) -> None:
    """Sidecars, which would run on, are stopped; their exit codes do not fail the job."""

    async def scenario(world: World) -> None:
        init = [sidecar("first", "run143"), sidecar("second", "stubborn")]
        main = container("main", "doneslow")
        world.user.create(pod("a", [main], init=init, restart="Never", grace=2))
        await until(world, lambda: status(world, "a").get("phase") == "Succeeded", 30)
        codes = {name: state(world, "a", name)["terminated"]["exitCode"] for name in NAMES}
        # the deaf one takes the whole grace period: the other is ended by force at once
        assert codes == {"main": 0, "second": 137, "first": 143}
        assert all(entry["restartCount"] == 0 for entry in entries(status(world, "a")).values())

    play(scenario, tmp_path, events=events)


NAMES = ("main", "second", "first")


# -- time ----------------------------------------------------------------------------------------


def has_failed(world: World, name: str) -> bool:
    return status(world, name).get("phase") == "Failed"


@both
def test_a_deadline_is_met(tmp_path: Path, events: bool) -> None:
    async def scenario(world: World) -> None:
        runs = pod("runs", [container("c", "run")], activeDeadlineSeconds=60)
        pulls = pod("pulls", [container("c", "run", scripts.MISSING)], activeDeadlineSeconds=60)
        for each in (runs, pulls):
            world.user.create(each)
        for name in ("runs", "pulls"):
            await until(world, partial(has_failed, world, name), 90)
            began = parse_time(status(world, name)["startTime"])
            assert 60 <= world.clock.now() - began < 61.5
            assert status(world, name)["reason"] == "DeadlineExceeded"

    play(scenario, tmp_path, events=events)


@both
def test_a_mass_deletion_stops_all_pods_soon(tmp_path: Path, events: bool) -> None:
    """Pods that take their whole grace period hold up nobody's signal, and end together."""

    async def scenario(world: World) -> None:
        for each in many("stubborn", 20):
            world.user.create(each)
        await world.converges(120)
        requested, began = signals(world), world.loop.time()
        for n in range(MANY):
            world.user.delete(f"p{n}")
        await until(world, lambda: not world.user.pods(), 60)
        assert len(requested) == MANY
        assert max(requested.values()) - began < 3.0
        assert world.loop.time() - began < 26.0

    play(scenario, tmp_path, events=events)


# -- the machine goes down -----------------------------------------------------------------------


class FakeLogind(Logind):
    """Reports that the machine goes down when ``parts`` gets an entry."""

    def __init__(self) -> None:
        self.parts: asyncio.Queue[bool] = asyncio.Queue()
        self.lock, self._ours = os.pipe()
        os.set_blocking(self.lock, False)

    async def inhibit(self) -> int:
        return self._ours

    async def max_delay(self) -> float:
        return 60.0

    async def shutting_down(self) -> bool:
        return False

    async def raise_max_delay(self, seconds: int) -> None:
        raise AssertionError("the delay is long enough")

    async def next_shutdown(self) -> bool:
        return await self.parts.get()

    async def close(self) -> None:
        """Nothing is open."""

    def held(self) -> bool:
        """Whether the agent still holds the machine up."""
        try:
            return os.read(self.lock, 1) != b""
        except BlockingIOError:
            return True


class GoingDown(World):
    """A node with two periods for its pods."""

    def _settings(self) -> KubeletSettings:
        return replace(
            super()._settings(), shutdown_grace_period=14, shutdown_grace_period_critical_pods=6
        )


def test_a_shutdown_stops_critical_pods_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All pods are stopped at once and get all the time there is; the critical ones come last."""

    async def scenario() -> None:
        logind = FakeLogind()

        async def connect() -> FakeLogind:
            return logind

        monkeypatch.setattr(Logind, "connect", connect)
        world = GoingDown(1, tmp_path)
        world.start()
        for each in many("stubborn", 30):
            world.user.create(each)
        world.user.create(pod("job", [container("c", "done")], restart="Never"))
        critical = pod("critical", [container("c", "slowstop")], grace=30)
        world.registry.create(ADMIN, "pods", {**critical, **_priority(critical)}, "kube-system")
        await world.converges(120)
        requested, began = signals(world), world.loop.time()
        for truth in world.truth.pods.values():
            truth.deleting = True  # the stops are justified
        logind.parts.put_nowait(True)
        await asyncio.sleep(0.5)
        assert len(requested) == MANY, "all but the critical one, which waits for the others"
        assert max(requested.values()) - began < 0.2
        await until(world, lambda: node_ready(world) == "False", 2)
        await until(world, lambda: len(requested) == MANY + 1, 12)
        assert world.loop.time() - began < 9.0
        world.user.create(pod("late", [container("c", "run")]))
        await until(world, lambda: status(world, "late").get("reason") == "NodeShutdown", 3)
        await until(world, lambda: not logind.held(), 8)
        assert world.loop.time() - began < 14.0
        for name in ("p0", f"p{MANY - 1}"):
            ended = status(world, name)
            assert (ended["phase"], ended["reason"]) == ("Failed", "Terminated")
            (why,) = [c for c in ended["conditions"] if c["type"] == "DisruptionTarget"]
            assert (why["status"], why["reason"]) == ("True", "TerminationByKubelet")
        assert status(world, "job")["phase"] == "Succeeded"
        await world.stop()

    run(scenario())


def _priority(obj: JSON) -> JSON:
    metadata = {**obj["metadata"], "namespace": "kube-system"}
    return {
        "metadata": metadata,
        "spec": {**obj["spec"], "priorityClassName": "system-node-critical"},
    }


# -- what does not end ---------------------------------------------------------------------------


def test_a_stop_that_hangs_is_reported_and_then_done(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        world.user.create(pod("a", [container("c", "run")]))
        await world.converges(10)
        hang = world.runtime_faults.rates
        hang.hang = 1.0
        world.user.delete("a")
        await asyncio.sleep(12)
        assert not event_messages(world, "a", "StillTerminating"), (
            "within its grace period and some slack"
        )
        await until(world, lambda: event_messages(world, "a", "StillTerminating"), 20)
        (message,) = event_messages(world, "a", "StillTerminating")
        assert message.startswith("Still terminating after ")
        assert "grace period c" in message or "runtime" in message, message
        await asyncio.sleep(200)
        assert len(event_messages(world, "a", "StillTerminating")) <= 2, "an event is not repeated"
        world.runtime_faults.heal()
        await until(world, lambda: world.user.get("a") is None, 180)

    play(scenario, tmp_path)


@both
def test_a_finalizer_is_reported(tmp_path: Path, events: bool) -> None:
    async def scenario(world: World) -> None:
        held = pod("a", [container("c", "run")])
        held["metadata"]["finalizers"] = ["example.com/hold"]
        world.user.create(held)
        await world.converges(10)
        world.user.delete("a")
        await until(world, lambda: event_messages(world, "a", "StillTerminating"), 40)
        assert "finalizer example.com/hold" in event_messages(world, "a", "StillTerminating")[0]
        assert not world.runtime.running()
        free: JSON = {"metadata": {"finalizers": None}}
        world.registry.patch(ADMIN, "pods", "a", free, NAMESPACE)
        await until(world, lambda: world.user.get("a") is None, 10)

    play(scenario, tmp_path, events=events)


# -- what can't be read --------------------------------------------------------------------------


def write_past_validation(world: World, name: str, **spec: Any) -> None:
    """Store a pod as no API would, and no agent can read."""
    obj = world.user.get(name)
    assert obj is not None
    world.registry.store.put("pods", NAMESPACE, name, {**obj, "spec": {**obj["spec"], **spec}})


@both
@pytest.mark.parametrize("restarted", [False, True], ids=["same agent", "new agent"])
def test_an_object_that_becomes_nonsense_ends_nothing(
    tmp_path: Path, events: bool, restarted: bool
) -> None:
    async def scenario(world: World) -> None:
        made = world.user.create(pod("a", [container("c", "run")]))
        world.user.create(pod("b", [container("c", "run")]))
        await world.converges(10)
        before = {c.id for c in world.runtime.running()}
        if restarted:
            await world.kill()
        write_past_validation(world, "a", terminationGracePeriodSeconds="soon")
        if restarted:
            world.start()
        await asyncio.sleep(400)
        assert {c.id for c in world.runtime.running()} == before
        assert restarted or "goes on as it was" in event_messages(world, "a", "FailedValidation")[0]
        write_past_validation(world, "a", **made["spec"])
        await world.converges(30)
        assert {c.id for c in world.runtime.running()} == before
        write_past_validation(world, "a", terminationGracePeriodSeconds="soon")
        if restarted:
            await world.kill()
            world.start()
            await asyncio.sleep(30)
        world.truth.pods[made["metadata"]["uid"]].forced = True
        world.registry.store.remove("pods", NAMESPACE, "a")
        await until(world, lambda: len(world.runtime.running()) == 1, 30)

    play(scenario, tmp_path, events=events)
