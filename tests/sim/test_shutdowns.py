"""The machine shuts down, and boots: what the API sees, in which order, and what is left."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from kubeletpy.base.api.types import JSON
from kubeletpy.node.shutdown.logind import Logind
from kubeletpy.status.conditions import find, holds
from kubeletpy_up.requests import ADMIN
from tests.sim import scripts
from tests.sim.api import NODE
from tests.sim.loop import run
from tests.sim.pressure import MEMORY, Appetite
from tests.sim.storage_chaos import pod_with, set_out
from tests.sim.test_endings import MANY, many, signals, until
from tests.sim.test_scenarios import manifest, node_ready, state, status
from tests.sim.user import container, pod, sidecar
from tests.sim.world import World

PERIODS = {"shutdownGracePeriod": "14s", "shutdownGracePeriodCriticalPods": "6s"}
BUDGET_S = 14.0


def is_ready(reported: JSON) -> bool:
    """Whether the condition Ready of a pod's status is True."""
    return holds(reported.get("conditions"), "Ready")


class FakeLogind(Logind):
    """Reports that the machine goes down when ``parts`` gets an entry."""

    def __init__(self) -> None:
        self.parts: asyncio.Queue[bool] = asyncio.Queue()
        self._locks: list[int] = []
        self._active = False

    async def inhibit(self) -> int:
        reading, writing = os.pipe()
        os.set_blocking(reading, False)
        self._locks.append(reading)
        return writing

    async def max_delay(self) -> float:
        return 60.0

    async def shutting_down(self) -> bool:
        return self._active

    async def raise_max_delay(self, seconds: int) -> None:
        raise AssertionError("the delay is long enough")

    async def next_shutdown(self) -> bool:
        return await self.parts.get()

    async def close(self) -> None:
        """Nothing is open."""

    def announce(self, active: bool) -> None:
        """The machine is about to go down, or it is not."""
        self._active = active
        self.parts.put_nowait(active)

    def boot(self) -> None:
        """Another logind runs."""
        self._active, self.parts = False, asyncio.Queue()

    def held(self) -> bool:
        """Whether the agent holds the machine up."""
        try:
            return bool(self._locks) and os.read(self._locks[-1], 1) != b""
        except BlockingIOError:
            return True


class Shutdown:
    """A node with graceful shutdown, and what the API showed of its pods."""

    def __init__(self, world: World, logind: FakeLogind) -> None:
        self.world, self.logind = world, logind
        self.stops = signals(world)
        self.unready: dict[str, float] = {}
        """Pod -> when the API showed first that it is not Ready, since the last announcement."""
        world.registry.store.subscribe(self._seen)

    def _seen(self, change: Any) -> None:
        if change.resource == "pods" and not is_ready(change.object.get("status") or {}):
            self.unready.setdefault(change.object["metadata"]["name"], self.world.loop.time())

    async def begin(self) -> None:
        """The machine is about to go down; from now on stops are justified."""
        for truth in self.world.truth.pods.values():
            truth.deleting = True
        self.unready.clear()
        self.stops.clear()
        self.began = self.world.loop.time()
        self.logind.announce(True)
        await asyncio.sleep(0.01)

    async def released(self) -> float:
        """Wait until the machine may go down; how long it took."""
        await until(self.world, lambda: not self.logind.held(), BUDGET_S + 0.1)
        return self.world.loop.time() - self.began

    async def boot(self) -> None:
        """The power is off, and on again."""
        self.world.reboot()
        await self.world.buried()
        self.logind.boot()
        self.world.runtime.network_ready = True
        for driver in self.world.drivers.values():
            driver.start()
        self.world.start()
        await until(self.world, lambda: node_ready(self.world) == "True", 60)

    def ready(self, name: str) -> bool:
        """Whether the API shows a pod as Ready."""
        return is_ready(status(self.world, name))


def play(
    scenario: Callable[[Shutdown], Awaitable[None]],
    root: Path,
    patch: pytest.MonkeyPatch,
    seed: int = 1,
    **options: Any,
) -> None:
    """Run a scenario on a node with a logind."""

    async def story() -> None:
        logind = FakeLogind()

        async def connect() -> FakeLogind:
            return logind

        patch.setattr(Logind, "connect", connect)
        world = World(seed, root, settings=PERIODS, **options)
        if world.storage is not None:
            set_out(world)
        world.start()
        await until(world, logind.held, 10)
        await scenario(Shutdown(world, logind))
        await world.stop()
        world.history.check()

    run(story())


