"""Kubeconfigs: which are valid, which files they name, and the one that the agent writes."""

from __future__ import annotations

import asyncio
import base64
import stat
from pathlib import Path

import pytest
import yaml

from kubeletpy.base.host import x509
from kubeletpy.base.host.pki import Names
from kubeletpy.kubeapi.kubeconfig import KubeconfigError, connect_kubeconfig, read_kubeconfig
from kubeletpy.node.certificates import store
from kubeletpy.node.certificates.store import FileFollower
from tests.kit.certificates import Signer

NOW = 1_800_000_000.0
HEAD = """apiVersion: v1
kind: Config
current-context: c
contexts: [{name: c, context: {cluster: k, user: u}}]
clusters: [{name: k, cluster: {server: "https://10.0.0.1:6443", tls-server-name: api}}]
"""


def write(folder: Path, user: str) -> Path:
    path = folder / "kubelet.conf"
    path.write_text(f"{HEAD}users: [{{name: u, user: {user}}}]\n")
    return path


@pytest.fixture(scope="module")
def pems(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """A key, a certificate that is valid at NOW, and one that has ended."""
    signer = Signer(tmp_path_factory.mktemp("ca"))
    key, names = x509.new_key(), Names("system:node:n", ("system:nodes",))
    return {
        "key": key,
        "valid": signer.certificate(key, names, NOW - 10, NOW + 10),
        "ended": signer.certificate(key, names, NOW - 10, NOW - 5),
    }


def test_values_of_the_wrong_type_name_no_files(tmp_path: Path) -> None:
    path = write(tmp_path, "{client-certificate: 5, client-key: [a], tokenFile: {a: b}}")
    found = read_kubeconfig(path)
    assert found.files() == [path]
    assert found.certificate_files() is None
    assert store.kubeconfig_problem(path, NOW) == "it names no client certificate"


def test_why_a_kubeconfig_is_not_valid(tmp_path: Path, pems: dict[str, bytes]) -> None:
    def why(user: str) -> str:
        return store.kubeconfig_problem(write(tmp_path, user), NOW)

    for name, pem in pems.items():
        (tmp_path / f"{name}.pem").write_bytes(pem)
    (tmp_path / "garbage.pem").write_text("garbage")

    def inline(name: str) -> str:
        certificate, key = (base64.b64encode(pems[each]).decode() for each in (name, "key"))
        return f'{{client-certificate-data: "{certificate}", client-key-data: "{key}"}}'

    def files(name: str, key: str = "key.pem") -> str:
        return f"{{client-certificate: {name}.pem, client-key: {key}}}"

    assert why(files("valid")) == ""
    assert why(inline("valid")) == ""
    assert "ended" in why(files("ended"))
    assert "ended" in why(inline("ended"))
    assert "No such file" in why(files("missing"))
    assert "No such file" in why(files("valid", "missing.pem"))
    assert why(files("garbage"))
    assert "no client certificate" in why("{token: abc}")
    assert "No such file" in store.kubeconfig_problem(tmp_path / "nothing", NOW)


@pytest.mark.parametrize(
    "text", ["", "[]", "a: [", "current-context: x", "contexts: 7", "\0", "x: !!python/none {}"]
)
def test_broken_files_are_reported(tmp_path: Path, text: str) -> None:
    path = tmp_path / "broken"
    path.write_text(text)
    with pytest.raises(KubeconfigError, match="broken"):
        read_kubeconfig(path)
    assert store.kubeconfig_problem(path, NOW)


async def test_the_official_loader_reads_the_written_file(
    tmp_path: Path, pems: dict[str, bytes]
) -> None:
    pair = tmp_path / "pki" / "kubelet-client-current.pem"
    pair.parent.mkdir()
    pair.write_bytes(pems["valid"] + pems["key"])
    bootstrap = read_kubeconfig(write(tmp_path, "{token: abc}"))
    target = tmp_path / "etc" / "kubelet.conf"
    store.write_kubeconfig(target, bootstrap, pair)
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    assert "abc" not in target.read_text()
    found = yaml.safe_load(target.read_text())
    assert found["current-context"] == "default-context"
    assert found["users"] == [
        {"name": "default-auth", "user": {"client-certificate": str(pair), "client-key": str(pair)}}
    ]
    connection = await connect_kubeconfig(str(target))
    assert (connection.host, connection.server_hostname) == ("https://10.0.0.1:6443", "api")
    assert store.kubeconfig_problem(target, NOW) == ""
    assert read_kubeconfig(target).files() == [target, pair, pair]


async def test_changed_files_are_reported_once_and_again_after_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "SETTLE_S", 0.001)
    monkeypatch.setattr(store, "CHECK_S", 0.05)
    file, elsewhere = tmp_path / "a", tmp_path / "other" / "b"
    named = [file]
    notified: asyncio.Queue[int] = asyncio.Queue()
    fails = True

    async def changed() -> None:
        notified.put_nowait(0)
        if fails:
            raise KubeconfigError("not now")

    loop, checks = asyncio.get_running_loop(), asyncio.Queue[int]()
    reload = FileFollower._reload_changed

    def checked(follower: FileFollower) -> object:
        found = reload(follower)
        loop.call_soon_threadsafe(checks.put_nowait, 0)
        return found

    async def two_checks() -> None:
        """The first may have begun before this call."""
        while not checks.empty():
            checks.get_nowait()
        for _ in range(2):
            await checks.get()

    monkeypatch.setattr(FileFollower, "_reload_changed", checked)
    follower = asyncio.create_task(FileFollower(lambda: named, changed).run())
    async with asyncio.timeout(60):
        await two_checks()
        assert notified.empty()
        file.write_text("x")
        await notified.get()
        await notified.get()  # the first call failed and is repeated
        fails = False
        await notified.get()
        await two_checks()
        while not notified.empty():
            notified.get_nowait()
        (tmp_path / "unrelated").write_text("x")
        await two_checks()
        assert notified.empty()
        elsewhere.parent.mkdir()
        named.append(elsewhere)
        file.write_text("names the other one")
        await notified.get()
        elsewhere.write_text("x")
        await notified.get()
    follower.cancel()
    await asyncio.wait([follower])
