"""Runs a program of this machine once: input on stdin, answer on stdout.

It gets a session of its own, so that everything it starts can be ended with it; its time and output
are bounded. Must never log the input or the answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Mapping, Sequence
from typing import Protocol

from kubeletpy.base.structs import Struct
from kubeletpy.base.text import scrub

TIMEOUT_S = 60.0
MAX_OUTPUT = 1 << 20
"""Bytes of stdout, and likewise of stderr."""
MAX_COMPLAINT = 1000
"""Bytes of stderr that an error shows."""
_STDOUT, _STDERR, _EXIT = 1, 2, -1


class ProgramFailed(Exception):
    """A program gave no answer; the text is fit for a log.

    Attributes:
        exit_status: None if it did not exit by itself.
        complaint: what it wrote to stderr, scrubbed and shortened.
    """

    def __init__(
        self, message: str, exit_status: int | None = None, *, complaint: str = ""
    ) -> None:
        super().__init__(message)
        self.exit_status = exit_status
        self.complaint = complaint


class Program(Struct, frozen=True):
    """The program to run."""

    path: str
    args: Sequence[str] = ()
    env: Mapping[str, str] | None = None
    """Added to the agent's own environment."""


class RunProgram(Protocol):
    """Runs a program; :func:`run_program` is the real implementation."""

    async def __call__(
        self, program: Program, request: bytes, *, hidden: Sequence[str] = ()
    ) -> bytes:
        """Its stdout. Raises ProgramFailed."""


async def run_program(
    program: Program, request: bytes, *, hidden: Sequence[str] = (), timeout: float | None = None
) -> bytes:
    """Run a program and return what it wrote to stdout.

    Args:
        program: path, arguments, environment.
        request: for its stdin.
        hidden: texts that no error may show.
        timeout: seconds after which it is killed; None: ``TIMEOUT_S``.

    Raises:
        ProgramFailed: it could not be started, failed, took too long or wrote too much.
    """
    seconds = TIMEOUT_S if timeout is None else timeout
    try:
        transport, conversation = await _start(program)
    except OSError as error:
        raise ProgramFailed(f"could not be started: {error.strerror}") from error
    finished = False
    try:
        async with asyncio.timeout(seconds):
            _write_stdin(transport, request)
            await conversation.ended
        finished = True
    except TimeoutError:
        raise ProgramFailed(f"did not finish within {seconds:g} s") from None
    finally:
        if not finished:
            _kill(transport)
        transport.close()
    code = transport.get_returncode()
    if code:
        stated = conversation.texts[_STDERR][:MAX_COMPLAINT].decode(errors="replace")
        stated = scrub(stated, hidden).strip()
        how = f"exit status {code}" if code > 0 else f"signal {-code}"
        status = code if code > 0 else None
        raise ProgramFailed(f"{how}: {stated}" if stated else how, status, complaint=stated)
    return bytes(conversation.texts[_STDOUT])


async def _start(program: Program) -> tuple[asyncio.SubprocessTransport, _ProgramOutput]:
    loop = asyncio.get_running_loop()
    starting = loop.create_task(
        loop.subprocess_exec(
            _ProgramOutput,
            program.path,
            *program.args,
            env={**os.environ, **(program.env or {})},
            start_new_session=True,
        )
    )
    try:
        return await asyncio.shield(starting)
    except asyncio.CancelledError:
        # half started, nobody could end it; this takes but a moment
        with contextlib.suppress(OSError):
            transport, _ = await starting
            _kill(transport)
            transport.close()
        raise


def _kill(transport: asyncio.SubprocessTransport) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(transport.get_pid(), signal.SIGKILL)


def _write_stdin(transport: asyncio.SubprocessTransport, request: bytes) -> None:
    stdin = transport.get_pipe_transport(0)
    assert isinstance(stdin, asyncio.WriteTransport), "it was requested"
    stdin.write(request)
    stdin.close()  # after the write; a program need not read its input


class _ProgramOutput(asyncio.SubprocessProtocol):
    """Collects a program's output; ends when it has exited and its output is closed."""

    def __init__(self) -> None:
        self.texts = {_STDOUT: bytearray(), _STDERR: bytearray()}
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._open = {_STDOUT, _STDERR, _EXIT}

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        text = self.texts[fd]
        text += data
        if len(text) > MAX_OUTPUT and not self.ended.done():
            self.ended.set_exception(ProgramFailed(f"wrote more than {MAX_OUTPUT} bytes"))

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        self._close(fd)

    def process_exited(self) -> None:
        self._close(_EXIT)

    def _close(self, what: int) -> None:
        self._open.discard(what)
        if not self._open and not self.ended.done():
            self.ended.set_result(None)