def critical(obj: JSON) -> JSON:
    """The pod with the highest priority."""
    metadata = {**obj["metadata"], "namespace": "kube-system"}
    return {
        "metadata": metadata,
        "spec": {**obj["spec"], "priorityClassName": "system-node-critical"},
    }


def ended_as(found: JSON) -> tuple[str, str]:
    """Phase and reason; a pod that the shutdown has ended has the condition for it."""
    if found.get("reason") == "Terminated":
        why = find(found["conditions"], "DisruptionTarget")
        assert why is not None
        assert (why["status"], why["reason"]) == ("True", "TerminationByKubelet")
        assert not is_ready(found)
    return found["phase"], found.get("reason", "")


def test_a_shutdown_stops_critical_pods_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All pods are stopped at once and get all the time there is; the critical ones come last."""

    async def scenario(down: Shutdown) -> None:
        world = down.world
        for each in many("stubborn", 30):
            world.user.create(each)
        world.user.create(pod("job", [container("c", "done")], restart="Never"))
        last = pod("critical", [container("c", "slowstop")], grace=30)
        world.registry.create(ADMIN, "pods", {**last, **critical(last)}, "kube-system")
        await world.converges(120)
        await down.begin()
        await until(world, lambda: len(down.stops) == MANY, 3)
        began = max(down.stops.values())
        assert began - min(down.stops.values()) < 0.2
        assert began - down.began < 1.7, "a tenth of the period for the API, and one for others"
        assert node_ready(world) == "False"
        await until(world, lambda: len(down.stops) == MANY + 1, 12)
        assert world.loop.time() - down.began < 9.0
        assert await down.released() < BUDGET_S
        for name in ("p0", f"p{MANY - 1}"):
            assert ended_as(status(world, name)) == ("Failed", "Terminated")
        assert status(world, "job")["phase"] == "Succeeded"

    play(scenario, tmp_path, monkeypatch)


def test_pods_are_not_ready_before_the_first_of_them_is_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(down: Shutdown) -> None:
        world = down.world
        names = [f"p{number}" for number in range(8)]
        for name in names:
            init = [sidecar("side")] if name == "p0" else []
            world.user.create(pod(name, [container("c", "slowstop")], init=init, grace=30))
        await world.converges(60)
        assert all(map(down.ready, names))
        await down.begin()
        await down.released()
        assert down.unready.keys() == set(names)
        first = min(down.stops.values())
        assert first - max(down.unready.values()) > 0.7, "kube-proxy gets a tenth of the period"

    play(scenario, tmp_path, monkeypatch)


def test_a_canceled_shutdown_leaves_pods_as_they_were(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pods that were not stopped are Ready again, and one that came meanwhile starts."""

    async def scenario(down: Shutdown) -> None:
        world = down.world
        for name in ("a", "b"):
            world.user.create(pod(name, [container("c", "run")]))
        await world.converges(30)
        await down.begin()
        await until(world, lambda: not down.ready("a") and not down.ready("b"), 1)
        why = find(status(world, "a")["conditions"], "Ready")
        assert why is not None and why["reason"] == "NodeShutdown"
        world.user.create(pod("late", [container("c", "run")]))
        await asyncio.sleep(0.5)
        down.logind.announce(False)
        await until(world, lambda: down.ready("a") and down.ready("b"), 1)
        await until(world, lambda: node_ready(world) == "True", 1)
        await until(world, lambda: down.ready("late"), 5)
        assert down.stops == {}
        assert down.logind.held()

    play(scenario, tmp_path, monkeypatch)


