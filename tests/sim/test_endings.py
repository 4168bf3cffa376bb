"""How pods end: the order, the time it takes, and the reports about those that do not."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kubeletpy.base.api.times import parse_time
from kubeletpy.base.api.types import JSON
from kubeletpy_up.requests import ADMIN
from tests.sim import scripts
from tests.sim.invariants import entries
from tests.sim.records import Container, Sandbox
from tests.sim.test_scenarios import both, play, state, status
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
@pytest.mark.parametrize(
    ("kind", "code", "phase"), [("doneslow", 0, "Succeeded"), ("failslow", 7, "Failed")]
)
def test_a_job_is_done_when_its_main_container_is(
    tmp_path: Path, events: bool, kind: str, code: int, phase: str
) -> None:
    """Sidecars, which would run on, are stopped; their exit codes do not fail the job."""

    async def scenario(world: World) -> None:
        init = [sidecar("first", "run143"), sidecar("second", "stubborn")]
        main = container("main", kind)
        world.user.create(pod("a", [main], init=init, restart="Never", grace=2))
        await until(world, lambda: status(world, "a").get("phase") == phase, 30)
        codes = {name: state(world, "a", name)["terminated"]["exitCode"] for name in NAMES}
        # the deaf one takes the whole grace period: the other is ended by force at once
        assert codes == {"main": code, "second": 137, "first": 143}
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
