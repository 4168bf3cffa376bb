"""Which addresses the node has: by flag, or as the machine says."""

from __future__ import annotations

import asyncio

from kubeletpy.config import NodeFlags
from kubeletpy.config.flag_rules import node_addresses
from kubeletpy.launch.errors import LaunchError
from kubeletpy.node.facts import MachineFacts
from kubeletpy.node.machine import default_route_ip, resolve


async def find_node_ips(flags: NodeFlags, facts: MachineFacts) -> list[str]:
    """--node-ip, where 0.0.0.0 and :: are any address of that family; else the machine's own.

    Raises LaunchError: the machine has no address of the family asked for.
    """
    given = node_addresses(flags.node_ip)
    if given and not given[0].is_unspecified:
        return [str(address) for address in given]
    version = given[0].version if given else 4
    found = default_route_ip(version)
    if found:
        return [found]
    resolved = await asyncio.to_thread(resolve, facts.hostname)
    if given:
        resolved = [each for each in resolved if (":" in each) == (version == 6)]
        if not resolved:
            raise LaunchError(
                f"--node-ip {flags.node_ip}: this machine has no IPv{version} address "
                "that leads out of it; name the node's address"
            )
    return resolved[:1] or ["127.0.0.1"]
