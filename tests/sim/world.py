"""One simulated node and its cluster: everything around the agent, and the agent's lives."""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Callable
from pathlib import Path
from typing import cast

from kubeletpy.agent.agent import Agent
from kubeletpy.agent.build import build
from kubeletpy.agent.context import ApiClients, Machine, OfflineHost, Outside, Task
from kubeletpy.base.api.times import Moment
from kubeletpy.base.api.types import JSON
from kubeletpy.config import KubeletSettings, NodeFlags, default_settings
from kubeletpy.kubeapi.protocol import KubeApi
from kubeletpy.node.build import RuntimeInfo
from kubeletpy.node.facts import MachineFacts
from kubeletpy.resources.cgroups.setup import KernelFacts
from kubeletpy.resources.cgroups.tree import CgroupTree
from kubeletpy.resources.cgroups.values import CgroupDriver
from kubeletpy.runtime_manager.kube_runtime_manager import KubeRuntimeManager
from kubeletpy_up.registry.registry import Registry
from kubeletpy_up.storage.store import Store
from tests.kit.virtual_time import LoopClock, step_wall_clock
from tests.sim import convergence, scripts
from tests.sim.api import NODE, ApiServer, SimKubeApi
from tests.sim.claim_drivers import ClaimDriver, ClaimDriverCalls
from tests.sim.client import Connection, RuntimeClient
from tests.sim.csi_drivers import SimDriver
from tests.sim.csi_wire import SimDriverCalls, SimRegistrations
from tests.sim.devices import Devices
from tests.sim.emptiness import leftovers
from tests.sim.faults import Faults
from tests.sim.history import History, Violation
from tests.sim.invariants import Invariants
from tests.sim.kernel_cgroups import KernelCgroups
from tests.sim.loop import SimLoop, spawn
from tests.sim.mounts import NodeMounts
from tests.sim.pod_groups import GroupsOfOneLife, PodGroups
from tests.sim.pressure import SETTINGS, SightOfOneLife, Stores
from tests.sim.pressure_judge import PressureJudge
from tests.sim.runtime import SimRuntime
from tests.sim.storage import Storage
from tests.sim.truth import Truth
from tests.sim.user import User, pull_secret

DRIVERS = {"stager": True, "plain": False}
"""CSI drivers of a world with storage: one is attached and stages, one does neither and publishes
again now and then."""
CLAIM_DRIVERS = ("gpu.example", "nic.example")
"""DRA drivers of a world with claims."""
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
"""Called with (where, what, number) at each boundary of the agent's calls; may call World.die."""


