"""Which addresses a node says it has."""

from __future__ import annotations

from pathlib import Path

import pytest

from kubeletpy.config import NodeFlags
from kubeletpy.launch import node
from kubeletpy.launch.errors import LaunchError
from kubeletpy.launch.node import find_node_ips
from kubeletpy.node.machine import read_machine_facts

ROUTES = {4: "192.0.2.7", 6: "2001:db8::7"}


@pytest.mark.parametrize(
    ("flag", "routes", "resolved", "expected"),
    [
        ("", ROUTES, [], ["192.0.2.7"]),
        ("", {}, ["198.51.100.1"], ["198.51.100.1"]),
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
    monkeypatch.setattr(node, "default_route_ip", lambda version=4: routes.get(version, ""))
    monkeypatch.setattr(node, "resolve", lambda _name: resolved)
    facts = read_machine_facts(Path("/"))
    if expected is None:
        with pytest.raises(LaunchError, match="no IPv6 address"):
            await find_node_ips(NodeFlags(node_ip=flag), facts)
    else:
        assert await find_node_ips(NodeFlags(node_ip=flag), facts) == expected
