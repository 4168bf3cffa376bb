"""Keeps the iptables chains of the guards in place: creates them, also after a flush.

Where iptables is missing (nftables only) or may not be used, nothing needs the chains: that is
logged once. Must never remove somebody else's rule.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence

from kubeletpy.base.host.program import Program, ProgramFailed, run_program
from kubeletpy.base.structs import Struct
from kubeletpy.node.guards import kernel_settings

log = logging.getLogger(__name__)

CHECK_EVERY_S = 60.0
"""How often the canary is checked, and what failed is retried."""
FLUSH_CHECK_S, FLUSH_TAKES_S = 0.1, 5.0
"""Rules are flushed table by table: the chains are created again once all tables are done."""
COMMAND_S = 30.0
ANSWER_CHARACTERS = 300


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

    def __init__(self, version: int, run: Run) -> None:
        self._version = version
        self._run = run
        self._failing = False

    async def run(self) -> None:
        """Keep the chains in place until cancelled; return where iptables can't be used."""
        try:
            await self._run_check(kernel_settings.is_usable(self._version))
        except IPTablesError as error:
            log.info(
                "iptables can't be used: its chains for other components are not created",
                extra={"ip": self._version, "why": str(error)},
            )
            return
        while True:
            try:
                await self._ensure(
                    [*kernel_settings.required_rules(self._version), *kernel_settings.canaries()]
                )
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

    async def _ensure(self, things: Iterable[kernel_settings.Desired]) -> None:
        for each in things:
            there = bool(each.check) and await self._run_check(self._command(each, each.check))
            if not there:
                await self._run_check(self._command(each, each.make))

    def _command(self, thing: kernel_settings.Desired, arguments: tuple[str, ...]) -> list[str]:
        return kernel_settings.command(self._version, thing.table, arguments)

    async def _flushed(self) -> None:
        """Wait until the canaries have disappeared."""
        first, *others = kernel_settings.CANARY_TABLES
        while True:
            await asyncio.sleep(CHECK_EVERY_S)
            if not await self._run_check(kernel_settings.canary_check(self._version, first)):
                break
        looks = round(FLUSH_TAKES_S / FLUSH_CHECK_S)
        for _ in range(looks):
            checks = (kernel_settings.canary_check(self._version, table) for table in others)
            if not any([await self._run_check(check) for check in checks]):
                return
            await asyncio.sleep(FLUSH_CHECK_S)

    async def _run_check(self, parts: Sequence[str]) -> bool:
        """Whether the answer is yes. Raises IPTablesError."""
        try:
            ended = await self._run(parts)
        except ProgramFailed as error:
            raise IPTablesError(f"{parts[0]}: {error}") from error
        if (stated := kernel_settings.answer(ended.code)) is kernel_settings.IptablesExit.FAILED:
            text = f": {ended.text}" if ended.text else ""
            raise IPTablesError(f"{' '.join(parts)} ended with {ended.code}{text}")
        return stated is kernel_settings.IptablesExit.YES


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
