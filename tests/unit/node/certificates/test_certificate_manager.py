"""A certificate over its life, on virtual time: renewed early enough, whatever the cluster does."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast

import pytest

from kubeletpy.base.api.types import JSON
from kubeletpy.base.host.pki import Names
from kubeletpy.kubeapi.errors import Unauthorized
from kubeletpy.kubeapi.protocol import KubeApi
from kubeletpy.node.certificates import request
from kubeletpy.node.certificates.certificate_manager import (
    WAIT_S,
    CertificateLost,
    CertificateManager,
    Purpose,
)
from kubeletpy.node.certificates.request import CLIENT_LOST_S
from kubeletpy.node.certificates.store import CertificateStore
from tests.kit.certificates import CsrApi, Signer

pytestmark = pytest.mark.virtual_time

START = 1_800_000_000
HOUR = 3600.0


class LoopClock:
    """The time of day follows the loop; ``ahead``: seconds by which it was set since."""

    ahead = 0.0

    def now(self) -> float:
        return START + self.ahead + asyncio.get_running_loop().time()


class World:
    """A manager, its cluster, and the failures it reported."""

    def __init__(self, directory: Path, *, life: float = HOUR, vital: bool = True) -> None:
        self.api = CsrApi()
        self.clock = LoopClock()
        self.signer = Signer(directory)
        self.life = life
        self.names: Names | None = request.client_names("n")
        self.failures = 0
        self.lives: list[float] = []
        self.valid: list[bool] = []
        self.changes = 0
        self.store = CertificateStore(directory / "pki", "kubelet-client")
        purpose = Purpose(
            "client",
            request.CLIENT_SIGNER,
            vital=vital,
            first_prefix="node-csr-",
            failed=self._failed,
            replaced=self.lives.append,
        )
        self.manager = CertificateManager(
            purpose,
            self.store,
            self.clock,
            names=lambda: self.names,
            api=self._open_api,
            on_change=self._changed,
            rng=random.Random(1),
        )

    @asynccontextmanager
    async def _open_api(self, valid: bool) -> AsyncIterator[KubeApi]:
        self.valid.append(valid)
        yield cast(KubeApi, self.api)

    async def _changed(self) -> None:
        self.changes += 1

    def _failed(self) -> None:
        self.failures += 1

    def sign(self, found: JSON) -> None:
        """Approve and sign at once."""
        self.api.answer(self.signer.answer(found, self.clock.now(), self.life))

    def deny(self, found: JSON) -> None:
        condition = {"type": "Denied", "status": "True", "reason": "No", "message": "not you"}
        self.api.answer({**found, "status": {"conditions": [condition]}})

    def pending(self) -> JSON:
        """The request that was made last, as it is now."""
        return self.api.requests[self.api.created[-1]]

    @asynccontextmanager
    async def running(self) -> AsyncIterator[asyncio.Task[None]]:
        await self.manager.load()
        task = asyncio.create_task(self.manager.run())
        try:
            yield task
        finally:
            task.cancel()
            await asyncio.wait([task])


async def test_renewed_at_seventy_to_ninety_percent_each_time(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.api.decide = world.sign
    async with world.running():
        await asyncio.sleep(1)
        for _ in range(100):
            assert world.manager.current is not None
            await asyncio.sleep(HOUR / 10)
    assert len(world.lives) >= 10
    assert all(0.7 * HOUR <= life <= 0.9 * HOUR + 5 for life in world.lives)
    assert world.valid == [False, *[True] * len(world.lives)]
    assert world.changes == len(world.api.created) == len(set(world.api.created))
    assert [name.startswith("node-csr-") for name in world.api.created[:2]] == [True, False]
    assert not world.store.key_path.exists()


async def test_a_clock_that_is_set_ahead_is_noticed_within_a_minute(tmp_path: Path) -> None:
    world = World(tmp_path, life=1000 * HOUR)
    world.api.decide = world.sign
    async with world.running():
        await asyncio.sleep(60)
        world.clock.ahead = 2000 * HOUR
        assert world.manager.current is None
        await asyncio.sleep(65)
        assert world.manager.current is not None
    assert len(world.api.created) == 2


async def test_an_unreachable_api_only_delays_renewal(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.api.decide = world.sign
    async with world.running():
        await asyncio.sleep(0.6 * HOUR)
        first = world.manager.current
        world.api.down()
        await asyncio.sleep(0.35 * HOUR)
        assert world.manager.current == first
        assert world.failures > 3
        world.api.error = None
        await asyncio.sleep(60)
        assert world.manager.current not in (first, None)


async def test_late_approval(tmp_path: Path) -> None:
    world = World(tmp_path)
    async with world.running():
        await asyncio.sleep(WAIT_S - 60)
        assert world.failures == 0
        await asyncio.sleep(3 * WAIT_S)
        # each retry found the same request: the administrator sees one
        assert world.failures >= 3
        assert len(world.api.created) == 1
        world.sign(world.pending())
        await asyncio.sleep(40)
        assert world.manager.current is not None


async def test_a_denial_is_reported_and_another_key_is_tried(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    world = World(tmp_path)
    world.api.decide = world.deny
    async with world.running():
        with caplog.at_level(logging.WARNING):
            await asyncio.sleep(1)
        first = world.api.created[0]
        (record,) = caplog.records
        assert first in vars(record)["why"]
        assert "No: not you" in vars(record)["why"]
        key = world.pending()["spec"]["request"]
        await asyncio.sleep(300)
        # the backoff is bounded in both directions
        assert 8 <= len(world.api.created) <= 16
        assert world.pending()["spec"]["request"] != key
        world.api.decide = world.sign
        await asyncio.sleep(40)
        assert world.manager.current is not None


async def test_a_request_that_is_deleted_is_made_again(tmp_path: Path) -> None:
    world = World(tmp_path)
    async with world.running():
        await asyncio.sleep(1)
        world.api.remove(world.api.created[0])
        await asyncio.sleep(5)
        assert world.api.created == [world.api.created[0]] * 2


async def test_changed_names_make_a_new_request(tmp_path: Path) -> None:
    world = World(tmp_path)
    async with world.running():
        await asyncio.sleep(1)
        world.names = Names("system:node:n", ("system:nodes",), ("n",), ("10.0.0.1",))
        world.manager.poke()
        await asyncio.sleep(1)
        assert len(world.api.created) == 2
        world.sign(world.pending())
        await asyncio.sleep(1)
        current = world.manager.current
        assert current is not None
        assert current.certificate.names.ip_addresses == ("10.0.0.1",)
        # fewer names are fine with the current certificate
        world.names = request.client_names("n")
        world.manager.poke()
        await asyncio.sleep(60)
        assert len(world.api.created) == 2


async def test_without_names_no_request_is_made(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.names = None
    world.api.decide = world.sign
    async with world.running():
        await asyncio.sleep(HOUR)
        assert world.api.created == []
        world.names = request.client_names("n")
        world.manager.poke()
        await asyncio.sleep(1)
        assert world.manager.current is not None


async def test_a_signer_that_omits_names_gets_one_request(tmp_path: Path) -> None:
    world = World(tmp_path)

    def without_names(found: JSON) -> None:
        key = world.store.pending_key()
        names = request.client_names("n")
        certificate = world.signer.certificate(
            key, names, world.clock.now(), world.clock.now() + HOUR
        )
        answered = world.signer.answer(found, world.clock.now(), HOUR)
        encoded = request.request_object("", request.CLIENT_SIGNER, certificate)["spec"]["request"]
        answered["status"]["certificate"] = encoded
        world.api.answer(answered)

    world.names = Names("system:node:n", ("system:nodes",), ("n",), ("10.0.0.1",))
    world.api.decide = without_names
    async with world.running():
        await asyncio.sleep(HOUR / 2)
        assert len(world.api.created) == 1


async def test_expired_certificates_are_not_accepted(tmp_path: Path) -> None:
    world = World(tmp_path, life=-10.0)
    world.api.decide = world.sign
    async with world.running():
        await asyncio.sleep(120)
        assert world.manager.current is None
        assert len(world.api.created) < 10


async def test_refusals_by_the_api_lose_the_certificate(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.api.decide = world.sign
    async with world.running() as task:
        await asyncio.sleep(1)
        world.api.error = Unauthorized("who are you", code=401)
        await asyncio.sleep(HOUR + CLIENT_LOST_S - 60)
        assert world.manager.current is None
        assert not task.done()
        await asyncio.wait([task], timeout=120)
        assert isinstance(task.exception(), CertificateLost)


async def test_no_loss_while_the_api_is_unreachable_or_if_not_vital(tmp_path: Path) -> None:
    for vital, error in [(True, None), (False, Unauthorized("no", code=401))]:
        world = World(tmp_path / str(vital), vital=vital)
        if error is None:
            world.api.down()
        world.api.error = error or world.api.error
        async with world.running() as task:
            await asyncio.sleep(2 * HOUR)
            assert not task.done()


async def test_after_a_kill_the_same_request_continues(tmp_path: Path) -> None:
    world = World(tmp_path)
    async with world.running():
        await asyncio.sleep(1)
    world.sign(world.pending())
    again = CertificateManager(
        Purpose("client", request.CLIENT_SIGNER, first_prefix="node-csr-"),
        CertificateStore(world.store.directory, "kubelet-client"),
        world.clock,
        names=lambda: world.names,
        api=world._open_api,
    )
    await again.load()
    await again.obtain()
    assert again.current is not None
    assert len(world.api.created) == 1


async def test_another_program_renews(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.api.decide = world.sign
    async with world.running():
        await asyncio.sleep(1)
        await world.manager.reload_if_changed()
        assert world.changes == 1
        key = world.store.pending_key()
        now = world.clock.now()
        pem = world.signer.certificate(key, request.client_names("n"), now, now + 24 * HOUR)
        CertificateStore(world.store.directory, "kubelet-client").update(pem, key, now + 5)
        await world.manager.reload_if_changed()
        assert world.changes == 2
        assert world.manager.ttl > 23 * HOUR
        await asyncio.sleep(10 * HOUR)
        assert len(world.api.created) == 1
        world.store.current_path.unlink()
        world.store.current_path.write_text("garbage")
        await world.manager.reload_if_changed()
        assert world.manager.current is not None


async def test_a_backdated_certificate_is_not_renewed_at_once(tmp_path: Path) -> None:
    world = World(tmp_path)

    def backdated(found: JSON) -> None:
        now = world.clock.now()
        world.api.answer(world.signer.answer(found, now - 0.95 * HOUR, HOUR))

    world.api.decide = backdated
    async with world.running():
        await asyncio.sleep(600)
        # 180 s of each remain, and at least half of them are used
        assert 4 <= len(world.api.created) <= 7
        assert world.manager.current is not None
