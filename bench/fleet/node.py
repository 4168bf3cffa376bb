"""One node of a fleet: a complete agent, its runtime, and its part of the API's objects."""

from __future__ import annotations

import asyncio
import random
from itertools import count
from pathlib import Path
from typing import Any, cast

from bench.fleet.server import FleetServer
from bench.fleet.wire import FleetWire
from kubeletpy.agent.build import build
from kubeletpy.agent.context import Machine, Outside
from kubeletpy.agent.launch.start import api_clients
from kubeletpy.base.api.types import JSON
from kubeletpy.base.structs import replace
from kubeletpy.config import NodeFlags, default_settings
from kubeletpy.kubeapi.client import KubeClient
from kubeletpy.kubeapi.kubeconfig import Connection as Credentials
from kubeletpy.node.build import RuntimeInfo
from kubeletpy.resources.cgroups.setup import KernelFacts
from kubeletpy_up.registry.registry import Registry
from kubeletpy_up.requests import ADMIN, DeleteOptions
from kubeletpy_up.storage.store import Store
from tests.sim import scripts
from tests.sim.client import Connection, RuntimeClient
from tests.sim.faults import Faults
from tests.sim.history import History
from tests.sim.loop import SimLoop, spawn
from tests.sim.runtime import SimRuntime
from tests.sim.world import FACTS
from tests.virtual_time import LoopClock

STOP_WITHIN_S = 5.0
IMAGE = f"{scripts.LOCAL}/run:1"
_lives = count(1)


class _Silence(History):
    """A history that records nothing."""

    def note(self, who: str, what: str) -> None:
        """Discard the entry."""


class FleetNode:
    """A node that can be started, stopped and given pods. ``root``: a directory of its own."""

    def __init__(self, name: str, server: FleetServer, root: Path, seed: int) -> None:
        self.name = name
        self._server = server
        self._root = root
        self._seed = seed
        self._life = 0
        self._main: asyncio.Task[None] | None = None
        self._clock = LoopClock()
        rng = self._rng("runtime")
        self.runtime = SimRuntime(rng, _Silence(), events=True)
        self.runtime.images[IMAGE] = None
        self._connection = Connection()
        store = Store(":memory:", self._clock, history_count=200, history_bytes=128 << 10)
        self.registry = Registry(
            self._clock,
            store,
            strict=False,
            service_account_volumes=True,
            signing_key=b"fleet",
            root_ca="-----BEGIN CERTIFICATE-----",
            rng=self._rng("registry"),
        )
        server.registries[name] = self.registry

    def _rng(self, what: str) -> random.Random:
        return random.Random(f"{self._seed} {self.name} {what}")

    def start(self) -> None:
        """Start the agent."""
        self._life = next(_lives)
        self._main = spawn(self._live(), self._life, f"agent of {self.name}")

    async def _live(self) -> None:
        (self._root / "kubelet").mkdir(parents=True, exist_ok=True)
        flags = NodeFlags(
            root_dir=str(self._root / "kubelet"),
            hostname_override=self.name,
            flight_recorder_mib=0,  # it costs the API server nothing, and a fleet's disk much
        )
        settings = default_settings(
            cgroupsPerQOS=False,
            enforceNodeAllocatable=[],
            enableServer=False,
            imageGCHighThresholdPercent=100,
            localStorageCapacityIsolation=False,
            podLogsDir=str(self._root / "log" / "pods"),
            resolvConf="",
        )
        client = KubeClient(
            Credentials("https://api.fleet:6443"),
            qps=settings.kube_api_qps,
            burst=settings.kube_api_burst,
            open_transport=lambda _: FleetWire(self._server, self.name),
        )
        cri = RuntimeClient(
            self.runtime,
            self._connection,
            Faults(self._rng("faults")),
            self._rng(f"cri {self._life}"),
            self._step(self._life),
        )
        outside = Outside(
            machine=Machine(
                replace(FACTS, hostname=self.name),
                KernelFacts(apparmor=True),
                ("192.0.2.10",),
                container_logs_dir=str(self._root / "log" / "containers"),
                concurrent_starts=8,
            ),
            runtime=cri,
            images=cri,
            runtime_info=RuntimeInfo("containerd", "2.2.0"),
            clock=self._clock,
            api=api_clients(settings, client),
            rng=self._rng(f"agent {self._life}"),
            sockets=False,
        )
        agent = build(settings, flags, outside)
        await agent.start()
        await agent.run()

    def _step(self, life: int) -> Any:
        def step(where: str, what: str) -> None:
            if life != self._life:
                raise asyncio.CancelledError

        return step

    async def stop(self) -> None:
        """Stop the agent as SIGTERM does; its containers continue."""
        assert self._main is not None
        self._main.cancel()
        await asyncio.wait([self._main], timeout=STOP_WITHIN_S)
        life, self._life = self._life, 0
        await cast(SimLoop, asyncio.get_running_loop()).kill(life)

    def create_pod(self, name: str) -> None:
        """A pod bound to this node, as its deployment and the scheduler make it."""
        self.registry.create(ADMIN, "pods", _pod(name, self.name), "default")

    def delete_pods(self) -> None:
        """Delete all pods, with a grace period."""
        for name in self.pods():
            self.registry.delete(ADMIN, "pods", name, "default", DeleteOptions())

    def pods(self) -> list[str]:
        """The names of its pods."""
        return [name for (_, name), _ in self.registry.store.entries("pods")]

    def ready_pods(self) -> int:
        """How many of its pods the API shows as Ready."""
        entries = self.registry.store.entries("pods")
        return sum(_is_true(entry.object, "Ready") for _, entry in entries)

    @property
    def ready(self) -> bool:
        """Whether the API shows the node as Ready."""
        entry = self.registry.store.get("nodes", "", self.name)
        return entry is not None and _is_true(entry.object, "Ready")


def _is_true(obj: JSON, kind: str) -> bool:
    conditions = obj.get("status", {}).get("conditions") or ()
    return any(each["type"] == kind and each["status"] == "True" for each in conditions)


def _pod(name: str, node: str) -> JSON:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "nodeName": node,
            "terminationGracePeriodSeconds": 5,
            "containers": [{"name": "main", "image": IMAGE}],
        },
    }
