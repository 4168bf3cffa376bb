"""Keeps the iptables chains of the guards in place: creates them, also after a flush.

Where iptables is missing (nftables only) or may not be used, nothing needs the chains: that is
logged once. Must never remove somebody else's rule.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence

from kubeletpy.base.host.program import Program, ProgramFailed, run_program
from kubeletpy.base.structs import Struct

log = logging.getLogger(__name__)

CHECK_EVERY_S = 60.0
"""How often the canary is checked, and what failed is retried."""
FLUSH_CHECK_S, FLUSH_TAKES_S = 0.1, 5.0
"""Rules are flushed table by table: the chains are created again once all tables are done."""
COMMAND_S = 30.0
ANSWER_CHARACTERS = 300


# Chains that others expect on a node. Source: docs/reference/config.csv: makeIPTablesUtilChains.
#
# The agent itself does not need them. The hint chain shows other components which of a machine's
# two iptables is in use. The firewall drops packets to loopback addresses that come from
# elsewhere, which a proxy with route_localnet would let in. The canaries disappear when all rules
# are flushed.

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


class Desired(Struct, frozen=True):
    """A chain or a rule; arguments of iptables without the table."""

    table: str
    make: tuple[str, ...]
    check: tuple[str, ...] = ()
    """Checks whether it exists before it is created; empty: ``make`` reports that itself."""


def required_rules(version: int) -> Iterator[Desired]:
    """The chains and rules that IPv4 or IPv6 requires, in order of creation."""
    yield _chain("mangle", HINT)
    if version == 4:  # IPv6 has one loopback address, and nothing routes it
        yield _chain("filter", FIREWALL)
        for chain in ("OUTPUT", "INPUT"):
            yield _rule("-I", "filter", chain, "-j", FIREWALL)
        yield _rule("-A", "filter", FIREWALL, *_FOREIGN_LOOPBACK)


def canaries() -> Iterator[Desired]:
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


def _chain(table: str, name: str) -> Desired:
    return Desired(table, ("-N", name))


def _rule(how: str, table: str, chain: str, *rule: str) -> Desired:
    return Desired(table, (how, chain, *rule), ("-C", chain, *rule))


class Ended(Struct, frozen=True):
    """How a command ended."""

    code: int
    text: str
    """Its output on stderr, shortened."""


Run = Callable[[Sequence[str]], Awaitable[Ended]]
"""Runs a command. Raises ProgramFailed: it can't be run, was killed, or took too long."""


class IPTablesError(Exception):
    """iptables failed; the message states what it printed."""


class IPTablesChains:
    """The chains of one IP version."""

    def __init__(self, version: int, execute: Run) -> None:
        self._version = version
        self._run = execute
        self._failing = False

    async def run(self) -> None:
        """Keep the chains in place until cancelled; return where iptables can't be used."""
        try:
            await self._run_check(is_usable(self._version))
        except IPTablesError as error:
            log.info(
                "iptables can't be used: its chains for other components are not created",
                extra={"ip": self._version, "why": str(error)},
            )
            return
        while True:
            try:
                await self._ensure([*required_rules(self._version), *canaries()])
                self._failing = False
                await self._flushed()
            except IPTablesError as error:
                if not self._failing:
                    log.warning(
                        "iptables chains for other components could not be created; trying again",
                        extra={"ip": self._version, "why": str(error)},
                    )
                self._failing = True
                await asyncio.sleep(CHECK_EVERY_S)
            else:
                log.info(
                    "iptables rules were flushed: the chains are created again",
                    extra={"ip": self._version},
                )

    async def _ensure(self, things: Iterable[Desired]) -> None:
        for each in things:
            there = bool(each.check) and await self._run_check(self._command(each, each.check))
            if not there:
                await self._run_check(self._command(each, each.make))
        # iptables ends with 1 for a chain that exists, and where the kernel refuses to make one
        check = canary_check(self._version, CANARY_TABLES[0])
        if not await self._run_check(check):
            raise IPTablesError(f"{' '.join(check)} does not find the chain that was made")

    def _command(self, thing: Desired, arguments: tuple[str, ...]) -> list[str]:
        return command(self._version, thing.table, arguments)

    async def _flushed(self) -> None:
        """Wait until the canaries have disappeared."""
        first, *others = CANARY_TABLES
        while True:
            await asyncio.sleep(CHECK_EVERY_S)
            if not await self._run_check(canary_check(self._version, first)):
                break
        looks = round(FLUSH_TAKES_S / FLUSH_CHECK_S)
        for _ in range(looks):
            checks = (canary_check(self._version, table) for table in others)
            if not any([await self._run_check(check) for check in checks]):
                return
            await asyncio.sleep(FLUSH_CHECK_S)

    async def _run_check(self, parts: Sequence[str]) -> bool:
        """Whether it was done, or what it checks for is there. Raises IPTablesError."""
        try:
            ended = await self._run(parts)
        except ProgramFailed as error:
            raise IPTablesError(f"{parts[0]}: {error}") from error
        if ended.code not in (0, 1):  # no permission, no kernel module, lock not acquired
            text = f": {ended.text}" if ended.text else ""
            raise IPTablesError(f"{' '.join(parts)} ended with {ended.code}{text}")
        return ended.code == 0


async def run_command(parts: Sequence[str]) -> Ended:
    """Run one of the machine's programs. Raises ProgramFailed: it did not end by itself."""
    program = Program(parts[0], parts[1:], {"LC_ALL": "C"})
    try:
        await run_program(program, b"", timeout=COMMAND_S)
    except ProgramFailed as error:
        if error.exit_status is None:
            raise
        text = " ".join(error.complaint.split())
        return Ended(error.exit_status, text[:ANSWER_CHARACTERS])
    return Ended(0, "")
