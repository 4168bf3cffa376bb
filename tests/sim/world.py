"""One simulated node and its cluster: everything around the agent, and the agent's lives."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from pathlib import Path
from typing import cast

from kubeletpy.agent import Agent
from kubeletpy.images.gc_selection import ImageGCPolicy
from kubeletpy.node.build import RuntimeInfo
from kubeletpy.node.facts import MachineFacts
from kubeletpy.node.options import NodeOptions
from kubeletpy.parts import AgentParts, StaticPods
from kubeletpy.runtime_manager.config.settings import RuntimeSettings
from kubeletpy.volumes.build import PodSurroundings
from kubeletpy_up.registry.registry import Registry
from kubeletpy_up.storage.store import Store
from tests.sim import convergence, scripts
from tests.sim.api import NODE, ApiServer, SimKubeApi
from tests.sim.client import Connection, RuntimeClient
from tests.sim.emptiness import leftovers
from tests.sim.faults import Faults
from tests.sim.history import History, Violation
from tests.sim.images import pull_records
from tests.sim.invariants import Invariants
from tests.sim.loop import SimLoop, spawn
from tests.sim.more_parts import with_groups, with_volumes
from tests.sim.pod_groups import PodGroups
from tests.sim.runtime import SimRuntime
from tests.sim.truth import Truth
from tests.sim.user import User, pull_secret
from tests.virtual_time import LoopClock

NODE_IP = "192.0.2.10"
STOP_WITHIN = 5.0
FACTS = MachineFacts(
    hostname=NODE,
    architecture="amd64",
    kernel_version="6.1.0",
    os_image="Simulated",
    machine_id="m",
    system_uuid="u",
    boot_id="b",
    cpu_count=4,
    memory_bytes=8 << 30,
    swap_bytes=0,
    root_storage_bytes=100 << 30,
)

OnStep = Callable[[str, str, int], None]
"""Told (where, what, number) at each boundary of the agent's calls; may call World.die."""


