"""Device plugins and a NUMA machine of a simulated node, and what must never happen to them.

A plugin registers with each agent by itself, as real ones do when kubelet.sock is made anew. It
dies, restarts, reports devices as unhealthy, and hangs. It gives each container a variable with its
devices.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from kubeletpy.agent.agent import Agent
from kubeletpy.base.api.types import JSON
from kubeletpy.remote.plugin_calls import PluginCalls
from kubeletpy.resources.devices.device_manager import DeviceManager
from kubeletpy.resources.devices.model import RegistrationRefused
from kubeletpy.resources.placement.machine import MachineTopology, read_machine
from kubeletpy.resources.placement.model import parse_ids
from tests.kit.devices import SimPlugin
from tests.kit.machines import machine, write_sysfs
from tests.sim.history import History
from tests.sim.loop import spawn
from tests.sim.records import Container
from tests.sim.runtime import SimRuntime

GPU = "vendor.example/gpu"
OWN = "own"
"""A container of this name has CPUs for itself, as many as it requests."""
SHARER = "sharer"
"""The container that has what the others leave of its pod's pool of CPUs."""
SHAPES: tuple[JSON, ...] = (
    {},
    {"sockets": 2, "cores": 4},
    {"sockets": 2, "nodes": 2, "cores": 2, "threads": 2},
    {"sockets": 2, "nodes": 4, "cores": 2, "threads": 2, "caches": 1},
)
"""Machines with 1, 2, 4 and 8 NUMA nodes."""
POLICIES = ("none", "best-effort", "restricted", "single-numa-node")


class Devices:
    """Make it inside a SimLoop, with a world."""

    def __init__(
        self, root: Path, rng: random.Random, history: History, runtime: SimRuntime
    ) -> None:
        self._rng, self._history, self._runtime = rng, history, runtime
        shape = machine(**rng.choice(SHAPES))
        write_sysfs(root / "sys", shape)
        (root / "device-plugins").mkdir()
        self.topology: MachineTopology = read_machine(root / "sys")
        nodes = sorted(self.topology.nodes)
        self.all = {f"d{n}": nodes[n % len(nodes)] for n in range(6)}
        self.plugin: SimPlugin | None = None
        self.sockets: dict[str, SimPlugin] = {}
        self._registered: tuple[object, object] | None = None
        self.settings: JSON = {
            "cpuManagerPolicy": "static",
            "reservedSystemCPUs": "0",
            "topologyManagerPolicy": rng.choice(POLICIES),
            "topologyManagerScope": rng.choice(("container", "pod")),
            "cpuManagerReconcilePeriod": "10s",
            "featureGates": {"PodLevelResourceManagers": True},
        }
        self.comes()

    def open(self, step: Callable[[str, str], None]) -> Callable[[str, str], PluginCalls]:
        """One life's way to the plugins."""
        return lambda socket, resource: cast(
            PluginCalls, _Calls(cast(Any, self.sockets[socket]), step)
        )

    # -- the plugin's life ---------------------------------------------------------------------

    def comes(self) -> None:
        """Start a new process of the plugin, with all devices healthy; the previous one dies."""
        self.goes()
        self.plugin = SimPlugin(*self.all, nodes=self.all, pre_start=True)
        self.sockets[f"socket{len(self.sockets)}"] = self.plugin

    def goes(self) -> None:
        """End the plugin's process."""
        if self.plugin is not None:
            self.plugin.die()
            self.plugin = None

    async def keep_registering(self, agent: Callable[[], tuple[Agent | None, int]]) -> None:
        """Register the plugin with each agent; ``agent`` returns the living one and its life."""
        while True:
            await asyncio.sleep(0.5)
            plugin, (living, life) = self.plugin, agent()
            if plugin is None or living is None or (plugin, living) == self._registered:
                continue
            socket = next(name for name, each in self.sockets.items() if each is plugin)
            requests = living.component(DeviceManager).plugins.register(GPU, socket)
            task = spawn(requests, life)
            await asyncio.wait([task])
            problem = asyncio.CancelledError() if task.cancelled() else task.exception()
            if problem is None:
                self._registered = (plugin, living)
            elif not isinstance(problem, RegistrationRefused | asyncio.CancelledError):
                self._history.violated(f"registration ended with {problem!r}")

    def upset(self) -> None:
        """Make the plugin fail at random, or restart it healthy."""
        plugin = self.plugin
        match self._rng.randrange(5):
            case 0:
                self.goes()
            case 1:
                self.comes()
            case 2 if plugin is not None:
                plugin.now(**{each: self._rng.choice(("Healthy", "Sick")) for each in self.all})
            case 3 if plugin is not None:
                plugin.faults["Allocate"] = lambda: asyncio.sleep(self._rng.random() * 400)
            case _:
                self.comes()

    # -- what must never happen ----------------------------------------------------------------

    def runtime_changed(self, what: str, whom: object) -> None:
        """Check that no device and no exclusive CPU is used by two running containers."""
        scope, policy = (self.settings[f"topologyManager{key}"] for key in ("Scope", "Policy"))
        pools = scope == "pod" and policy != "none"
        owners = (OWN, SHARER) if pools else (OWN,)
        devices: dict[str, str] = {}
        cpus: dict[int, str] = {}
        for container in self._runtime.running():
            for each in supplied(container):
                self._one(devices, each, container)
            if container.config.metadata.name in owners:
                for cpu in parse_ids(container.config.linux.resources.cpuset_cpus):
                    self._one(cpus, cpu, container)

    def _one(self, taken: dict[Any, str], what: Any, container: Container) -> None:
        other = taken.setdefault(what, container.id)
        if other != container.id:
            self._history.violated(f"{what} is given to {other} and to {container.id}")


class _Calls:
    """Calls to a device plugin; each call and answer is a step of the agent's life."""

    def __init__(self, plugin: Any, step: Callable[[str, str], None]) -> None:
        self._plugin = plugin
        self._step = step

    def __getattr__(self, name: str) -> Any:
        return getattr(self._plugin, name)

    async def call(self, method: str, *arguments: Any, **more: Any) -> Any:
        self._step("call", f"{method} of a device plugin")
        answer = await self._plugin.call(method, *arguments, **more)
        self._step("answer", f"{method} of a device plugin")
        return answer


def supplied(container: Container) -> list[str]:
    """Devices of a container."""
    found = [env.value.decode() for env in container.config.envs if env.key == "DEVICES"]
    return [each for text in found for each in text.split(",")]