def test_a_pod_that_comes_during_a_shutdown_runs_after_the_boot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A DaemonSet replaces its ended pod at once."""

    async def scenario(down: Shutdown) -> None:
        world = down.world
        world.user.create(pod("a", [container("c", "run")]))
        await world.converges(30)
        await down.begin()
        await until(world, lambda: status(world, "a").get("phase") == "Failed", 5)
        world.user.delete("a")
        world.user.create(pod("again", [container("c", "run")]))
        await down.released()
        assert status(world, "again").get("phase") == "Pending"
        await down.boot()
        await until(world, lambda: down.ready("again"), 10)
        assert world.user.get("a") is None

    play(scenario, tmp_path, monkeypatch)


def test_the_api_is_away_during_the_shutdown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes no more than its share of the time; no pod is shown as completed after the boot."""

    async def scenario(down: Shutdown) -> None:
        world = down.world
        # all of them exit with 0 at SIGTERM
        world.user.create(pod("always", [container("c", "run")]))
        world.user.create(pod("job", [container("c", "run")], restart="Never"))
        world.user.create(pod("retried", [container("c", "run")], restart="OnFailure"))
        world.user.create(pod("done", [container("c", "done")], restart="Never"))
        await world.converges(30)
        world.api_down()
        await down.begin()
        # 0.8 s of the first group's period until it is given up, 5 s for the last statuses
        assert await down.released() < 7.0
        world.reboot()
        await world.buried()
        world.api_up()
        await down.boot()
        await until(world, lambda: restarts(world, "always") == 1, 30)
        await until(world, lambda: down.ready("always"), 5)
        for name in ("job", "retried"):
            await until(world, lambda: status(world, name).get("phase") == "Failed", 10)  # noqa: B023
            assert ended_as(status(world, name)) == ("Failed", "Terminated")
            assert state(world, name, "c")["terminated"]["exitCode"] == 0
        assert ended_as(status(world, "done")) == ("Succeeded", "")

    play(scenario, tmp_path, monkeypatch)


@pytest.mark.parametrize("after", [0.3, 1.7, 2.5, 4.7])
def test_the_power_fails_during_the_shutdown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: float
) -> None:
    """Each pod has either ended for good or runs again; none is shown as completed."""

    async def scenario(down: Shutdown) -> None:
        world = down.world
        world.user.create(pod("always", [container("c", "slowstop")], grace=30))
        world.user.create(pod("job", [container("c", "slowstop")], restart="Never", grace=30))
        await world.converges(30)
        await down.begin()
        await asyncio.sleep(after)
        await down.boot()
        settled = {("Failed", "Terminated"), ("Failed", ""), ("Running", "")}
        await until(world, lambda: down.ready("always") or _phase(world, "always") == "Failed", 30)
        await until(world, lambda: _phase(world, "job") == "Failed", 30)
        assert {ended_as(status(world, name)) for name in ("always", "job")} <= settled

    play(scenario, tmp_path, monkeypatch)


def restarts(world: World, name: str) -> int:
    """How often the container of a pod was restarted."""
    (entry,) = status(world, name)["containerStatuses"]
    return int(entry["restartCount"])


def _phase(world: World, name: str) -> str:
    return str(status(world, name).get("phase"))


