"""The chains with the real iptables, in a network namespace of their own."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager

import pytest

from kubeletpy.node.guards import iptables
from kubeletpy.node.guards.iptables import Ended, IPTablesChains, run_command
from tools.env.waiting import wait_until

pytestmark = pytest.mark.needs("address translation")
FOREIGN = (
    "-A KUBE-FIREWALL ! -s 127.0.0.0/8 -d 127.0.0.0/8 -m comment --comment "
    '"block incoming localnet connections" -m conntrack ! --ctstate RELATED,ESTABLISHED,DNAT '
    "-j DROP"
)


class Network:
    """A network namespace."""

    def __init__(self) -> None:
        self.name = f"kpt-guards-{os.getpid()}"
        self.within = ("ip", "netns", "exec", self.name)

    def do(self, *parts: str) -> str:
        done = subprocess.run([*self.within, *parts], check=True, capture_output=True, text=True)
        return done.stdout

    async def run(self, parts: Sequence[str]) -> Ended:
        return await run_command([*self.within, *parts])


@pytest.fixture
def network() -> Iterator[Network]:
    made = Network()
    subprocess.run(["ip", "netns", "add", made.name], check=True)
    yield made
    subprocess.run(["ip", "netns", "delete", made.name], check=True)


@asynccontextmanager
async def kept(network: Network, version: int) -> AsyncIterator[None]:
    task = asyncio.create_task(IPTablesChains(version, network.run).run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


async def until(network: Network, program: str, table: str, line: str) -> list[str]:
    def lines() -> list[str]:
        found = network.do(program, "-t", table, "-S").split("\n")
        return found if line in found else []

    return await asyncio.to_thread(wait_until, lines, line, timeout=20)


CANARY_LINE = "-N KUBE-KUBELET-CANARY"


async def made(network: Network, version: int, program: str) -> None:
    async with kept(network, version):
        filtered = await until(network, program, "filter", CANARY_LINE)
        assert CANARY_LINE in network.do(program, "-t", "nat", "-S")
        mangled = network.do(program, "-t", "mangle", "-S").split("\n")
        assert {"-N KUBE-IPTABLES-HINT", CANARY_LINE} <= set(mangled)
        assert (FOREIGN in filtered) == (version == 4)


@pytest.mark.parametrize(("version", "program"), [(4, "iptables"), (6, "ip6tables")])
def test_made(network: Network, version: int, program: str) -> None:
    asyncio.run(made(network, version, program))
    asyncio.run(made(network, version, program))
    filtered = network.do(program, "-t", "filter", "-S").split("\n")
    for line in ("-A INPUT -j KUBE-FIREWALL", "-A OUTPUT -j KUBE-FIREWALL", FOREIGN):
        assert filtered.count(line) == (1 if version == 4 else 0)


def test_made_again_after_a_flush(network: Network, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(iptables, "CHECK_EVERY_S", 0.2)

    async def live() -> None:
        async with kept(network, 4):
            await until(network, "iptables", "filter", CANARY_LINE)
            for table in ("mangle", "nat", "filter"):
                network.do("iptables", "-t", table, "-F")
                network.do("iptables", "-t", table, "-X")
            await until(network, "iptables", "filter", CANARY_LINE)
            assert FOREIGN in network.do("iptables", "-t", "filter", "-S")
            assert "-N KUBE-IPTABLES-HINT" in network.do("iptables", "-t", "mangle", "-S")

    asyncio.run(live())


def test_without_the_right_to(network: Network) -> None:
    async def as_nobody(parts: Sequence[str]) -> Ended:
        return await network.run(["setpriv", "--reuid=65534", "--clear-groups", *parts])

    asyncio.run(IPTablesChains(4, as_nobody).run())  # gives up, once for all
    assert "KUBE" not in network.do("iptables", "-t", "filter", "-S")
