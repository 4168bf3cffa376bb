"""Kubeconfig files: credentials read here or by the official loader, and clear errors."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import ssl
import stat
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from kubeletpy.base.host import x509
from kubeletpy.base.host.files import KeyPair
from kubeletpy.base.host.pki import Names
from kubeletpy.base.structs import replace
from kubeletpy.kubeapi import errors, kubeconfig_loader
from kubeletpy.kubeapi import kubeconfig as credentials
from kubeletpy.kubeapi.client import KubeClient
from kubeletpy.kubeapi.errors import Unavailable
from kubeletpy.kubeapi.kubeconfig import (
    Connection,
    KubeconfigError,
    begin_loading,
    connect_kubeconfig,
)
from kubeletpy.kubeapi.protocol import NODES, PODS
from tests.kit.api import answer, failure, serving


def kubeconfig(
    folder: Path,
    user: str,
    server: str = "http://127.0.0.1:1",
    cluster: str = "",
    name: str = "kubeconfig",
) -> str:
    path = folder / name
    path.write_text(
        f"""apiVersion: v1
kind: Config
current-context: c
clusters: [{{name: k, cluster: {{server: "{server}/"{cluster}}}}}]
contexts: [{{name: c, context: {{cluster: k, user: u}}}}]
users: [{{name: u, user: {user}}}]
"""
    )
    return str(path)


async def test_token(tmp_path: Path) -> None:
    connection = await connect_kubeconfig(kubeconfig(tmp_path, "{token: abc}"))
    assert (connection.host, connection.authorization) == ("http://127.0.0.1:1", "Bearer abc")
    assert connection.ssl is None
    assert "abc" not in repr(connection)


async def test_loading_may_begin_ahead(tmp_path: Path) -> None:
    for name in ("abc", "other"):
        (tmp_path / name).write_text(name)
    path = kubeconfig(tmp_path, "{tokenFile: abc}")
    begin_loading(path)
    assert (await connect_kubeconfig(path)).authorization == "Bearer abc"
    kubeconfig(tmp_path, "{tokenFile: other}")
    assert (await connect_kubeconfig(path)).authorization == "Bearer other"


async def test_no_process_reads_a_plain_kubeconfig(
    certificates: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_process(path: str) -> None:
        raise AssertionError(path)

    monkeypatch.setattr(credentials, "_start_loader", no_process)
    for user in ("{token: abc}", "{client-certificate: node.crt, client-key: node.key}"):
        path = kubeconfig(certificates, user, "https://10.0.0.1")
        begin_loading(path)
        await connect_kubeconfig(path)


OFFICIAL = """
import json, runpy, sys
load = runpy.run_path(sys.argv[1])["load"]
print(json.dumps([load(path) for path in sys.argv[2:]]), flush=True)
sys.stdin.read()
"""


@contextmanager
def loaded_officially(paths: Sequence[str]) -> Iterator[list[dict[str, Any]]]:
    """Read files by the loader in one process, which keeps its own files until the end."""
    command = [sys.executable, "-c", OFFICIAL, kubeconfig_loader.__file__, *paths]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        yield json.loads(process.stdout.readline())


@pytest.mark.parametrize("environment", ["", "http://proxy"])
async def test_the_official_loader_finds_the_same(
    certificates: Path, monkeypatch: pytest.MonkeyPatch, environment: str
) -> None:
    monkeypatch.setenv("https_proxy", environment)
    monkeypatch.setenv("no_proxy", "10.0.0.1" if environment else "")
    (certificates / "token").write_text("xyz")
    key, authority = (
        base64.b64encode((certificates / name).read_bytes()).decode()
        for name in ("node.key", "ca.crt")
    )
    cases = [
        ("{token: abc}", ""),
        ("{}", ", insecure-skip-tls-verify: true"),
        ("{token: abc, tokenFile: token}", ""),
        ("{tokenFile: token}", ", certificate-authority: ca.crt"),
        ("{username: u, password: p}", ", proxy-url: 'http://other'"),
        ("{client-certificate: node.crt, client-key: node.key}", ", certificate-authority: ca.crt"),
        (
            f"{{token: abc, client-certificate: node.crt, client-key-data: {key}}}",
            f", certificate-authority-data: {authority}, tls-server-name: api.test,"
            " proxy-url: 'http://other'",
        ),
    ]
    paths = [
        kubeconfig(certificates, user, "https://10.0.0.1", cluster, name=f"kubeconfig{number}")
        for number, (user, cluster) in enumerate(cases)
    ]

    def essence(made: Connection) -> tuple[Connection, tuple[Any, ...]]:
        assert made.ssl is not None
        tls = made.ssl.get_ca_certs(), made.ssl.verify_mode, made.ssl.check_hostname
        return replace(made, ssl=None), tls

    with loaded_officially(paths) as official:
        for path, found in zip(paths, official, strict=True):
            theirs = credentials._connection(path, {**found, "said": []}, None)
            assert essence(await connect_kubeconfig(path)) == essence(theirs)


async def test_token_file_is_read_again_when_refused(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("one")
    async with serving(answer({}), failure(401, "Unauthorized"), answer({})) as server:
        path = kubeconfig(tmp_path, f"{{tokenFile: {token}}}", server.url)
        api = await KubeClient.from_kubeconfig(path)
        await api.get(NODES, "m")
        token.write_text("two")
        await api.get(NODES, "m")
        await api.close()
        sent = [requested.headers["Authorization"] for requested in server.requested]
    assert sent == ["Bearer one", "Bearer one", "Bearer two"]


def plugin(folder: Path, script: str) -> str:
    path = folder / "plugin"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return f"{{exec: {{apiVersion: client.authentication.k8s.io/v1, command: {path}}}}}"


async def test_exec_plugin(tmp_path: Path) -> None:
    answer_ = (
        '{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential",'
        ' "status": {"token": "made"}}'
    )
    user = plugin(tmp_path, f"echo '{answer_}'")
    connection = await connect_kubeconfig(kubeconfig(tmp_path, user))
    assert connection.authorization == "Bearer made"


async def test_exec_plugin_that_fails(tmp_path: Path) -> None:
    user = plugin(tmp_path, "exit 1")
    with pytest.raises(KubeconfigError, match="exec plugin gave no credentials"):
        await connect_kubeconfig(kubeconfig(tmp_path, user))


async def test_an_exec_plugin_that_hangs_is_left_alone(tmp_path: Path) -> None:
    started = tmp_path / "started"
    os.mkfifo(started)
    user = plugin(tmp_path, f"echo >{started}; exec sleep 60")
    loading = asyncio.create_task(connect_kubeconfig(kubeconfig(tmp_path, user)))
    await asyncio.to_thread(started.read_text)
    loading.cancel()
    with pytest.raises(asyncio.CancelledError):
        async with asyncio.timeout(60):
            await loading


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[",
        "a: b",
        "current-context: x",
        "current-context: c\nclusters: []\ncontexts: [{name: c, context: {cluster: k}}]\n",
    ],
)
async def test_bad_files_are_one_clear_error(tmp_path: Path, text: str) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text(text)
    with pytest.raises(KubeconfigError, match=f"kubeconfig {path}: "):
        await connect_kubeconfig(str(path))


async def test_a_missing_file_is_named() -> None:
    with pytest.raises(KubeconfigError, match="kubeconfig /no/such/file: no such file"):
        await connect_kubeconfig("/no/such/file")


@pytest.fixture
def certificates(tmp_path: Path) -> Path:
    """A CA (ca.crt), a server's (server.crt/.key) and a node's certificate (node.crt/.key)."""
    authority = KeyPair.named(tmp_path, "ca")
    x509.make_authority(authority, "ca")
    server = Names("api", (), ("api.test",), ("127.0.0.1",))
    node = Names("system:node:n", ("system:nodes",))
    for name, names in (("server", server), ("node", node)):
        x509.make_signed(KeyPair.named(tmp_path, name), authority, names)
    return tmp_path


@pytest.mark.parametrize("inline", [True, False])
async def test_client_certificate_over_https(certificates: Path, inline: bool) -> None:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=certificates / "ca.crt")
    context.load_cert_chain(certificates / "server.crt", certificates / "server.key")
    context.verify_mode = ssl.CERT_REQUIRED
    subjects = []

    async def whoami(request: web.Request) -> web.Response:
        assert request.transport is not None
        subjects.append(request.transport.get_extra_info("peercert")["subject"])
        return web.json_response({})

    def part(key: str, name: str) -> str:
        path = certificates / name
        if inline:
            return f'{key}-data: "{base64.b64encode(path.read_bytes()).decode()}"'
        return f"{key}: {path}"

    async with serving(whoami, tls=context) as server:
        path = kubeconfig(
            certificates,
            f"{{{part('client-certificate', 'node.crt')}, {part('client-key', 'node.key')}}}",
            f"{server.url}",
            ", " + part("certificate-authority", "ca.crt") + ", tls-server-name: api.test",
        )
        api = await KubeClient.from_kubeconfig(path)
        await api.get(NODES, "n")
        await api.close()
    assert (("commonName", "system:node:n"),) in subjects[0]


async def test_renewed_credentials_do_not_interrupt_open_requests(tmp_path: Path) -> None:
    go_on = asyncio.Event()
    tokens: list[str] = []

    async def watch(request: web.Request) -> web.StreamResponse:
        tokens.append(request.headers["Authorization"])
        response = web.StreamResponse()
        await response.prepare(request)
        for name in ("a", "b"):
            event = {"type": "ADDED", "object": {"metadata": {"name": name}}}
            await response.write(json.dumps(event).encode() + b"\n")
            await go_on.wait()
        return response

    async def get(request: web.Request) -> web.Response:
        tokens.append(request.headers["Authorization"])
        return web.json_response({})

    async with serving(watch, get, watch) as server:
        api = await KubeClient.from_kubeconfig(kubeconfig(tmp_path, "{token: one}", server.url))
        events = api.watch(NODES, resource_version="1", timeout_seconds=60)
        assert [(await anext(events)).type for _ in range(2)] == ["BOOKMARK", "ADDED"]
        kubeconfig(tmp_path, "{token: two}", server.url)
        await api.renew_credentials()
        await api.get(NODES, "n")
        assert tokens == ["Bearer one", "Bearer two"]
        go_on.set()
        assert (await anext(events)).object["metadata"]["name"] == "b"
        go_on.clear()
        # a reader gets an error at once when the client closes
        other = api.watch(NODES, resource_version="1", timeout_seconds=60)
        assert [(await anext(other)).type for _ in range(2)] == ["BOOKMARK", "ADDED"]
        reading = asyncio.ensure_future(anext(other))
        await asyncio.sleep(0)
        async with asyncio.timeout(60):
            await api.close()
            with pytest.raises(Unavailable):
                await reading


async def test_requests_wait_for_credentials(tmp_path: Path) -> None:
    async with serving(answer({"kind": "Node"})) as server:
        path = tmp_path / "kubeconfig"
        api = KubeClient(None, reconnect=lambda: connect_kubeconfig(str(path)), timeout=60)
        with pytest.raises(KubeconfigError):
            await api.renew_credentials()
        asking = asyncio.ensure_future(api.get(NODES, "n"))
        await asyncio.sleep(0)
        assert not asking.done()
        kubeconfig(tmp_path, "{token: abc}", server.url)
        await api.renew_credentials()
        assert await asking == {"kind": "Node"}
        await api.close()


async def test_without_credentials_a_request_fails_with_the_reason(tmp_path: Path) -> None:
    api = KubeClient(None, timeout=0.01)
    with pytest.raises(Unavailable, match="no credentials"):
        await api.get(NODES, "n")
    await api.close()


async def test_a_certificate_of_our_own_replaces_the_files_credentials(certificates: Path) -> None:
    path = kubeconfig(certificates, "{token: abc}", "https://127.0.0.1:1")
    pair = KeyPair.named(certificates, "node")
    connection = await connect_kubeconfig(path, pair)
    assert connection.authorization == ""
    with pytest.raises(KubeconfigError):
        await connect_kubeconfig(path, KeyPair.named(certificates, "nobody"))


def test_the_loader_ends_quietly_when_its_agent_has_ended(tmp_path: Path) -> None:
    path = kubeconfig(tmp_path, "{token: t}")
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, "-P", kubeconfig_loader.__file__, path],
        stdin=subprocess.DEVNULL,
        stdout=writer,
        stderr=subprocess.PIPE,
        check=False,
    )
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, b"")


async def test_the_loader_imports_from_the_agents_search_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A zipapp's packages are in no directory that a new interpreter would search."""
    package = tmp_path / "site" / "kubernetes"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise ValueError('of the search path')")
    monkeypatch.setattr(sys, "path", [str(tmp_path / "site"), "", *sys.path])
    path = kubeconfig(tmp_path, "{tokenFile: t}")
    with pytest.raises(KubeconfigError, match="the loader failed"):
        await connect_kubeconfig(path)