class World:
    """Make it inside a SimLoop. ``root``: an empty directory of its own."""

    def __init__(
        self,
        seed: int,
        root: Path,
        *,
        events: bool = True,
        task_events: bool | None = None,
        static: bool = False,
        manifest_url: str = "",
        pod_groups: bool = False,
        cgroup_driver: CgroupDriver | None = None,
        storage: bool = False,
        pressure: bool = False,
        claims: bool = False,
        devices: bool = False,
        recorded: int = 0,
        api_on_node: bool = True,
        settings: JSON | None = None,
        flags: JSON | None = None,
    ) -> None:
        """``task_events``: a runtime without ``events`` reports exits, None: every other one, by
        its seed; ``recorded``: MiB of the agent's flight recorder; ``api_on_node``: the API server
        has the node's wall clock, also when it is set; ``cgroup_driver``: the agent's, on a machine
        with a cgroup file system (``kernel``), None: there is none; ``settings`` and ``flags``: of
        the agent, over those of every world."""
        self.settings = settings or {}
        self.flags = flags or {}
        self.seed = seed
        self.recorded = recorded
        self.manifest_url = manifest_url
        self.loop = cast(SimLoop, asyncio.get_running_loop())
        self.history = History(seed)
        self.groups = PodGroups(self.history) if pod_groups else None
        self.root = root
        self.kernel: KernelCgroups | None = None
        self._listeners: list[Callable[[bool], None]] = []
        """Listeners of the runtime's connection."""
        self.clock = LoopClock()
        """The node's wall clock, also that of the runtime."""
        api_clock = LoopClock(elsewhere=not api_on_node)
        self.runtime = SimRuntime(
            self.rng("runtime"),
            self.history,
            events=events,
            task_events=seed % 4 == 0 if task_events is None else task_events,
        )
        if cgroup_driver is not None:
            self.kernel = KernelCgroups(root / "cgroup", cgroup_driver, self.runtime)
        self.connection = Connection()
        self.registry = Registry(
            api_clock,
            Store(":memory:", api_clock),
            strict=True,
            signing_key=b"sim",
            rng=self.rng("registry"),
        )
        self.server = ApiServer(self.registry, self.rng("server"), self.history)
        self.truth = Truth()
        self.invariants = Invariants(self.truth, self.runtime, self.history, lambda: self.life)
        self._api_up_at = -math.inf
        self.registry.store.subscribe(self.invariants.api_changed)
        self.registry.store.subscribe(self._note_first_sight)
        self.user = User(self.registry, self.truth, self.history)
        self.user.create_secret(pull_secret())
        self.runtime_faults = Faults(self.rng("runtime faults"))
        self.api_faults = Faults(self.rng("api faults"))
        self.static_dir = root / "manifests" if static else None
        if self.static_dir is not None:
            self.static_dir.mkdir()
        self.storage: Storage | None = None
        self.drivers: dict[str, SimDriver] = {}
        """CSI drivers by name."""
        self.mounts = NodeMounts(self.drivers, self.runtime, self.history)
        if storage:
            self._make_storage()
        self.desired: dict[str, set[str]] = {}
        """Uid of a pod -> DRA drivers of whose devices its containers must have one."""
        self.claim_drivers: dict[str, ClaimDriver] = {}
        """DRA drivers by name."""
        for name in CLAIM_DRIVERS if claims else ():
            rng = self.rng(f"claim driver {name}")
            self.claim_drivers[name] = ClaimDriver(
                name, root, rng, self.history, runtime=self.runtime, desired=self.desired
            )
        self.stores: Stores | None = None
        self.judge: PressureJudge | None = None
        if pressure:
            self.stores = Stores(self.runtime, self.history, root, self.rng("layers"))
            self.judge = self._new_judge(self.stores)
        self.devices: Devices | None = None
        if devices:
            self.devices = Devices(root, self.rng("devices"), self.history, self.runtime)
            self.runtime.observers.append(self.devices.runtime_changed)
        self.boots = 1
        self.clock_trusted = True
        """Whether a battery-backed clock has set the node's wall clock."""
        self.life = 0
        self.alive = False
        self.steps = 0
        self.on_step: OnStep | None = None
        self.credentials: Callable[[KubeApi], list[Task]] = lambda api: []
        """The tasks that keep each agent's credentials valid."""
        self.agent: Agent | None = None
        self._main: asyncio.Task[None] | None = None
        self._deaths: list[asyncio.Task[None]] = []
        for name in scripts.ALL:
            for version in (1, 2):
                self.runtime.images[f"{scripts.LOCAL}/{name}:{version}"] = None

    def _make_storage(self) -> None:
        self.storage = Storage(self.registry, NODE, self.rng("storage"), self.history)
        self.server.storage = self.storage
        for name, stages in DRIVERS.items():
            self.storage.add_driver(name, attach=stages, requiresRepublish=not stages)
            self.drivers[name] = SimDriver(
                name,
                self.root,
                self.rng(f"driver {name}"),
                self.history,
                storage=self.storage,
                runtime=self.runtime,
                mounts=self.mounts,
                stages=stages,
            )
        self.storage.staged_on_node = self._is_staged
        spawn(self.storage.attach_volumes())

    def _is_staged(self, handle: str) -> bool:
        """Whether a volume is staged and can be identified; the agent cannot report others."""
        places = (driver.staged.get(handle) for driver in self.drivers.values())
        return any(at is not None and not self.mounts.is_damaged(at) for at in places)

    def rng(self, what: str) -> random.Random:
        """A source of chance of its own for each part, so that they do not disturb each other."""
        return random.Random(f"{self.seed} {what}")

    # -- the agent's lives -------------------------------------------------------------------

    def start(self) -> None:
        """Start the agent."""
        assert not self.alive, "one agent at a time"
        self.life += 1
        self.alive = True
        self.truth.began[self.life] = self.loop.time()
        self.history.note("agent", f"starts its life {self.life}")
        self._main = spawn(self._live(self.life), self.life, f"agent {self.life}")

    async def _live(self, life: int) -> None:
        try:
            flags = NodeFlags(
                root_dir=str(self.root / "kubelet"),
                device_plugins_dir=str(self.root / "device-plugins"),
                hostname_override=NODE,
                flight_recorder_mib=self.recorded,
                **self.flags,
            )
            self.agent = build(self._settings(), flags, self._outside(life))
            await self.agent.start()
            await self.agent.run()
        except Exception as error:
            self.history.violated(f"the agent died of {error!r}")
            raise

    def _settings(self) -> KubeletSettings:
        return default_settings(
            **{
                "cgroupsPerQOS": False,
                "enforceNodeAllocatable": [],
                "enableServer": False,
                "imageGCHighThresholdPercent": 100,
                "localStorageCapacityIsolation": False,
                "podLogsDir": str(self.root / "log" / "pods"),
                "resolvConf": "",
                "staticPodPath": str(self.static_dir or ""),
                "staticPodURL": self.manifest_url,
                **(SETTINGS if self.stores is not None else {}),
                **(self.devices.settings if self.devices is not None else {}),
                **self.settings,
            }
        )

    def _new_judge(self, stores: Stores) -> PressureJudge:
        judge = PressureJudge(
            stores, self.truth, self.runtime, self.history, lambda: self.life if self.alive else 0
        )
        self.invariants.evicts = judge.justifies
        self.invariants.answers_since = lambda: self._api_up_at
        self.registry.store.subscribe(judge.api_changed)
        return judge

    def _outside(self, life: int) -> Outside:
        step = self._stepper(life)
        self._listeners.clear()
        client = RuntimeClient(
            self.runtime, self.connection, self.runtime_faults, self.rng(f"client {life}"), step
        )
        (self.root / "kubelet").mkdir(exist_ok=True)
        api = SimKubeApi(self.server, self.api_faults, self.rng(f"api {life}"), step)
        sight = None
        if self.stores is not None and self.judge is not None:
            sight = SightOfOneLife(
                self.stores, step, life, looks=self.judge.tick, requested=self.judge.record_choice
            )
        return Outside(
            machine=Machine(
                FACTS,
                KernelFacts(apparmor=True),
                (NODE_IP,),
                cgroups=self._cgroups(step),
                container_logs_dir=str(self.root / "log" / "containers"),
                concurrent_starts=6,
                signals=sight,
                uses=sight,
                topology=self.devices.topology if self.devices is not None else None,
                booted_at=self.clock.now() - (self.loop.time() - self.truth.booted_at),
            ),
            runtime=client,
            images=client,
            task_exits=client.task_exits,
            runtime_info=RuntimeInfo("containerd", "2.2.0"),
            clock=self.clock,
            api=ApiClients(api, api, api, api),
            rng=self.rng(f"agent {life}"),
            credentials=self.credentials(api),
            sockets=False,
            plugins=SimRegistrations({**self.drivers, **self.claim_drivers}, step)
            if self.drivers or self.claim_drivers
            else None,
            claim_drivers=(
                lambda name, endpoint, version, health: ClaimDriverCalls(
                    self.claim_drivers[name], step
                )
            )
            if self.claim_drivers
            else None,
            driver_calls=(lambda name, endpoint: SimDriverCalls(self.drivers[name], step))
            if self.drivers
            else None,
            device_plugins=self.devices.open(step) if self.devices is not None else None,
            on_connection=self._listeners.append if self.kernel is not None else None,
            offline_host=OfflineHost(self._moment),
        )

    def _moment(self) -> Moment:
        since_boot = self.loop.time() - self.truth.booted_at
        return Moment(self.clock.now(), f"boot {self.boots}", since_boot, self.clock_trusted)

    def _cgroups(self, step: Callable[[str, str], None]) -> CgroupTree | GroupsOfOneLife | None:
        if self.kernel is not None:
            return self.kernel.tree()
        return GroupsOfOneLife(self.groups, step) if self.groups is not None else None

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
        """Wait until the dead agent's tasks have ended; no time passes."""
        while self._deaths:
            await self._deaths.pop()

    async def stop(self) -> None:
        """Stop the agent in peace, as SIGTERM does."""
        assert self._main is not None and self.alive
        self.history.note("agent", "receives SIGTERM")
        self._main.cancel()
        await asyncio.wait([self._main], timeout=STOP_WITHIN)
        if not self._main.done():
            self.history.violated(f"the agent did not stop within {STOP_WITHIN} s")
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
        under_way = self.agent.component(KubeRuntimeManager).mutations._under_way
        return {task for tasks in under_way.values() for task in tasks}

    # -- what happens around it --------------------------------------------------------------

    def reboot(self) -> None:
        """The machine goes down and comes back: files stay, mounts and processes do not.

        The agent and the drivers are to be started again.
        """
        self.die()
        self.history.note("world", "reboots")
        self.boots += 1
        self.truth.booted_at = self.loop.time()
        for container in self.runtime.running():
            self.runtime.kill_container(container, 255)
        for sandbox in list(self.runtime.sandboxes.values()):
            self.runtime.kill_sandbox(sandbox)
        self.mounts.reboot()

    def set_clock(self, seconds: float) -> None:
        """The node's wall clock is set, by so many seconds; elapsed time goes on."""
        self.history.note("world", f"sets the clock by {seconds:+.3f} s")
        self.truth.clock_set.append((self.loop.time(), seconds))
        step_wall_clock(seconds)

    def runtime_down(self) -> None:
        """The runtime's process dies; its containers go on."""
        self.history.note("runtime", "is down")
        self.connection.lose()
        for listener in self._listeners:
            listener(False)
        if self.runtime.reports is not None:
            self.runtime.reports.break_stream()

    def runtime_up(self) -> None:
        """Start the runtime's process again."""
        self.history.note("runtime", "is up")
        if self.runtime.reports is not None:
            self.runtime.reports.clear()
        self.connection.up = True
        for listener in self._listeners:
            listener(True)

    def api_down(self) -> None:
        """Make the API server unreachable."""
        self.history.note("api", "is down")
        self._api_up_at = math.inf
        self.server.up = False
        self.server.break_watches()

    def api_up(self) -> None:
        """Make the API server reachable again."""
        self.history.note("api", "is up")
        if self._api_up_at == math.inf:
            self._api_up_at = asyncio.get_running_loop().time()
        self.server.up = True

    def heal(self) -> None:
        """End all faults and outages."""
        self.history.note("world", "heals")
        self.runtime_faults.heal()
        self.api_faults.heal()
        self.runtime.network_ready = self.runtime.registry_up = True
        self.server.watch_lag = self.server.graph_delay = 0.0
        self.server.removed = False
        if self.runtime.reports is not None:
            self.runtime.reports.lose = 0.0
        if not self.connection.up:
            self.runtime_up()
        if not self.server.up:
            self.api_up()
        for driver in self.drivers.values():
            driver.heal()
        for claim_driver in self.claim_drivers.values():
            claim_driver.heal()

    # -- judging -----------------------------------------------------------------------------

    def problems(self) -> list[str]:
        """The differences that must not remain in the long run."""
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
        """Everything left in the runtime and in the agent after all pods were removed."""
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
