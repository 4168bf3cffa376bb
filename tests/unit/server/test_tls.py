"""The server's certificate: absent, the first one, a replacement, and an unusable one."""

from __future__ import annotations

import asyncio
import socket
import ssl
from pathlib import Path

import pytest

from kubeletpy.host import signing, x509
from kubeletpy.host.key_pair import KeyPair
from kubeletpy.host.pki import Names
from kubeletpy.server.settings import AccessSettings
from kubeletpy.server.tls import ServingTls, self_signed
from tests.unit.server.helpers import Pki, make_view, serving


async def common_name(port: int, authority: KeyPair) -> str:
    """Common name of the server certificate that a client sees."""
    context = ssl.create_default_context(cafile=str(authority.certificate))
    _, writer = await asyncio.open_connection(
        "127.0.0.1", port, ssl=context, server_hostname="node"
    )
    shown = writer.get_extra_info("peercert")
    writer.close()
    (name,) = [value for part in shown["subject"] for key, value in part if key == "commonName"]
    return str(name)


async def test_a_certificate_that_comes_later_and_changes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    authority = KeyPair.named(tmp_path, "ca")
    signing.make_authority(authority, "test")

    def made(name: str, pair: KeyPair) -> KeyPair:
        signing.make_signed(pair, authority, Names(name, (), ("node",)))
        return pair

    in_use: list[KeyPair | None] = [None]
    tls = ServingTls(lambda: in_use[0])
    server = await asyncio.start_server(
        lambda _, writer: writer.close(), "127.0.0.1", 0, ssl=tls.context
    )
    port = server.sockets[0].getsockname()[1]
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
    server.close()


async def test_a_certificate_that_has_ended_is_not_shown(tmp_path: Path) -> None:
    pair = KeyPair.named(tmp_path, "node")
    signing.make_self_signed(pair, Names("node", (), ("node",)))
    in_use: list[KeyPair | None] = [pair]
    tls = ServingTls(lambda: in_use[0])
    server = await asyncio.start_server(
        lambda _, writer: writer.close(), "127.0.0.1", 0, ssl=tls.context
    )
    port = server.sockets[0].getsockname()[1]
    assert await common_name(port, pair) == "node"
    in_use[0] = None
    with pytest.raises((ssl.SSLError, ConnectionError)):
        await common_name(port, pair)
    server.close()


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
    got = spoken(tls.context, ssl.TLSVersion[version], ssl.TLSVersion[version])
    assert (expected in got) if expected else got == ""


@pytest.mark.parametrize("version", ["TLSv1", "TLSv1_1"])
def test_old_versions_are_not_spoken(pki: Pki, version: str) -> None:
    tls = ServingTls(lambda: pki.server, None, "VersionTLS10")
    assert spoken(tls.context, ssl.TLSVersion[version], ssl.TLSVersion[version]) == ""


def test_without_a_certificate_one_is_made_and_kept(tmp_path: Path) -> None:
    pair = self_signed(tmp_path, "node-1", ["10.0.0.7", "fd00::7"])
    assert pair.certificate == tmp_path / "kubelet.crt"
    assert pair.key.stat().st_mode & 0o777 == 0o600
    before = pair.certificate.read_bytes()
    names = x509.read_certificate(before).names
    assert names == Names("node-1", (), ("node-1",), ("10.0.0.7", "fd00::7"))
    assert self_signed(tmp_path, "node-1", ["10.0.0.8"]).certificate.read_bytes() == before
