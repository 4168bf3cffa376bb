"""Detection of the API server's version, and a start without it."""

from __future__ import annotations

import asyncio
import json
import logging
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, cast

import pytest
from aiohttp import web

from kubeletpy import config
from kubeletpy.agent.agent import Agent
from kubeletpy.agent.launch.runtime import (
    OtherVersion,
    make_for_version,
    record_version_choice,
    resolve_version,
)
from kubeletpy.base.kubernetes_version import NEWEST, OLDEST, SUPPORTED, supported
from kubeletpy.config import LoadedConfig
from kubeletpy.config.files import VERSION_RECORD
from kubeletpy.config.version_choice import (
    NoVersion,
    ResolvedVersion,
    ServerVersion,
    VersionSource,
    decide,
)
from kubeletpy.kubeapi.client import KubeClient
from kubeletpy.kubeapi.kubeconfig import Connection
from kubeletpy.kubeapi.protocol import MAX_VERSION_BYTES
from kubeletpy.node.server_version import query_version
from tests.unit.kubeapi.api_server import Handler, serving

V35, V36, V37 = SUPPORTED
AMPLE = 60.0


def answering(body: bytes, status: int = 200, headers: dict[str, str] | None = None) -> Handler:
    async def handler(request: web.Request) -> web.Response:
        assert (request.method, request.path) == ("GET", "/version")
        return web.Response(body=body, status=status, headers=headers)

    return handler


def version_answer(minor: str) -> Handler:
    return answering(json.dumps({"major": "1", "minor": minor, "gitVersion": "v1.x"}).encode())


async def queried(handler: Handler, seconds: float = AMPLE) -> ServerVersion | NoVersion:
    async with serving(handler) as server:
        client = KubeClient(Connection(server.url))
        try:
            return await query_version(client, seconds)
        finally:
            await client.close()


async def test_the_servers_version() -> None:
    assert await queried(version_answer("36+")) == ServerVersion(1, 36, "v1.x")


ELSEWHERE = "http://192.0.2.1/version"


@pytest.mark.parametrize(
    ("handler", "why"),
    [
        (answering(b"<html>"), "not JSON"),
        (answering(b" " * (MAX_VERSION_BYTES + 1)), "GET /version"),
        (answering(b"", 302, {"Location": ELSEWHERE}), ""),
        (answering(b'{"message":"no"}', 403), ""),
        (answering(b"", 500), ""),
    ],
    ids=["no JSON", "enormous", "redirect", "forbidden", "error"],
)
async def test_answers_that_state_no_version(handler: Handler, why: str) -> None:
    found = await queried(handler)
    assert isinstance(found, NoVersion)
    assert why in found.why


async def test_a_compressed_answer_is_bounded_when_unpacked() -> None:
    import gzip

    bomb = gzip.compress(b" " * (64 * MAX_VERSION_BYTES))
    found = await queried(answering(bomb, headers={"Content-Encoding": "gzip"}))
    assert isinstance(found, NoVersion)


async def test_a_silent_server_is_abandoned() -> None:
    never = asyncio.Event()

    async def silent(_request: web.Request) -> web.Response:
        await never.wait()
        raise AssertionError

    assert await queried(silent, 0.05) == NoVersion("no answer within 0.05 s")


async def test_an_absent_server_is_no_version() -> None:
    client = KubeClient(Connection("http://127.0.0.1:1"))
    try:
        assert isinstance(await query_version(client, AMPLE), NoVersion)
    finally:
        await client.close()


def loaded_in(root: Path, *flags: str) -> LoadedConfig:
    supplied = config.parse_flags([f"--root-dir={root}", "--kubeconfig=k", *flags])
    return config.load_files(supplied)


@pytest.mark.parametrize(
    ("flags", "record", "handler", "version", "source"),
    [
        ((), "", version_answer("35"), V35, VersionSource.SERVER),
        ((), "1.37", version_answer("35"), V35, VersionSource.SERVER),
        ((), "1.35", answering(b"", 500), V35, VersionSource.RECORD),
        ((), "banana", answering(b"", 500), OLDEST, VersionSource.OLDEST),
        ((), "", answering(b"", 500), OLDEST, VersionSource.OLDEST),
        (("--kubernetes-version=1.36",), "1.35", answering(b"", 500), V36, VersionSource.FLAG),
    ],
)
async def test_resolving(  # noqa: PLR0917 - a row of the table
    tmp_path: Path,
    flags: tuple[str, ...],
    record: str,
    handler: Handler,
    version: object,
    source: VersionSource,
) -> None:
    if record:
        (tmp_path / VERSION_RECORD).write_text(record)
    async with serving(handler) as server:
        client = KubeClient(Connection(server.url))
        try:
            found = await resolve_version(loaded_in(tmp_path, *flags), client, None)
        finally:
            await client.close()
    assert (found.version, found.source) == (version, source)
    assert bool(server.requested) is (source is not VersionSource.FLAG)


