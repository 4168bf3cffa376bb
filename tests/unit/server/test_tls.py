"""The server's certificate: absent, the first one, a replacement, and an unusable one."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from kubeletpy.base.host import x509
from kubeletpy.base.host.files import KeyPair
from kubeletpy.base.host.pki import Names
from kubeletpy.base.wire.listener import ConnectionLimiter, Listener
from kubeletpy.metrics.registry import Metrics
from kubeletpy.server.build import KubeletServer, Ports
from kubeletpy.server.settings import AccessSettings, ServerSettings
from kubeletpy.server.tls import ServingTls, files_problem, self_signed
from tests.kit.clocks import SetClock
from tests.kit.server import PROGRAM, Pki, make_view, serving
from tests.unit.base.wire.echo import Echo


async def common_name(port: int, authority: KeyPair) -> str:
    """Common name of the server certificate that a client sees."""
    context = ssl.create_default_context(cafile=str(authority.certificate))
    _, writer = await asyncio.open_connection(
        "127.0.0.1", port, ssl=context, server_hostname="node"
    )
    reported = writer.get_extra_info("peercert")
    writer.close()
    (name,) = [value for part in reported["subject"] for key, value in part if key == "commonName"]
    return str(name)


@asynccontextmanager
async def listening(tls: ServingTls) -> AsyncIterator[int]:
    """A port that is served with the TLS in use."""
    sock = socket.create_server(("127.0.0.1", 0))
    limiter = ConnectionLimiter(10)
    listener = Listener(sock, limiter, lambda on_lost: Echo(limiter, on_lost), tls.newest)
    listener.start()
    try:
        yield int(sock.getsockname()[1])
    finally:
        listener.close()


async def test_a_certificate_that_comes_later_and_changes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    authority = KeyPair.named(tmp_path, "ca")
    x509.make_authority(authority, "test")

    def made(name: str, pair: KeyPair) -> KeyPair:
        x509.make_signed(pair, authority, Names(name, (), ("node",)))
        return pair

    in_use: list[KeyPair | None] = [None]
    tls = ServingTls(lambda: in_use[0])
    async with listening(tls) as port:
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await common_name(port, authority)
        one = in_use[0] = made("one", KeyPair.named(tmp_path, "one"))
        assert await common_name(port, authority) == "one"
        made("again", one)
        assert await common_name(port, authority) == "again"
        two = in_use[0] = made("two", KeyPair.named(tmp_path, "two"))
        assert await common_name(port, authority) == "two"
        two.certificate.write_text("garbage")
        assert await common_name(port, authority) == "two"
        assert "can't be used" in caplog.text
        in_use[0] = None
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await common_name(port, authority)


async def test_a_certificate_that_has_ended_is_not_shown(tmp_path: Path) -> None:
    pair = KeyPair.named(tmp_path, "node")
    x509.make_self_signed(pair, Names("node", (), ("node",)))
    in_use: list[KeyPair | None] = [pair]
    async with listening(ServingTls(lambda: in_use[0])) as port:
        assert await common_name(port, pair) == "node"
        in_use[0] = None
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await common_name(port, pair)


@pytest.mark.parametrize("version", ["TLSv1_2", "TLSv1_3"])
async def test_a_new_client_authority_ends_what_the_old_one_vouched_for(
    pki: Pki, tmp_path: Path, version: str
) -> None:
    """Resumed sessions and open connections count only under the same CA."""
    trusted = tmp_path / "clients.crt"
    trusted.write_bytes(pki.ca.certificate.read_bytes())
    access = AccessSettings(always_allow=True)
    async with serving(make_view(tmp_path), None, pki, access, client_ca=trusted) as server:
        client = pki.context(pki.client)
        client.maximum_version = ssl.TLSVersion[version]
        ask = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"

        def connect(session: ssl.SSLSession | None = None) -> ssl.SSLSocket:
            raw = socket.create_connection(("127.0.0.1", server.port), timeout=10)
            return client.wrap_socket(raw, server_hostname="127.0.0.1", session=session)

        def answer(sock: ssl.SSLSocket) -> bytes:
            try:
                sock.sendall(ask)
                return sock.recv(1000)[9:12]
            except (ConnectionError, ssl.SSLError):
                return b""

        opened = await asyncio.to_thread(connect)
        assert await asyncio.to_thread(answer, opened) == b"200"
        session = opened.session
        trusted.write_bytes(pki.other_ca.certificate.read_bytes())
        assert await asyncio.to_thread(answer, opened) == b""
        try:
            again = await asyncio.to_thread(connect, session)
            assert not again.session_reused
            assert await asyncio.to_thread(answer, again) == b""
            again.close()
        except (ConnectionError, ssl.SSLError):
            pass
        opened.close()
        assert (await server.request("GET", "/healthz", client=pki.stranger))[0] == 200


def spoken(server: ssl.SSLContext, minimum: ssl.TLSVersion, maximum: ssl.TLSVersion) -> str:
    """Version and cipher negotiated with a client of these versions; empty if it is refused."""
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname, client.verify_mode = False, ssl.CERT_NONE
    client.minimum_version, client.maximum_version = minimum, maximum
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [client.wrap_bio(down, up), server.wrap_bio(up, down, server_side=True)]
    for _ in range(6):
        for end in ends:
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
            except ssl.SSLError:
                return ""
    cipher = ends[0].cipher()
    assert cipher is not None
    return f"{ends[0].version()} {cipher[0]}"


RSA_GCM = "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384"
ECDSA_GCM = "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"


@pytest.mark.parametrize(
    ("minimum", "ciphers", "version", "expected"),
    [
        ("", (), "TLSv1_2", "TLSv1.2"),
        ("", (), "TLSv1_3", "TLSv1.3"),
        ("VersionTLS12", (), "TLSv1_2", "TLSv1.2"),
        ("VersionTLS13", (), "TLSv1_2", ""),
        ("VersionTLS13", (), "TLSv1_3", "TLSv1.3"),
        ("", (RSA_GCM, ECDSA_GCM), "TLSv1_2", "AES256-GCM-SHA384"),
        ("", ("TLS_DHE_RSA_WITH_AES_128_GCM_SHA256",), "TLSv1_2", ""),
        ("", (RSA_GCM, ECDSA_GCM), "TLSv1_3", "TLSv1.3"),
    ],
)
def test_versions_and_ciphers_are_kept_to(
    pki: Pki, minimum: str, ciphers: tuple[str, ...], version: str, expected: str
) -> None:
    tls = ServingTls(lambda: pki.server, None, minimum, ciphers)
    got = spoken(tls.newest(), ssl.TLSVersion[version], ssl.TLSVersion[version])
    assert (expected in got) if expected else got == ""


@pytest.mark.parametrize("version", ["TLSv1", "TLSv1_1"])
def test_old_versions_are_not_spoken(pki: Pki, version: str) -> None:
    tls = ServingTls(lambda: pki.server, None, "VersionTLS10")
    assert spoken(tls.newest(), ssl.TLSVersion[version], ssl.TLSVersion[version]) == ""


NOW = 1_800_000_000.0
DAY = 24 * 3600.0


def test_without_a_certificate_one_is_made_and_kept(tmp_path: Path) -> None:
    pair = self_signed(tmp_path, "node-1", ["10.0.0.7", "fd00::7"], NOW)
    assert pair.certificate == tmp_path / "kubelet.crt"
    assert pair.key.stat().st_mode & 0o777 == 0o600
    before = pair.certificate.read_bytes()
    names = x509.read_certificate(before).names
    assert names == Names("node-1", (), ("node-1",), ("10.0.0.7", "fd00::7"))
    for addresses in ([], ["10.0.0.7"], ["FD00:0::7", "10.0.0.7", "fe80::1%eth0", "Not A Name"]):
        again = self_signed(tmp_path, "node-1", addresses, NOW + DAY)
        assert again.certificate.read_bytes() == before


@pytest.mark.parametrize(
    ("name", "address", "now", "why"),
    [
        ("node-1", "10.0.0.7", NOW + 3660 * DAY, "the previous one expired at 2037-01-12T08:00"),
        ("node-1", "10.0.0.7", NOW + 3600 * DAY, "the previous one expires at 2037-01-12T08:00"),
        ("node-1", "10.0.0.7", NOW - 60 * DAY, "the previous one is not valid before 2027-01-15"),
        ("node-2", "10.0.0.7", NOW, "the previous one lacks the DNS name node-2"),
        ("node-1", "10.0.0.8", NOW, "the previous one lacks the address 10.0.0.8"),
        ("node-1", "node-1.example", NOW, "the previous one lacks the DNS name node-1.example"),
    ],
)
def test_a_certificate_that_cannot_serve_the_node_is_made_anew(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    *,
    name: str,
    address: str,
    now: float,
    why: str,
) -> None:
    caplog.set_level("INFO")
    before = self_signed(tmp_path, "node-1", ["10.0.0.7"], NOW).certificate.read_bytes()
    pair = self_signed(tmp_path, name, [address], now)
    assert pair.loads()
    assert pair.certificate.read_bytes() != before
    found = x509.read_certificate(pair.certificate.read_bytes())
    assert found.outdated(now) == ""
    assert name in found.names.dns_names
    logged = [vars(record).get("why", "") for record in caplog.records]
    assert logged[0] == "there is none"
    assert logged[1].startswith(why)


def test_a_clock_that_is_not_set_replaces_nothing_and_makes_what_lasts(tmp_path: Path) -> None:
    before = self_signed(tmp_path, "node-1", [], NOW).certificate.read_bytes()
    assert self_signed(tmp_path, "node-1", [], 60.0).certificate.read_bytes() == before
    early = self_signed(tmp_path / "new", "node-1", [], 60.0).certificate.read_bytes()
    assert self_signed(tmp_path / "new", "node-1", [], NOW).certificate.read_bytes() == early


@pytest.mark.parametrize("broken", ["torn", "empty", "other key", "no key", "directory"])
def test_files_that_cannot_be_used_are_made_anew(tmp_path: Path, broken: str) -> None:
    pair = self_signed(tmp_path, "node-1", [], NOW)
    text = pair.certificate.read_bytes()
    if broken == "torn":
        pair.certificate.write_bytes(text[:200])
    elif broken == "empty":
        pair.certificate.write_bytes(b"")
    elif broken == "other key":
        pair.key.write_bytes(x509.new_key())
    elif broken == "no key":
        pair.key.unlink()
    else:
        pair.certificate.unlink()
        pair.certificate.mkdir()
        with pytest.raises(OSError, match=r"kubelet\.crt"):
            self_signed(tmp_path, "node-1", [], NOW)
        return
    assert self_signed(tmp_path, "node-1", [], NOW).loads()


def kubelets_own(pair: KeyPair, root: Path, name: str, now: float) -> None:
    """A certificate as the kubelet makes it: an authority of its own, and no address."""
    authority = KeyPair.named(root, "kubelet-ca")
    x509.make_authority(authority, f"{name}-ca@1700000000", now=now)
    made = Names(f"{name}@1700000000", dns_names=(name,))
    x509.make_signed(pair, authority, made, now=now)


def test_the_certificate_of_a_kubelet_is_replaced(tmp_path: Path) -> None:
    pair = KeyPair.named(tmp_path, "kubelet")
    kubelets_own(pair, tmp_path, "node-1", NOW)
    before = pair.certificate.read_bytes()
    assert self_signed(tmp_path, "node-1", [], NOW + DAY).certificate.read_bytes() == before
    self_signed(tmp_path, "node-1", ["10.0.0.7"], NOW + DAY)
    assert x509.read_certificate(pair.certificate.read_bytes()).names.ip_addresses == ("10.0.0.7",)


def test_the_certificate_of_an_authority_is_never_replaced(tmp_path: Path) -> None:
    authority, pair = KeyPair.named(tmp_path, "ca"), KeyPair.named(tmp_path, "kubelet")
    x509.make_authority(authority, "company", now=NOW)
    x509.make_signed(pair, authority, Names("other", dns_names=("other",)), now=NOW)
    before = pair.certificate.read_bytes()
    self_signed(tmp_path, "node-1", ["10.0.0.7"], NOW + 9999 * DAY)
    assert pair.certificate.read_bytes() == before


@pytest.mark.parametrize(
    ("names", "now", "why"),
    [
        (("node-1",), NOW, ""),
        (("10.0.0.7",), NOW, ""),
        (("node-1",), NOW + 3651 * DAY, "expired at 2037-01-12T08:00:00Z"),
        (("node-1",), NOW + 3600 * DAY, "expires at 2037-01-12T08:00:00Z"),
        (("node-1",), NOW - DAY, "is not valid before 2027-01-15T08:00:00Z"),
        (("node-1",), 60.0, ""),
        (("other",), NOW, "has neither the node's name node-1 nor one of its addresses"),
    ],
)
def test_problems_of_a_certificate_that_somebody_else_made(
    tmp_path: Path, names: tuple[str, ...], now: float, why: str
) -> None:
    authority, pair = KeyPair.named(tmp_path, "ca"), KeyPair.named(tmp_path, "tls")
    x509.make_authority(authority, "company", now=NOW)
    dns = tuple(each for each in names if not each[0].isdigit())
    ips = tuple(each for each in names if each[0].isdigit())
    x509.make_signed(pair, authority, Names("x", (), dns, ips), now=NOW)
    problem = files_problem(pair, "node-1", ["10.0.0.7"], now)
    assert problem.startswith(f"the serving certificate {pair.certificate} {why}: ") is bool(why)
    assert bool(problem) is bool(why)
    pair.certificate.write_text("garbage")
    assert files_problem(pair, "node-1", [], now) == ""


def kubelet_server(root: Path, clock: SetClock, **settings: Any) -> tuple[Ports, KubeletServer]:
    bound = Ports(ServerSettings(address="127.0.0.1", port=0, **settings))
    node: Any = {"status": {"addresses": [{"type": "InternalIP", "address": "203.0.113.7"}]}}
    server = KubeletServer(
        bound,
        make_view(root),
        None,
        metrics=Metrics().http,
        clock=clock,
        node_ips=["10.0.0.7"],
        node=lambda: node,
        program=PROGRAM,
    )
    return bound, server


async def after_a_check(server: KubeletServer) -> None:
    """Let a server that follows its certificate check it once."""
    following = asyncio.ensure_future(server.follow_certificate())
    checked = asyncio.Event()
    sleeping = asyncio.sleep

    async def sleep(seconds: float) -> None:
        checked.set()
        await sleeping(seconds)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("kubeletpy.server.build.asyncio.sleep", sleep)
        await checked.wait()
    following.cancel()
    await asyncio.wait([following])


async def test_a_certificate_that_ends_under_a_running_agent_is_replaced(tmp_path: Path) -> None:
    clock = SetClock(NOW)
    bound, server = kubelet_server(tmp_path, clock, certificate_dir=tmp_path / "pki")
    try:
        await server.start()
        file = tmp_path / "pki" / "kubelet.crt"
        before = x509.read_certificate(file.read_bytes())
        assert before.names.ip_addresses == ("10.0.0.7", "203.0.113.7")
        clock.time = before.not_after + 1
        await after_a_check(server)
        after = x509.read_certificate(file.read_bytes())
        assert after.outdated(clock.time) == ""
        assert server.certificate_problem == ""
    finally:
        bound.close()


async def test_a_certificate_that_ended_before_a_start_is_replaced_soon_after(
    tmp_path: Path,
) -> None:
    pair = self_signed(tmp_path, "node-1", [], NOW)
    before = pair.certificate.read_bytes()
    clock = SetClock(x509.read_certificate(before).not_after + 1)
    bound, server = kubelet_server(tmp_path, clock, certificate_dir=tmp_path)
    try:
        await server.start()
        assert pair.certificate.read_bytes() == before
        await after_a_check(server)
        assert x509.read_certificate(pair.certificate.read_bytes()).outdated(clock.time) == ""
    finally:
        bound.close()


async def test_a_certificate_of_the_owner_is_reported_and_stays(
    tmp_path: Path, pki: Pki, caplog: pytest.LogCaptureFixture
) -> None:
    clock = SetClock(NOW)
    files = {"certificate": str(pki.server.certificate), "key": str(pki.server.key)}
    bound, server = kubelet_server(tmp_path, clock, **files)
    before = pki.server.certificate.read_bytes()
    try:
        await server.start()
        clock.time = NOW + 9999 * DAY
        await after_a_check(server)
        await after_a_check(server)
        assert f"{pki.server.certificate} expired at" in server.certificate_problem
        assert caplog.text.count("expired at") == 1
        assert pki.server.certificate.read_bytes() == before
    finally:
        bound.close()
