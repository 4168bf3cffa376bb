"""Addresses that a node reports."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from kubeletpy.agent.launch import runtime
from kubeletpy.agent.launch.errors import LaunchError
from kubeletpy.agent.launch.runtime import find_node_ips
from kubeletpy.config import NodeFlags
from kubeletpy.node.facts import NodeAddresses
from kubeletpy.node.machine import default_route_ip, is_own_address, read_machine_facts

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


async def test_a_name_that_is_an_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime, "default_route_ip", lambda version=4: ROUTES[version])
    flags = NodeFlags(hostname_override="198.51.100.9")
    assert await find_node_ips(flags, read_machine_facts(Path("/"))) == ["198.51.100.9"]


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
