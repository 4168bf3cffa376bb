"""The plain health endpoint: details on this machine, and only success or failure elsewhere."""

from __future__ import annotations

import asyncio
import errno
import socket
from typing import Any

import aiohttp
import pytest

from kubeletpy.base.wire.listener import peer_of
from kubeletpy.server.build import Ports
from kubeletpy.server.health import HealthServer, listen
from kubeletpy.server.routes import ServerError
from kubeletpy.server.settings import ServerSettings


async def resource_metrics() -> bytes:
    return b"z 1\n"


@pytest.mark.parametrize(
    ("address", "metrics", "why"),
    [("127.0.0.1", 200, "the runtime sulks"), ("0.0.0.0", 404, "reason withheld")],
)
async def test_reasons_and_metrics_are_served_on_loopback_only(
    address: str, metrics: int, why: str
) -> None:
    checks = {"ping": lambda: "", "runtime": lambda: "the runtime sulks"}
    server = HealthServer(
        address,
        0,
        checks=checks,
        render_metrics=lambda: (b"x 1\n", "text/plain"),
        render_probe_metrics=lambda: (b"y 1\n", "text/plain"),
        render_resource_metrics=resource_metrics,
    )
    await server.start()
    await server.serve()
    base = f"http://127.0.0.1:{server.port}"
    try:
        async with aiohttp.ClientSession(base) as session:
            for path in ("/metrics", "/metrics/probes", "/metrics/resource"):
                async with session.get(path) as answer:
                    assert answer.status == metrics
            async with session.get("/healthz") as answer:
                assert answer.status == 500
                assert f"[-]runtime failed: {why}" in await answer.text()
            async with session.get("/healthz?exclude=runtime") as answer:
                assert await answer.text() == "ok"
            async with session.get("/healthz/runtime") as answer:
                assert answer.status == 500
                assert why in await answer.text()
    finally:
        await server.close()


# On which addresses a socket listens (docs/reference/config.csv: address).

EVERY = ("0.0.0.0", "::", "0:0:0:0:0:0:0:0", "::ffff:0.0.0.0")


def connects(address: str, port: int) -> bool:
    """Whether a client gets through."""
    try:
        socket.create_connection((address, port), timeout=5).close()
    except ConnectionRefusedError:
        return False
    return True


@pytest.mark.parametrize("address", EVERY)
@pytest.mark.parametrize("short_answers", [True, False])
def test_all_addresses_are_those_of_both_families(address: str, short_answers: bool) -> None:
    with listen(address, 0, short_answers=short_answers) as listening:
        port = listening.getsockname()[1]
        assert listening.getsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY) == 0
        assert connects("127.0.0.1", port)
        assert connects("::1", port)


def test_main_and_read_only_port_listen_on_both_families() -> None:
    with listen("::", 0) as tried:
        free = tried.getsockname()[1]
    ports = Ports(ServerSettings(port=0, read_only_port=free))
    try:
        for port in (ports.port, free):
            assert connects("127.0.0.1", port)
            assert connects("::1", port)
    finally:
        ports.close()


@pytest.mark.parametrize(
    ("address", "other"), [("127.0.0.1", "::1"), ("::1", "127.0.0.1"), ("::ffff:127.0.0.1", "::1")]
)
def test_one_address_is_that_alone(address: str, other: str) -> None:
    with listen(address, 0) as listening:
        port = listening.getsockname()[1]
        assert connects(address, port)
        assert not connects(other, port)


@pytest.mark.parametrize("lacking", [errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL])
@pytest.mark.parametrize("address", EVERY)
def test_a_kernel_without_ipv6(address: str, lacking: int, monkeypatch: pytest.MonkeyPatch) -> None:
    class WithoutIPv6(socket.socket):
        def __init__(self, family: int, *rest: Any) -> None:
            if family == socket.AF_INET6 and lacking == errno.EAFNOSUPPORT:
                raise OSError(lacking, "Address family not supported by protocol")
            super().__init__(family, *rest)

        def bind(self, address: Any) -> None:
            if self.family == socket.AF_INET6:
                raise OSError(lacking, "Cannot assign requested address")
            super().bind(address)

    monkeypatch.setattr("kubeletpy.server.health.socket.socket", WithoutIPv6)
    with listen(address, 0) as listening:
        assert listening.family == socket.AF_INET
        assert connects("127.0.0.1", listening.getsockname()[1])


@pytest.mark.parametrize("holder", ["127.0.0.1", "::1", "0.0.0.0"])
@pytest.mark.parametrize("address", EVERY[:2])
def test_a_port_that_is_taken_in_one_family(address: str, holder: str) -> None:
    with listen(holder, 0) as held:
        port = held.getsockname()[1]
        with pytest.raises(OSError, match="in use"):
            listen(address, port)


def test_the_message_has_brackets() -> None:
    with listen("::1", 0) as held:
        port = held.getsockname()[1]
        with pytest.raises(ServerError, match=rf"can't listen on \[::1\]:{port}: .*in use"):
            Ports(ServerSettings(address="::1", port=port))


@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
async def test_clients_have_the_address_that_they_use(address: str) -> None:
    with (
        listen("0.0.0.0", 0) as listening,
        socket.create_connection((address, listening.getsockname()[1])) as client,
    ):
        listening.setblocking(True)
        sock, peername = listening.accept()
        with sock:
            found = peer_of(asyncio.Transport({"peername": peername}))
            assert found == client.getsockname()[:2]
