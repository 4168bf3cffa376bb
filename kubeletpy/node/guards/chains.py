"""The iptables chains that others expect on a node, and what iptables' answers mean. Pure.

The agent itself does not need them. The hint chain shows other components which of a machine's two
iptables is in use. The firewall drops packets to loopback addresses that come from elsewhere, which
a proxy with route_localnet would let in. The canaries disappear when all rules are flushed.
Source: docs/reference/config.csv: makeIPTablesUtilChains.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum

from kubeletpy.base.structs import Struct

HINT = "KUBE-IPTABLES-HINT"
FIREWALL = "KUBE-FIREWALL"
CANARY = "KUBE-KUBELET-CANARY"
CANARY_TABLES = ("mangle", "nat", "filter")
PROGRAMS = {4: "iptables", 6: "ip6tables"}
"""Program by IP version."""
LOCK_WAIT_S = 5
"""How long a command waits for another one that changes the tables."""

_FOREIGN_LOOPBACK = (
    *("-m", "comment", "--comment", "block incoming localnet connections"),
    *("--dst", "127.0.0.0/8", "!", "--src", "127.0.0.0/8"),
    *("-m", "conntrack", "!", "--ctstate", "RELATED,ESTABLISHED,DNAT", "-j", "DROP"),
)
"""kube-proxy creates the same rule: they must match to the letter."""


class IptablesExit(Enum):
    """The meaning of an exit code of iptables."""

    YES = "done, or it is there"
    NO = "it is there already, or it is not there"
    FAILED = "neither"


def answer(code: int) -> IptablesExit:
    """1 means "no"; others are failures: no permission, no kernel module, lock not acquired."""
    return {0: IptablesExit.YES, 1: IptablesExit.NO}.get(code, IptablesExit.FAILED)


class Wanted(Struct, frozen=True):
    """A chain or a rule; arguments of iptables without the table."""

    table: str
    make: tuple[str, ...]
    check: tuple[str, ...] = ()
    """Checks whether it exists before it is created; empty: ``make`` reports that itself."""


def required_rules(version: int) -> Iterator[Wanted]:
    """The chains and rules that IPv4 or IPv6 requires, in order of creation."""
    yield _chain("mangle", HINT)
    if version == 4:  # IPv6 has one loopback address, and nothing routes it
        yield _chain("filter", FIREWALL)
        for chain in ("OUTPUT", "INPUT"):
            yield _rule("-I", "filter", chain, "-j", FIREWALL)
        yield _rule("-A", "filter", FIREWALL, *_FOREIGN_LOOPBACK)


def canaries() -> Iterator[Wanted]:
    """The canary chains, which nothing uses."""
    for table in CANARY_TABLES:
        yield _chain(table, CANARY)


def command(version: int, table: str, arguments: tuple[str, ...]) -> list[str]:
    """The command line of a command."""
    return [PROGRAMS[version], "-w", str(LOCK_WAIT_S), "-t", table, *arguments]


def is_usable(version: int) -> list[str]:
    """A command that succeeds where iptables can be used at all."""
    return command(version, "nat", ("-S", "POSTROUTING", "1"))


def canary_check(version: int, table: str) -> list[str]:
    """A command that checks for a table's canary."""
    return command(version, table, ("-S", CANARY, "1"))


def _chain(table: str, name: str) -> Wanted:
    return Wanted(table, ("-N", name))


def _rule(how: str, table: str, chain: str, *rule: str) -> Wanted:
    return Wanted(table, (how, chain, *rule), ("-C", chain, *rule))