@pytest.mark.parametrize("seed", range(3))
def test_volumes_are_detached_before_the_machine_goes_down(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """The controller waits six minutes for a volume that the node shows in use."""

    async def scenario(down: Shutdown) -> None:
        world = down.world
        for name in ("a", "b"):
            world.user.create(pod_with(name, ["stager-0", "plain-0"], inline=True))
        await until(world, lambda: down.ready("a") and down.ready("b"), 60)

        def in_use() -> list[str]:
            node = world.registry.find("nodes", "", NODE) or {}
            return list(node["status"].get("volumesInUse") or ())

        assert in_use()
        await down.begin()
        assert await down.released() < BUDGET_S
        assert in_use() == []
        for driver in world.drivers.values():
            assert not driver.staged
            assert not driver.published

    play(scenario, tmp_path, monkeypatch, seed, storage=True)


def test_an_image_that_is_being_pulled_holds_no_shutdown_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(down: Shutdown) -> None:
        world = down.world
        world.user.create(pod("pulls", [container("c", "run", scripts.SLOW)]))
        await asyncio.sleep(3)
        await down.begin()
        assert await down.released() < 3.0
        assert ended_as(status(world, "pulls")) == ("Failed", "Terminated")

    play(scenario, tmp_path, monkeypatch)


def test_a_static_pod_ends_once_and_runs_after_the_boot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(down: Shutdown) -> None:
        world = down.world
        assert world.static_dir is not None
        (world.static_dir / "s.yaml").write_text(manifest("s"))
        await until(world, lambda: down.ready(f"s-{NODE}"), 30)
        await down.begin()
        await down.released()
        assert ended_as(status(world, f"s-{NODE}")) == ("Failed", "Terminated")
        await asyncio.sleep(60)
        assert len(down.stops) == 1
        assert not world.runtime.running()
        await down.boot()
        await until(world, lambda: down.ready(f"s-{NODE}"), 30)

    play(scenario, tmp_path, monkeypatch, static=True)


def test_a_pod_that_is_being_evicted_ends_in_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(down: Shutdown) -> None:
        world = down.world
        assert world.stores is not None
        world.stores.appetites["greedy"] = Appetite(memory=(0.5 * MEMORY, 0.1 * MEMORY))
        world.user.create(pod("greedy", [container("c", "stubborn")], grace=30))
        world.user.create(pod("modest", [container("c", "run")]))
        await until(world, lambda: down.stops, 120)
        await down.begin()
        assert await down.released() < BUDGET_S
        ends = {name: ended_as(status(world, name)) for name in ("greedy", "modest")}
        assert ends["modest"] == ("Failed", "Terminated")
        assert ends["greedy"] in (("Failed", "Evicted"), ("Failed", "Terminated"))

    play(scenario, tmp_path, monkeypatch, pressure=True)


def test_a_pod_that_is_ending_anyway_ends_in_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A deletion with a longer grace period is cut short."""

    async def scenario(down: Shutdown) -> None:
        world = down.world
        world.user.create(pod("a", [container("c", "stubborn")], grace=600))
        await world.converges(30)
        world.user.delete("a")
        await asyncio.sleep(1)
        await down.begin()
        assert await down.released() < BUDGET_S
        await until(world, lambda: world.user.get("a") is None, 1)

    play(scenario, tmp_path, monkeypatch)


def test_an_agent_that_restarts_during_a_shutdown_goes_on_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(down: Shutdown) -> None:
        world = down.world
        world.user.create(pod("a", [container("c", "slowstop")], grace=30))
        world.user.create(pod("job", [container("c", "slowstop")], restart="Never", grace=30))
        await world.converges(30)
        await down.begin()
        await until(world, lambda: len(down.stops) == 2, 3)
        await world.kill()
        world.start()
        for name in ("a", "job"):
            await until(world, lambda: _phase(world, name) == "Failed", 30)  # noqa: B023
            assert ended_as(status(world, name)) == ("Failed", "Terminated")

    play(scenario, tmp_path, monkeypatch)


KINDS = ("run", "run143", "stubborn", "slowstop", "done", "doneslow", "failslow")


@pytest.mark.parametrize("seed", range(6))
def test_shutdowns_of_random_pods(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Shutdowns one after another: graceful, canceled, without an API, and with power cuts."""

    async def scenario(down: Shutdown) -> None:
        world, draw = down.world, random.Random(seed)
        for turn in range(5):
            for number in range(draw.randrange(1, 6)):
                policy = draw.choice(("Always", "OnFailure", "Never"))
                what = container("c", draw.choice(KINDS))
                grace = draw.choice((0, 2, 5, 30))
                world.user.create(pod(f"t{turn}-{number}", [what], restart=policy, grace=grace))
            await asyncio.sleep(draw.uniform(0, 12))
            await down.begin()
            how = draw.choice(("whole", "cancel", "cut", "silent"))
            if how == "silent":
                world.api_down()
            if how in ("whole", "silent"):
                assert await down.released() <= BUDGET_S + 0.1
            else:
                await asyncio.sleep(draw.uniform(0, 6))
            if how == "cancel":
                down.logind.announce(False)
                await until(world, lambda: node_ready(world) == "True", 5)
            else:
                world.reboot()
                await world.buried()
                if how == "silent":
                    world.api_up()
                await down.boot()
            await until(world, lambda: not unsettled(world), 120)
            assert not [name for name in names(world) if rejected(world, name)]

    play(scenario, tmp_path, monkeypatch, seed)


def names(world: World) -> list[str]:
    """The pods that the API has."""
    return [str(each["metadata"]["name"]) for each in world.user.pods()]


def rejected(world: World, name: str) -> bool:
    """Whether a pod was not admitted, or succeeded although it was stopped."""
    found = status(world, name)
    if found.get("reason") == "NodeShutdown":
        return True
    obj = world.user.get(name)
    assert obj is not None
    what = obj["spec"]["containers"][0]["image"]
    return found.get("phase") == "Succeeded" and scripts.runs_on(what)


def unsettled(world: World) -> list[str]:
    """Pods that neither run nor have ended nor restart again and again."""
    found = []
    for name in names(world):
        reported = status(world, name)
        shown: JSON = state(world, name, "c")
        waiting = shown.get("waiting", {}).get("reason")
        if reported.get("phase") in ("Succeeded", "Failed") or waiting == "CrashLoopBackOff":
            continue
        if "running" not in shown:
            found.append(name)
    return found
