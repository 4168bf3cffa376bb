"""Information that the runtime reports at the start, and limits on its size."""

from __future__ import annotations

import asyncio
import json
import logging
from contextlib import AsyncExitStack
from pathlib import Path
from threading import Event
from typing import Any, cast

import pytest
from aiohttp import web

from kubeletpy import config
from kubeletpy.agent.agent import Agent
from kubeletpy.agent.errors import LaunchError
from kubeletpy.agent.launch import runtime
from kubeletpy.agent.launch.runtime import (
    LONGEST_HANDLER,
    MOST_HANDLERS,
    OtherVersion,
    find_node_ips,
    make_for_version,
    query_runtime,
    record_version_choice,
    resolve_version,
)
from kubeletpy.base.kubernetes_version import NEWEST, OLDEST, SUPPORTED, supported
from kubeletpy.config import LoadedConfig, NodeFlags
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
from kubeletpy.node.facts import NodeAddresses
from kubeletpy.node.machine import default_route_ip, is_own_address, read_machine_facts
from kubeletpy.node.server_version import query_version
from kubeletpy.remote.generated import api_pb2 as cri
from kubeletpy.remote.simple import PartialRuntime
from kubeletpy.runtime_manager.read.status_reader import health_from_conditions
from tests.kit.api import Handler, serving


class Boasting(PartialRuntime):
    """A runtime with megabytes of text and thousands of handlers."""

    async def version(self) -> cri.VersionResponse:
        return cri.VersionResponse(runtime_name="a\n\x1b[2Jb" * 100_000, runtime_version="1.2.3")

    async def status(self, verbose: bool = False) -> cri.StatusResponse:
        names = ["", "x" * (LONGEST_HANDLER + 1), *(f"h{number % 3000}" for number in range(9000))]
        return cri.StatusResponse(
            runtime_handlers=[cri.RuntimeHandler(name=name) for name in names]
        )


async def test_what_the_runtime_reports_fits_a_node(caplog: pytest.LogCaptureFixture) -> None:
    info = await query_runtime(Boasting())
    assert info.name.startswith("a [2Jba [2Jb")
    assert len(info.name) <= 256
    assert info.version == "1.2.3"
    assert [handler.get("name") for handler in info.handlers] == [
        "",
        *(f"h{number}" for number in range(MOST_HANDLERS - 1)),
    ]
    (warning,) = caplog.records
    assert vars(warning)["reported"] == 3002
    assert vars(warning)["shown"] == MOST_HANDLERS


@pytest.mark.parametrize(
    ("features", "expected"),
    [
        ({}, set()),
        ({"supplemental_groups_policy": True}, set()),
        ({"mount_options": True}, {"mount_options"}),
        (
            {"mount_options": True, "user_namespaces_host_network": True},
            {"mount_options", "user_namespaces_host_network"},
        ),
    ],
)
async def test_features_of_the_runtime_are_read(
    features: dict[str, bool], expected: set[str]
) -> None:
    class Featured(Boasting):
        async def status(self, verbose: bool = False) -> cri.StatusResponse:
            return cri.StatusResponse(features=cri.RuntimeFeatures(**features))

    info = await query_runtime(Featured())
    assert info.features == expected
    assert info.supplemental_groups_policy is bool(features.get("supplemental_groups_policy"))


def test_a_condition_of_megabytes_is_cut() -> None:
    long = "x" * 1_000_000
    condition = cri.RuntimeCondition(type="RuntimeReady", reason=long, message=f"\x1b{long}")
    assert len(health_from_conditions([condition]).message) < 9000


# Detection of the API server's version, and a start without it.

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

    assert (runtime.ANSWER_S, runtime.ANSWER_WITH_RECORD_S) == (10.0, 1.0)
    assert MAX_VERSION_BYTES == 65536
    assert supported("1.37") == NEWEST


# Addresses that a node reports.

ROUTES = {4: "192.0.2.7", 6: "2001:db8::7"}


