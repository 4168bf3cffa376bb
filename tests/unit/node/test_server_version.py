"""An API server that is upgraded under a running agent."""

from __future__ import annotations

import asyncio
import json
import logging
import random
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kubeletpy.base.api.types import JSON
from kubeletpy.base.kubernetes_version import SUPPORTED, KubernetesVersion
from kubeletpy.config.files import VERSION_RECORD
from kubeletpy.config.version_choice import (
    NoVersion,
    ResolvedVersion,
    ServerVersion,
    VersionSource,
    after_restart,
    decide,
)
from kubeletpy.kubeapi.errors import Unavailable
from kubeletpy.kubeapi.protocol import Call, KubeApi, WatchEvent
from kubeletpy.node import server_version
from kubeletpy.node.server_version import VersionFollower, query_version
from tests.kit.virtual_time import on_virtual_time

V35, V36, V37 = SUPPORTED
REMOVED = NoVersion("connection refused")


class Server(KubeApi):
    """A server whose version the test changes; with None it does not answer."""

    def __init__(self, minor: int | None) -> None:
        self.minor = minor
        self.requested_at: list[float] = []

    async def version(self) -> bytes:
        self.requested_at.append(asyncio.get_running_loop().time())
        if self.minor is None:
            raise Unavailable("GET /version: connection refused")
        minor = str(self.minor)
        return json.dumps({"major": "1", "minor": minor, "gitVersion": f"v1.{minor}.1"}).encode()

    async def answer(self, call: Call) -> JSON:
        raise AssertionError(call)

    def follow(self, call: Call) -> AsyncIterator[WatchEvent]:
        raise AssertionError(call)


def stated(minor: int) -> ServerVersion:
    return ServerVersion(1, minor, f"v1.{minor}.1")


class Node:
    """A follower of the server's version, and its reports."""

    def __init__(self, root: Path, server: Server, resolved: ResolvedVersion) -> None:
        self.root = root
        self.reported: list[tuple[str, bool]] = []
        self.follower = VersionFollower(
            server,
            resolved,
            root,
            notify=lambda text, warning: self.reported.append((text, warning)),
            rng=random.Random(1),
        )

    @property
    def record(self) -> str:
        path = self.root / VERSION_RECORD
        return path.read_text() if path.exists() else ""


@on_virtual_time
async def test_an_upgrade_is_reported_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    server = Server(36)
    node = Node(tmp_path, server, decide(None, stated(36), None))
    running = asyncio.ensure_future(node.follower.run())
    await asyncio.sleep(3600)
    assert (node.reported, node.follower.reported.restart) == ([], "")
    server.minor = 37
    await asyncio.sleep(6 * 3600)
    reported = node.follower.reported
    assert (reported.running, reported.server) == ("1.36", "v1.37.1")
    assert node.reported == [(reported.restart, False)]
    assert "restart the agent to run as 1.37" in reported.restart
    assert node.record == "1.37\n"  # for a start without the server
    assert [each.levelno for each in caplog.records] == [logging.INFO]
    # two servers behind one address have different versions during an upgrade
    for minor in (36, 37, 36, 37):
        server.minor = minor
        await asyncio.sleep(1200)
    assert len(node.reported) == 1
    running.cancel()


@on_virtual_time
async def test_requests_are_rare(tmp_path: Path) -> None:
    server = Server(37)
    running = asyncio.ensure_future(
        Node(tmp_path, server, decide(None, stated(37), None)).follower.run()
    )
    await asyncio.sleep(24 * 3600)
    assert 72 <= len(server.requested_at) <= 144
    running.cancel()


@on_virtual_time
async def test_a_node_without_an_answer_at_the_start_retries_sooner(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    server = Server(None)
    node = Node(tmp_path, server, decide(None, REMOVED, None))
    running = asyncio.ensure_future(node.follower.run())
    await asyncio.sleep(600)
    assert len(server.requested_at) >= 30
    assert len(caplog.records) == 1  # one line for all of them
    assert (node.reported, node.record) == ([], "")
    server.minor = 36
    await asyncio.sleep(20)
    ((text, warning),) = node.reported
    assert not warning
    assert "the API server is v1.36.1, and the node runs as Kubernetes 1.35" in text
    assert "restart the agent to run as 1.36" in text
    assert node.record == "1.36\n"
    running.cancel()


async def test_a_silent_server_times_out(tmp_path: Path) -> None:
    class Silent(Server):
        async def version(self) -> bytes:
            await asyncio.Event().wait()
            raise AssertionError

    assert await query_version(Silent(1), 0.01) == NoVersion("no answer within 0.01 s")


@pytest.mark.parametrize(
    ("running", "source", "minor", "then", "warning"),
    [
        (V36, VersionSource.SERVER, 36, None, False),
        (V36, VersionSource.SERVER, 37, V37, False),
        (V37, VersionSource.SERVER, 38, None, False),
        (V37, VersionSource.SERVER, 36, V36, True),
        (V37, VersionSource.OLDEST, 35, V35, True),
        (V37, VersionSource.OLDEST, 37, None, False),
        (V35, VersionSource.RECORD, 37, V37, False),
        (V35, VersionSource.SERVER, 34, None, False),
        (V36, VersionSource.FLAG, 37, None, False),
        (V36, VersionSource.FLAG, 36, None, False),
        (V37, VersionSource.FLAG, 36, V36, True),
    ],
)
def test_the_version_after_a_restart(
    running: KubernetesVersion,
    source: VersionSource,
    minor: int,
    then: KubernetesVersion | None,
    warning: bool,
) -> None:
    found = after_restart(ResolvedVersion(running, source, "why"), stated(minor))
    assert (found.version if found else None, bool(found and found.warning)) == (then, warning)
    if found is not None:
        assert f"1.{minor}.1" in found.why and str(running) in found.why and str(then) in found.why
        assert ("--kubernetes-version" in found.why) is (source is VersionSource.FLAG)


async def test_a_version_by_flag_is_not_recorded(tmp_path: Path) -> None:
    node = Node(tmp_path, Server(37), decide(V36, None, None))
    await node.follower.note_version(stated(36))
    assert (node.record, node.reported) == ("", [])
    assert node.follower.reported.server == "v1.36.1"


def test_periods() -> None:
    periods = (server_version.CHECK_S, server_version.UNKNOWN_CHECK_S, server_version.ANSWER_S)
    assert periods == (600.0, 10.0, 10.0)