# Behavior on HTTP/1.1 alone, where each pending request occupies a connection.

POD = {"kind": "Pod", "metadata": {"name": "p", "namespace": "n"}}


async def test_heartbeats_do_not_wait_for_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pods had a watch for each object, until no connections were left."""
    monkeypatch.setattr("kubeletpy.kubeapi.http1.MAX_CONNECTIONS", 3)
    arrived = asyncio.Semaphore(0)

    async def hold(_request: web.Request) -> web.StreamResponse:
        arrived.release()
        await asyncio.Event().wait()
        raise AssertionError("nobody sets it")

    async with serving(hold, hold, hold, answer(POD)) as server:

        async def reconnect() -> Connection:
            return Connection(server.url, authorization="Bearer new")

        api = KubeClient(Connection(server.url), qps=0, reconnect=reconnect)
        heartbeats = api.apart(qps=0, burst=0, timeout=60)
        asking = [asyncio.create_task(api.get(PODS, "p", "n")) for _ in range(4)]
        for _ in range(3):
            await arrived.acquire()
        assert await heartbeats.get(PODS, "p", "n") == POD
        assert len(server.requested) == 4, "the fourth of the others has no connection"
        await api.renew_credentials()
        assert await heartbeats.get(PODS, "p", "n") == POD
        assert server.requested[-1].headers["Authorization"] == "Bearer new"
        for each in asking:
            each.cancel()
        await api.close()
        with pytest.raises(errors.Unavailable, match="the client is closed"):
            await heartbeats.get(PODS, "p", "n")