async def test_without_an_api_nothing_is_queried(tmp_path: Path) -> None:
    found = await resolve_version(loaded_in(tmp_path), None, None)
    assert (found.version, found.source) == (NEWEST, VersionSource.STANDALONE)


def entries_of(directory: Path) -> list[str]:
    return [each.name for each in directory.iterdir()]


async def test_only_a_servers_version_is_recorded(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / VERSION_RECORD
    await record_version_choice(decide(V35, None, None), tmp_path)
    await record_version_choice(decide(None, NoVersion("x"), None), tmp_path)
    await record_version_choice(decide(None, None, None), tmp_path)
    assert not path.exists()
    await record_version_choice(decide(None, ServerVersion(1, 36, "v1.36.3"), None), tmp_path)
    assert path.read_text() == "1.36\n"
    await record_version_choice(decide(None, ServerVersion(1, 99, "v1.99.0"), None), tmp_path)
    assert path.read_text() == f"{NEWEST}\n"
    assert entries_of(tmp_path) == [VERSION_RECORD]
    assert len([each for each in caplog.records if each.levelno == logging.WARNING]) == 1


async def test_a_record_that_cannot_be_written_is_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    server = decide(None, ServerVersion(1, 36, "v1.36.3"), None)
    await record_version_choice(server, tmp_path / "absent")
    (found,) = [each for each in caplog.records if each.levelno == logging.WARNING]
    assert "can't be recorded" in found.getMessage()


async def test_the_settings_are_those_of_the_resolved_version(tmp_path: Path) -> None:
    """Resources of the first attempt are closed before the second begins."""
    seen: list[Any] = []
    resolved = decide(None, ServerVersion(1, 35, "v1.35.4"), None)

    async def make(
        loaded: LoadedConfig, stack: AsyncExitStack, known: ResolvedVersion | None
    ) -> Agent:
        version = loaded.settings.feature_gates.version
        stack.callback(seen.append, f"closed {version}")
        seen.append((version, known))
        if version != resolved.version:
            raise OtherVersion(resolved)
        return cast(Agent, "agent")

    async with AsyncExitStack() as stack:
        agent: object = await make_for_version(loaded_in(tmp_path), stack, make)
        assert agent == "agent"
        assert seen == [(NEWEST, None), f"closed {NEWEST}", (V35, resolved)]
    assert seen[-1] == "closed 1.35"


async def test_a_configuration_that_is_wrong_for_the_servers_version(tmp_path: Path) -> None:
    async def make(
        loaded: LoadedConfig, stack: AsyncExitStack, known: ResolvedVersion | None
    ) -> Agent:
        raise OtherVersion(decide(None, ServerVersion(1, 35, "v1.35.4"), None))

    file = tmp_path / "config"
    head = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
    file.write_text(f"{head}featureGates: {{H2CContainerProbe: true}}\n")
    loaded = loaded_in(tmp_path, f"--config={file}")
    async with AsyncExitStack() as stack:
        with pytest.raises(config.ConfigError, match=r"does not exist in Kubernetes 1\.35"):
            await make_for_version(loaded, stack, make)


@pytest.mark.parametrize(
    ("gate", "version"),
    [("", V35), ("UserNamespacesHostNetworkSupport", V35), ("H2CContainerProbe", V37)],
)
async def test_without_server_and_record_the_oldest_valid_version(
    tmp_path: Path, gate: str, version: object
) -> None:
    async def make(
        loaded: LoadedConfig, stack: AsyncExitStack, known: ResolvedVersion | None
    ) -> Agent:
        found = known or decide(None, NoVersion("connection refused"), None)
        if loaded.settings.feature_gates.version != found.version:
            raise OtherVersion(found)
        return cast(Agent, found.version)

    file = tmp_path / "config"
    head = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
    file.write_text(head + (f"featureGates: {{{gate}: true}}\n" if gate else ""))
    async with AsyncExitStack() as stack:
        found: object = await make_for_version(loaded_in(tmp_path, f"--config={file}"), stack, make)
    assert found == version


def test_bounds() -> None:
    from kubeletpy.agent.launch import runtime

    assert (runtime.ANSWER_S, runtime.ANSWER_WITH_RECORD_S) == (3.0, 1.0)
    assert MAX_VERSION_BYTES == 65536
    assert supported("1.37") == NEWEST
