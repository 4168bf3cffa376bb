"""Runs journalctl for a client: streams its output, bounded in time and size.

Must never run a shell, nor leave a process behind.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress

READ = 64 << 10
END_S = 5.0
"""How long to wait for a killed process to end."""
MAX_UNITS_TEXT = 1 << 20
"""Bytes of the list of units that are read."""


class JournalMissing(Exception):
    """journalctl is not on this machine, or can't be run."""


async def units(command: Sequence[str]) -> frozenset[str]:
    """The units that have written to the journal; none when there is no journal."""
    try:
        async with _running(command) as output:
            return frozenset((await _read_up_to(output, MAX_UNITS_TEXT)).decode().split("\n"))
    except (JournalMissing, UnicodeDecodeError):
        return frozenset()


async def output(command: Sequence[str], limit: int) -> AsyncGenerator[bytes, None]:
    """The output of a command, both streams merged, truncated after ``limit`` bytes.

    Raises:
        JournalMissing: it can't be run.
    """
    async with _running(command) as stream:
        while limit > 0 and (piece := await stream.read(min(READ, limit))):
            limit -= len(piece)
            yield piece


@asynccontextmanager
async def _running(command: Sequence[str]) -> AsyncIterator[asyncio.StreamReader]:
    try:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env={"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C.UTF-8"},
            start_new_session=True,
            limit=READ,
        )
    except (OSError, ValueError) as error:
        raise JournalMissing(str(error)) from error
    assert process.stdout is not None
    try:
        yield process.stdout
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        with suppress(TimeoutError):
            async with asyncio.timeout(END_S):
                # asyncio notices the exit only when all output has been read
                while await process.stdout.read(READ):
                    pass
                await process.wait()


async def _read_up_to(stream: asyncio.StreamReader, limit: int) -> bytes:
    text = b""
    while len(text) < limit and (piece := await stream.read(READ)):
        text += piece
    return text
