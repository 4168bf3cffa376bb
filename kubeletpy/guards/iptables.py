"""Keeps the chains of chains.py there: makes them, sees when they were flushed, makes them again.

Where iptables is not there (nftables only) or may not be used, nobody needs the chains: that is
said once. Must never remove a rule of somebody else.
"""

from __future__ import annotations

import asyncio
import logging
import os
import subprocess
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass

from kubeletpy.guards.chains import (
    CANARY_TABLES,
    Answer,
    Wanted,
    answer,
    canaries,
    command,
    is_there,
    is_usable,
    wanted,
)

log = logging.getLogger(__name__)

CHECK_EVERY_S = 60.0
"""How often the canary is looked for, and what failed is tried again."""
FLUSH_LOOK_S, FLUSH_TAKES_S = 0.1, 5.0
"""Whoever flushes does it table by table: the chains are made again when all are through."""
COMMAND_S = 30.0
ANSWER_CHARACTERS = 300


@dataclass(frozen=True, slots=True)
class Ended:
    """How a command ended."""

    code: int
    text: str
    """What it said, shortened."""


Run = Callable[[Sequence[str]], Awaitable[Ended]]
"""Runs a command. Raises OSError: it can't be run, or took too long."""


class IPTablesError(Exception):
    """iptables did not do what it was asked for; the message says what it said."""


class IPTablesChains:
    """The chains of one version of the Internet Protocol."""

    def __init__(self, version: int, run: Run) -> None:
        self._version = version
        self._run = run
        self._failing = False

    async def run(self) -> None:
        """Keep the chains there until cancelled; return where iptables can't be used."""
        try:
            await self._do(is_usable(self._version))
        except IPTablesError as error:
            log.info(
                "iptables can't be used: its chains for other components are not made",
                extra={"ip": self._version, "why": str(error)},
            )
            return
        while True:
            try:
                await self._ensure([*wanted(self._version), *canaries()])
                self._failing = False
                await self._flushed()
            except IPTablesError as error:
                if not self._failing:
                    log.warning(
                        "iptables chains for other components could not be made; tried again",
                        extra={"ip": self._version, "why": str(error)},
                    )
                self._failing = True
                await asyncio.sleep(CHECK_EVERY_S)
            else:
                log.info(
                    "iptables were flushed: chains are made again", extra={"ip": self._version}
                )

    async def _ensure(self, things: Iterable[Wanted]) -> None:
        for each in things:
            there = bool(each.check) and await self._do(self._command(each, each.check))
            if not there:
                await self._do(self._command(each, each.make))

    def _command(self, thing: Wanted, arguments: tuple[str, ...]) -> list[str]:
        return command(self._version, thing.table, arguments)

    async def _flushed(self) -> None:
        """Wait until the canaries are gone."""
        first, *others = CANARY_TABLES
        while True:
            await asyncio.sleep(CHECK_EVERY_S)
            if not await self._do(is_there(self._version, first)):
                break
        looks = round(FLUSH_TAKES_S / FLUSH_LOOK_S)
        for _ in range(looks):
            if not any([await self._do(is_there(self._version, table)) for table in others]):
                return
            await asyncio.sleep(FLUSH_LOOK_S)

    async def _do(self, words: Sequence[str]) -> bool:
        """Whether the answer is yes. Raises IPTablesError."""
        try:
            ended = await self._run(words)
        except OSError as error:
            raise IPTablesError(f"{words[0]}: {error.strerror or error}") from error
        if (said := answer(ended.code)) is Answer.FAILED:
            text = f": {ended.text}" if ended.text else ""
            raise IPTablesError(f"{' '.join(words)} ended with {ended.code}{text}")
        return said is Answer.YES


async def run_command(words: Sequence[str]) -> Ended:
    """Run a program of the machine. Raises OSError."""
    return await asyncio.to_thread(_run, words)


def _run(words: Sequence[str]) -> Ended:
    try:
        done = subprocess.run(
            words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env={"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C"},
            start_new_session=True,
            timeout=COMMAND_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise TimeoutError(f"no end within {COMMAND_S:g} s") from error
    text = " ".join(done.stderr.decode(errors="replace").split())
    return Ended(done.returncode, text[:ANSWER_CHARACTERS])