@pytest.mark.parametrize(
    ("flag", "routes", "resolved", "expected"),
    [
        ("", ROUTES, [], ["192.0.2.7"]),
        ("", {}, ["198.51.100.1"], ["198.51.100.1"]),
        ("", ROUTES, ["127.0.1.1"], ["192.0.2.7"]),
        ("", ROUTES, ["2001:db8::1", "198.51.100.1"], ["198.51.100.1"]),
        ("", ROUTES, ["2001:db8::1"], ["2001:db8::1"]),
        ("", {6: "2001:db8::7"}, [], ["2001:db8::7"]),
        ("", {}, [], ["127.0.0.1"]),
        ("198.51.100.2", ROUTES, [], ["198.51.100.2"]),
        ("198.51.100.2, 2001:db8::2", ROUTES, [], ["198.51.100.2", "2001:db8::2"]),
        ("0.0.0.0", ROUTES, [], ["192.0.2.7"]),
        ("::", ROUTES, [], ["2001:db8::7"]),
        ("::", {4: "192.0.2.7"}, ["198.51.100.1", "2001:db8::9"], ["2001:db8::9"]),
        ("::", {4: "192.0.2.7"}, ["198.51.100.1"], None),
    ],
)
async def test_addresses(
    monkeypatch: pytest.MonkeyPatch,
    flag: str,
    routes: dict[int, str],
    resolved: list[str],
    expected: list[str] | None,
) -> None:
    monkeypatch.setattr(runtime, "default_route_ip", lambda version=4: routes.get(version, ""))
    monkeypatch.setattr(runtime, "resolve", lambda _name: resolved)
    monkeypatch.setattr(runtime, "is_own_address", lambda text: not text.startswith("127."))
    facts = read_machine_facts(Path("/"))
    if expected is None:
        with pytest.raises(LaunchError, match="no IPv6 address"):
            await find_node_ips(NodeFlags(node_ip=flag), facts)
    else:
        assert await find_node_ips(NodeFlags(node_ip=flag), facts) == expected


async def test_a_start_does_not_wait_for_silent_name_servers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answered = Event()
    monkeypatch.setattr(runtime, "RESOLVE_S", 0.01)
    monkeypatch.setattr(runtime, "resolve", lambda _name: answered.wait() and ["198.51.100.1"])
    monkeypatch.setattr(runtime, "default_route_ip", lambda version=4: ROUTES[version])
    assert await find_node_ips(NodeFlags(), read_machine_facts(Path("/"))) == ["192.0.2.7"]
    answered.set()


async def test_a_name_that_is_an_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime, "default_route_ip", lambda version=4: ROUTES[version])
    flags = NodeFlags(hostname_override="198.51.100.9")
    assert await find_node_ips(flags, read_machine_facts(Path("/"))) == ["198.51.100.9"]
    # a node's name may have a label that name servers refuse: of more than 63 characters
    flags = NodeFlags(hostname_override="a" * 70)
    assert await find_node_ips(flags, read_machine_facts(Path("/"))) == ["192.0.2.7"]


def test_own_addresses() -> None:
    assert not any(
        map(is_own_address, ("127.0.0.1", "224.0.0.1", "fe80::1", "0.0.0.0", "192.0.2.1"))
    )
    own = default_route_ip()
    assert not own or is_own_address(own)


async def test_an_address_that_changes_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    routes = {4: "192.0.2.7"}
    monkeypatch.setattr(runtime, "default_route_ip", lambda version=4: routes.get(version, ""))
    monkeypatch.setattr(runtime, "resolve", lambda _name: [])
    monkeypatch.setattr(runtime, "PERIOD_S", 0.01)
    facts, addresses = read_machine_facts(Path("/")), NodeAddresses(["192.0.2.7"])
    (task,) = runtime.follow_addresses(NodeFlags(), facts, addresses)
    running = asyncio.ensure_future(task.run())
    try:
        for now, seen in (
            ("192.0.2.8", "192.0.2.8"),
            ("", "192.0.2.8"),
            ("192.0.2.9", "192.0.2.9"),
        ):
            routes[4] = now
            async with asyncio.timeout(5):
                await asyncio.sleep(0.05)
                while list(addresses) != [seen]:  # noqa: ASYNC110 - replaced in place
                    await asyncio.sleep(0.01)
    finally:
        running.cancel()
    assert runtime.follow_addresses(NodeFlags(node_ip="192.0.2.1"), facts, addresses) == []
