"""Random histories of pods, drivers and agents, with invariants after each step and at the end.

No container runs without its prepared devices. A claim is unprepared exactly when no pod that may
run uses it. In the end, neither the drivers nor the state file hold any claim.
"""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from kubeletpy.pods.environment import EnvironmentInputs
from kubeletpy.pods.pod import Pod
from kubeletpy.resources.dra.checkpoint import parse_checkpoint
from kubeletpy.resources.dra.model import ClaimProblem
from kubeletpy.runtime_manager.protocol import ContainerAdditions
from tests.unit.resources.dra.node import DriverInProcess, Node, user
from tests.virtual_time import on_virtual_time

DRIVERS = ("a.example.com", "b.example.com", "c.example.com")
PODS, CLAIMS = 6, 4
UNTIL_DEATH = 25.0
FAULTS_END = 400.0
SEEDS = 20


class Story:
    """Pods that share claims, on drivers that fail until FAULTS_END."""

    def __init__(self, root: Path, seed: int) -> None:
        self.rng = random.Random(seed)
        self.node = Node(root, *(DriverInProcess(name) for name in DRIVERS))
        users: dict[str, list[str]] = {}
        self.pods: dict[str, Pod] = {}
        for number in range(PODS):
            claims = self.rng.sample(range(CLAIMS), self.rng.randint(1, 3))
            names = [f"c{claim}" for claim in claims]
            pod = user(f"p{number}", *names)
            self.pods[pod.uid] = pod
            for name in names:
                users.setdefault(name, []).append(pod.uid)
        self.users = users
        for name, uids in users.items():
            drivers = self.rng.sample(DRIVERS, self.rng.randint(1, 2))
            self.node.api.allocate(name, uids, *drivers)
        self.ends = {uid: self.rng.uniform(50, 700) for uid in self.pods}
        self.sandboxes: set[str] = set()
        """Pods whose containers may run: the death of the agent does not end them."""
        self.over: set[str] = set()
        self.deaths = 0
        for driver in self.node.by_name.values():
            driver.wait = self._waits(driver)

    @property
    def now(self) -> float:
        return asyncio.get_running_loop().time()

    def _waits(self, driver: DriverInProcess) -> Any:
        async def wait(method: str) -> None:
            faulty = self.now < FAULTS_END
            await asyncio.sleep(self.rng.choice((0.01, 1, 60 if faulty else 2)))
            driver.up = not (faulty and self.rng.random() < 0.3)

        return wait

    def left(self) -> list[str]:
        """The pods that have not finished."""
        return sorted(set(self.pods) - self.over)

    def watch_unprepare(self) -> None:
        """No driver is called to unprepare devices that a container may use."""
        for driver in self.node.by_name.values():
            calls = driver.services
            for call, claims in calls.history[getattr(self, f"_seen_{calls.name}", 0) :]:
                for claim in claims if call == "unprepare" else ():
                    running = self.sandboxes.intersection(self.users[claim])
                    assert not running, f"{claim} given back while {running} run"
            setattr(self, f"_seen_{calls.name}", len(calls.history))

    def check_devices(self, uid: str) -> None:
        """All claims of the pod are prepared with all their drivers."""
        for claim, uids in self.users.items():
            if uid not in uids:
                continue
            results = self.node.api.claims[claim]["status"]["allocation"]["devices"]["results"]
            for result in results:
                prepared = self.node.by_name[result["driver"]].services.prepared
                assert f"{claim}-uid" in prepared, f"{uid} runs without {claim}"

    async def worker(self, uid: str) -> None:
        """Runs a pod from its current state; retries like the step of the worker."""
        pod, manager, wait = self.pods[uid], self.node.manager, 1.0
        while uid not in self.sandboxes and self.now < self.ends[uid]:
            try:
                await manager.prepare(pod)
                self.sandboxes.add(uid)
            except ClaimProblem:
                await asyncio.sleep(wait)
                wait = min(wait * 2, 60.0)
        while uid in self.sandboxes and self.now < self.ends[uid]:
            additions = ContainerAdditions(EnvironmentInputs())
            supplied = await manager.provide(pod, pod.containers[0], (), additions)
            assert supplied.cdi_devices
            self.check_devices(uid)
            self.watch_unprepare()
            await asyncio.sleep(self.rng.uniform(1, 20))
        self.sandboxes.discard(uid)
        while manager.holds(uid):
            with suppress(ClaimProblem):
                await manager.unprepare(uid)
            self.watch_unprepare()
            await asyncio.sleep(5)
        self.over.add(uid)

    async def life(self) -> None:
        """One run of the agent; drivers register at random times."""
        async with asyncio.TaskGroup() as tasks:
            sweeper = tasks.create_task(self.node.manager.run())
            workers = [tasks.create_task(self.worker(uid)) for uid in self.left()]
            for driver in self.node.by_name.values():
                await asyncio.sleep(self.rng.uniform(0, 5))
                await self.node.drivers.register(driver.info())
            # a pod that was force-deleted has no worker any more
            self.node.manager.pods_known(self.left())
            await asyncio.gather(*workers)
            sweeper.cancel()

    async def run(self) -> None:
        """Runs until all pods have finished."""
        while len(self.over) < len(self.pods):
            life = asyncio.create_task(self.life())
            within = self.rng.uniform(0, UNTIL_DEATH) if self.now < FAULTS_END else None
            await asyncio.wait([life], timeout=within)
            if not life.done():
                life.cancel()
                self.deaths += 1
                await asyncio.gather(life, return_exceptions=True)
                self.node.start()
            else:
                life.result()
        for driver in self.node.by_name.values():
            assert driver.services.prepared == {}
        assert parse_checkpoint(self.node.path.read_text()) == []


@pytest.mark.parametrize("seed", range(SEEDS))
@on_virtual_time
async def test_history(tmp_path: Path, seed: int) -> None:
    story = Story(tmp_path, seed)
    await story.run()
    assert story.deaths
