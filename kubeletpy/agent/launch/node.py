"""The node's addresses: from the flag, its name, or the machine; checked again periodically."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
from contextlib import suppress

from kubeletpy.agent.component import Task
from kubeletpy.agent.launch.errors import LaunchError
from kubeletpy.config import NodeFlags
from kubeletpy.config.flag_rules import node_addresses
from kubeletpy.node.addresses import NodeAddresses
from kubeletpy.node.facts import MachineFacts
from kubeletpy.node.machine import default_route_ip, is_own_address, resolve
from kubeletpy.node.options import node_name

PERIOD_S = 30.0
"""How long it may take to notice an address that DHCP has changed."""

log = logging.getLogger(__name__)


async def find_node_ips(flags: NodeFlags, facts: MachineFacts) -> list[str]:
    """--node-ip; else a name that is an address or resolves to one; else the default route's.

    0.0.0.0 and :: request an address of that family, which is preferred. An address of a name
    counts only if it is one of this machine that others can reach. Source: the kubelet's rule
    (docs/reference/flags.csv: node-ip).

    Raises LaunchError if the machine has no address of the requested family.
    """
    given = node_addresses(flags.node_ip)
    if given and not given[0].is_unspecified:
        return [str(address) for address in given]
    version = given[0].version if given else 4
    name = node_name(flags, facts.hostname)
    with suppress(ValueError):  # a name, as usual
        return [str(ipaddress.ip_address(name))]
    known = [each for each in await asyncio.to_thread(resolve, name) if is_own_address(each)]
    preferred = [each for each in known if (":" in each) == (version == 6)]
    if given and not preferred:
        known = []  # a requested family is never replaced by another
    if found := [*preferred, *known]:
        return found[:1]
    if found_by_route := default_route_ip(version):
        return [found_by_route]
    if given:
        raise LaunchError(
            f"--node-ip {flags.node_ip}: this machine has no IPv{version} address "
            "that leads out of it; name the node's address"
        )
    return [default_route_ip(6) or "127.0.0.1"]


def follow_addresses(flags: NodeFlags, facts: MachineFacts, addresses: NodeAddresses) -> list[Task]:
    """The task that keeps them up to date; none where they are configured."""
    given = node_addresses(flags.node_ip)
    if given and not given[0].is_unspecified:
        return []

    async def run() -> None:
        while True:
            await asyncio.sleep(PERIOD_S)
            try:
                found = await find_node_ips(flags, facts)
            except LaunchError as error:
                log.debug("node addresses not found", extra={"why": str(error)})
                continue
            if found == ["127.0.0.1"]:
                continue  # no network at the moment: the known addresses may come back
            before = list(addresses)
            if addresses.replace(found):
                log.warning("the node's address has changed", extra={"was": before, "now": found})

    return [Task("node-addresses", run)]