class World:
    """Make it inside a SimLoop. ``root``: an empty directory of its own."""

    def __init__(
        self,
        seed: int,
        root: Path,
        *,
        events: bool = True,
        static: bool = False,
        manifest_url: str = "",
        volumes: bool = False,
        pod_groups: bool = False,
    ) -> None:
        self.seed = seed
        self.manifest_url = manifest_url
        self.has_volumes = volumes
        self.loop = cast(SimLoop, asyncio.get_running_loop())
        self.history = History(seed)
        self.groups = PodGroups(self.history) if pod_groups else None
        self.root = root
        self.clock = LoopClock()
        self.runtime = SimRuntime(self.rng("runtime"), self.history, events=events)
        self.connection = Connection()
        self.registry = Registry(
            self.clock,
            Store(":memory:", self.clock),
            strict=True,
            signing_key=b"sim",
            rng=self.rng("registry"),
        )
        self.server = ApiServer(self.registry, self.rng("server"), self.history)
        self.truth = Truth()
        self.invariants = Invariants(self.truth, self.runtime, self.history, lambda: self.life)
        self.registry.store.subscribe(self.invariants.api_changed)
        self.registry.store.subscribe(self._note_first_sight)
        self.user = User(self.registry, self.truth, self.history)
        self.user.create_secret(pull_secret())
        self.runtime_faults = Faults(self.rng("runtime faults"))
        self.api_faults = Faults(self.rng("api faults"))
        self.static_dir = root / "manifests" if static else None
        if self.static_dir is not None:
            self.static_dir.mkdir()
        self.life = 0
        self.alive = False
        self.steps = 0
        self.on_step: OnStep | None = None
        self.prepare: Callable[[Agent], None] = lambda agent: None
        """Told each agent before it runs."""
        self.agent: Agent | None = None
        self._surroundings: PodSurroundings | None = None
        self._main: asyncio.Task[None] | None = None
        self._deaths: list[asyncio.Task[None]] = []
        for name in scripts.ALL:
            for version in (1, 2):
                self.runtime.images[f"{scripts.LOCAL}/{name}:{version}"] = None

    def rng(self, what: str) -> random.Random:
        """A source of chance of its own for each part, so that they do not disturb each other."""
        return random.Random(f"{self.seed} {what}")

    # -- the agent's lives -------------------------------------------------------------------

    def start(self) -> None:
        """Start the agent."""
        assert not self.alive, "one agent at a time"
        self.life += 1
        self.alive = True
        self.history.note("agent", f"starts its life {self.life}")
        self._main = spawn(self._live(self.life), self.life, f"agent {self.life}")

    async def _live(self, life: int) -> None:
        try:
            self.agent = Agent(self._parts(life))
            self.prepare(self.agent)
            await self.agent.run()
        except Exception as error:
            self.history.violated(f"the agent died of {error!r}")
            raise

    def _parts(self, life: int) -> AgentParts:
        step = self._stepper(life)
        client = RuntimeClient(
            self.runtime, self.connection, self.runtime_faults, self.rng(f"client {life}"), step
        )
        root, logs = self.root / "kubelet", self.root / "log"
        root.mkdir(exist_ok=True)
        parts = AgentParts(
            runtime=client,
            images=client,
            clock=self.clock,
            root_dir=root,
            node=NodeOptions(name=NODE),
            facts=FACTS,
            node_ips=(NODE_IP,),
            runtime_info=RuntimeInfo("containerd", "2.1.0"),
            kube_api=SimKubeApi(self.server, self.api_faults, self.rng(f"api {life}"), step),
            runtime_settings=RuntimeSettings(
                pod_logs_dir=str(logs / "pods"), container_logs_dir=str(logs / "containers")
            ),
            image_gc=ImageGCPolicy(high_threshold_percent=100),
            pull_records=pull_records(root, self.clock, client),
            static_pods=StaticPods(str(self.static_dir or ""), self.manifest_url),
            concurrent_starts=6,
            rng=self.rng(f"agent {life}"),
        )
        if self.groups is not None:
            parts = with_groups(parts, self.groups, step)
        if self.has_volumes:
            parts, self._surroundings = with_volumes(parts, self.rng(f"surroundings {life}"))
        return parts

    def _stepper(self, life: int) -> Callable[[str, str], None]:
        def step(where: str, what: str) -> None:
            if life != self.life or not self.alive:
                raise asyncio.CancelledError
            if where == "check":
                return
            self.steps += 1
            if self.on_step is not None:
                self.on_step(where, what, self.steps)
                if not self.alive:
                    raise asyncio.CancelledError

        return step

    def die(self) -> None:
        """The agent is killed, now, from wherever this is called."""
        if not self.alive:
            return
        self.alive = False
        self.history.note("agent", "is killed")
        self._deaths.append(spawn(self.loop.kill(self.life)))

    async def kill(self) -> None:
        """Kill the agent and see that nothing of it is left."""
        self.die()
        await self.buried()

    async def buried(self) -> None:
        """Wait until the dead agent's tasks are gone; no time passes."""
        while self._deaths:
            await self._deaths.pop()

    async def stop(self) -> None:
        """Stop the agent in peace, as SIGTERM does."""
        assert self._main is not None and self.alive
        self.history.note("agent", "is asked to stop")
        self._main.cancel()
        await asyncio.wait([self._main], timeout=STOP_WITHIN)
        if not self._main.done():
            self.history.violated(f"the agent did not stop within {STOP_WITHIN} s")
        if self._surroundings is not None:
            await self._surroundings.close()
        await asyncio.sleep(0)
        self.alive = False
        given_up = self._calls_under_way()
        left = [task for task in self.loop.tasks_of(self.life) if task not in given_up]
        timers = self.loop.timers_of(self.life)
        if left or (timers and not given_up):
            self.history.violated(f"left behind by the stopped agent: {left} {timers}")
        await self.loop.kill(self.life)

    def _calls_under_way(self) -> set[asyncio.Task[object]]:
        """Changes that the runtime did not end in time: the process ends without their answers."""
        assert self.agent is not None
        under_way = self.agent.runtime._tools.mutations._under_way
        return {task for tasks in under_way.values() for task in tasks}

    # -- what happens around it --------------------------------------------------------------

    def runtime_down(self) -> None:
        """The runtime's process dies; its containers go on."""
        self.history.note("runtime", "is down")
        self.connection.lose()
        if self.runtime.events is not None:
            self.runtime.events.break_stream()

    def runtime_up(self) -> None:
        """The runtime is back."""
        self.history.note("runtime", "is up")
        if self.runtime.events is not None:
            self.runtime.events.clear()
        self.connection.up = True

    def api_down(self) -> None:
        """Nobody reaches the API."""
        self.history.note("api", "is down")
        self.server.up = False
        self.server.break_watches()

    def api_up(self) -> None:
        """The API is back."""
        self.history.note("api", "is up")
        self.server.up = True

    def heal(self) -> None:
        """Nothing goes wrong from now on."""
        self.history.note("world", "heals")
        self.runtime_faults.heal()
        self.api_faults.heal()
        self.runtime.network_ready = self.runtime.registry_up = True
        self.server.watch_lag = self.server.graph_delay = 0.0
        self.server.gone = False
        if self.runtime.events is not None:
            self.runtime.events.lose = 0.0
        if not self.connection.up:
            self.runtime_up()
        if not self.server.up:
            self.api_up()

    # -- judging -----------------------------------------------------------------------------

    def problems(self) -> list[str]:
        """What is not as it should be in the long run."""
        generations = {
            obj["metadata"]["uid"]: obj["metadata"].get("generation", 0) for obj in self.user.pods()
        }
        return convergence.problems(self.truth, self.runtime, generations)

    async def converges(self, within: float, what: Callable[[], list[str]] | None = None) -> float:
        """Wait until nothing is wrong any more; the seconds it took.

        Raises Violation when that takes too long, or when an invariant was broken meanwhile.
        """
        what = what or self.problems
        started = self.loop.time()
        pause = 0.05
        while found := what():
            self.history.check()
            if self.loop.time() - started > within:
                raise Violation(self.history.report([f"not converged in {within} s", *found]))
            await asyncio.sleep(pause)
            pause = min(pause * 1.5, 5.0)
        self.history.check()
        return self.loop.time() - started

    def remains(self) -> list[str]:
        """What is left in the runtime and in the agent when all pods are gone."""
        found = [f"pod {obj['metadata']['name']}" for obj in self.user.pods()]
        found += [f"sandbox {sandbox.id}" for sandbox in self.runtime.sandboxes.values()]
        found += [f"container {container}" for container in self.runtime.containers.values()]
        if self.agent is not None and not found:
            found += leftovers(self.agent, self.loop, self.life)
        return found

    def _note_first_sight(self, change: object) -> None:
        obj = getattr(change, "object", {})
        if getattr(change, "resource", "") == "pods":
            self.server.first_seen.setdefault(obj["metadata"]["uid"], self.loop.time())
