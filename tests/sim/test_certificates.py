"""A client certificate that lives for half an hour, under an agent that has a lot to do."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from kubeletpy.agent.context import Task
from kubeletpy.base.host import x509
from kubeletpy.base.host.files import KeyPair
from kubeletpy.kubeapi.protocol import KubeApi
from kubeletpy.node.certificates import request
from kubeletpy.node.certificates.certificate_manager import CertificateManager, Purpose
from kubeletpy.node.certificates.store import KEPT, CertificateStore, repair_link
from kubeletpy_up.controllers.csr_controller import CertificateController
from tests.sim.api import NODE
from tests.sim.faults import FaultRates
from tests.sim.loop import run
from tests.sim.test_scenarios import EMPTY_WITHIN, until
from tests.sim.user import RandomUser
from tests.sim.world import World

LIFE_S = 1800.0
"""A tenth of it is more than an outage, a call that hangs and a backoff together."""
CALM_S = LIFE_S * 0.7
"""Until then no certificate is renewed."""


class Cluster:
    """Signs for the world's node, and sees that the agent never comes without a certificate."""

    def __init__(self, world: World, root: Path) -> None:
        self.world = world
        self.lives: list[float] = []
        self.manager: CertificateManager | None = None
        authority = KeyPair.named(root, "ca")
        x509.make_authority(authority, "sim")
        self.signer = CertificateController(world.registry, authority, LIFE_S)
        self.signer.start()
        self.pki = root / "pki"
        self.late = 0
        """Calls of the API while the certificate had ended."""
        world.credentials = self.credentials

    def credentials(self, api: KubeApi) -> list[Task]:
        """The task that keeps an agent's certificate valid, as a node that joins has."""
        world = self.world

        @asynccontextmanager
        async def connect(valid: bool) -> AsyncIterator[KubeApi]:
            yield api

        store = CertificateStore(self.pki, "kubelet-client")
        manager = CertificateManager(
            Purpose("client", request.CLIENT_SIGNER, vital=True, replaced=self.lives.append),
            store,
            world.clock,
            names=lambda: request.client_names(NODE),
            api=connect,
            rng=random.Random(world.life),
        )

        async def keep() -> None:
            await repair_link(store, world.clock.now())
            await manager.load()
            self.manager = manager
            await manager.run()

        return [Task("client-certificate", keep)]

    def watch_calls(self) -> None:
        """Count each step of the agent that a certificate is missing for."""

        def on_step(where: str, what: str, number: int) -> None:
            if self.manager is not None and self.manager.current is None:
                self.late += 1

        self.world.on_step = on_step

    def dated(self) -> list[Path]:
        """Certificates on disk, oldest first."""
        return sorted(file for file in self.pki.glob("*-2*.pem") if not file.is_symlink())


async def load(world: World, user: RandomUser, seconds: float) -> None:
    """Make, change and delete pods for so many seconds."""
    until = world.loop.time() + seconds
    while world.loop.time() < until:
        user.act(8)
        await asyncio.sleep(30.0)


def test_rotation_under_load_with_faults_outages_and_kills(tmp_path: Path) -> None:
    async def main() -> None:
        world = World(3, tmp_path)
        cluster = Cluster(world, tmp_path)
        world.start()
        await asyncio.sleep(10)
        cluster.watch_calls()
        user = RandomUser(world.user, world.rng("user"))
        world.api_faults.rates = FaultRates(slow=0.05, before=0.05, after=0.03, hang=0.01)
        world.runtime_faults.rates = FaultRates(slow=0.05, before=0.03, after=0.02)
        for lap in range(4):
            await load(world, user, CALM_S - 30)
            world.api_down()  # just as the certificate is due for renewal
            await load(world, user, 60)
            world.api_up()
            if lap % 2:
                await load(world, user, 5)
                await world.kill()
                await asyncio.sleep(5)
                world.start()
        world.heal()
        await world.converges(900)
        assert cluster.late == 0, "it was renewed in time, each time"
        assert len(cluster.lives) >= 2, "renewals that an agent saw from their beginning"
        assert all(life < LIFE_S for life in cluster.lives)
        assert len(cluster.dated()) <= KEPT
        assert not (cluster.pki / "kubelet-client.key.tmp").exists()
        await finish(world, cluster)

    run(main())


def test_power_lost_while_the_certificate_is_written(tmp_path: Path) -> None:
    """The newest file is empty after it: the agent goes on with the one before."""

    async def main() -> None:
        world = World(4, tmp_path)
        cluster = Cluster(world, tmp_path)
        world.start()
        await until(world, lambda: len(cluster.dated()) == 2, LIFE_S)
        await world.kill()
        older, newest = cluster.dated()
        newest.write_bytes(b"")
        world.api_down()
        cluster.manager = None
        world.start()
        await asyncio.sleep(10)
        assert (cluster.pki / "kubelet-client-current.pem").resolve() == older.resolve()
        assert cluster.manager is not None
        assert cluster.manager.current is not None
        world.api_up()
        await asyncio.sleep(LIFE_S)
        assert cluster.manager.current is not None
        assert older != cluster.dated()[-1] != newest
        await finish(world, cluster)

    run(main())


async def finish(world: World, cluster: Cluster) -> None:
    """Take everything away and see that nothing is left."""
    world.on_step = None
    for obj in world.user.pods():
        world.user.delete(obj["metadata"]["name"])
    await world.converges(EMPTY_WITHIN, lambda: [p for p in world.remains() if "tasks" not in p])
    await world.stop()
    await cluster.signer.stop()
    world.history.check()
