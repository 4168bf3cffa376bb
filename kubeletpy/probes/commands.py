"""Commands of exec probes: the agent keeps the deadline, whatever the runtime's call does.

A runtime answers ExecSync only when every process that holds the command's output has ended, also
after it has killed the command at its timeout. Such a call goes on here after its deadline, and no
other command of the same probe runs beside it: at most one process and one call per probe hang.
Must never decide what a result means.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from kubeletpy.base.structs import Struct
from kubeletpy.probes.handlers.exec import run_command
from kubeletpy.probes.handlers.outcome import HandlerError, HandlerResult, Reply, go_seconds
from kubeletpy.probes.schedule import ProbeKind
from kubeletpy.remote.errors import CRIError, DeadlineExceeded, Unavailable
from kubeletpy.remote.protocol import RuntimeService

logger = logging.getLogger(__name__)

SLACK_S = 2.0
"""Seconds after a command's timeout in which the runtime may still report it. The runtime counts
from the start of the process, which takes time of its own on a busy machine."""
RUNTIME_S = 2.0
"""Seconds in which a runtime that works answers ContainerStatus."""

SLOW_S = 0.1
"""A runtime that takes longer for it was silent for a while, and the command may not have run."""
_EARLIER = (
    "; the runtime has not ended an earlier run of it, so it is not run again until then: a "
    "process that it started may hold its output open"
)

Key = tuple[str, ProbeKind]
"""Container id and kind of the probe."""


class _Call(Struct):
    task: asyncio.Task[Reply]
    runtime_was_silent: bool = False
    """While it waited: how long the command has run is not known."""


class ProbeCommands:
    """Runs the commands of exec probes, one at a time for each probe."""

    def __init__(self, runtime: RuntimeService) -> None:
        self._runtime = runtime
        self._calls: dict[Key, _Call] = {}

    def __len__(self) -> int:
        """Calls that the runtime has not answered."""
        return len(self._calls)

    async def run(self, key: Key, command: Sequence[str], timeout: float) -> Reply:
        """Failure unless the command exits with 0 within ``timeout`` seconds.

        While the runtime has not ended an earlier command of the probe, none is run, and that is a
        Failure too. A time in which the runtime answers nothing does not count: afterwards the
        command has its timeout once more.

        Raises:
            HandlerError: the runtime could not run the command, or does not answer at all.
        """
        limit = f'"{" ".join(command)[:200]}" timed out after {go_seconds(timeout)}'
        call, more = self._calls.get(key), _EARLIER
        if call is None:
            call, more = self._start(key, command, timeout), ""
            if await _ended_within(call.task, timeout + SLACK_S):
                return await call.task
        if await self._was_silent(key, call) and await _ended_within(call.task, timeout + SLACK_S):
            reply = await call.task
            if reply.exit_code is None and reply.answer is HandlerResult.FAILURE:
                raise HandlerError("the container runtime was silent while the command waited")
            return reply
        # the same text each time, so that the events of many runs are one
        return Reply(HandlerResult.FAILURE, f"command timed out: {limit}{more}")

    def _start(self, key: Key, command: Sequence[str], timeout: float) -> _Call:
        work = run_command(self._runtime, key[0], command, timeout)
        task = asyncio.get_running_loop().create_task(work, name=f"probe command in {key[0]}")
        call = self._calls[key] = _Call(task)
        task.add_done_callback(lambda done: self._ended(key, call))
        return call

    def abandon(self, key: Key) -> None:
        """The probe has ended, or its container: cancel a call that hangs."""
        if (call := self._calls.get(key)) is not None:
            call.task.cancel()

    async def close(self, seconds: float) -> None:
        """Cancel all calls, and wait at most ``seconds`` for their ends."""
        tasks = [call.task for call in self._calls.values()]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=seconds)

    async def _was_silent(self, key: Key, call: _Call) -> bool:
        """Whether the runtime, which answers now, was silent since the call or the last check.

        An empty answer of the runtime has no meaning for the container. Raises HandlerError.
        """
        loop = asyncio.get_running_loop()
        asked_at = loop.time()
        try:
            async with asyncio.timeout(RUNTIME_S):
                await self._runtime.container_status(key[0])
        except (TimeoutError, DeadlineExceeded, Unavailable) as error:
            call.runtime_was_silent = True
            raise HandlerError(
                f"the container runtime did not answer ContainerStatus within "
                f"{go_seconds(RUNTIME_S)}, so that the command could not be run: check that the "
                "runtime is running and not stopped"
            ) from error
        except CRIError as error:
            logger.debug("the runtime answers", extra={"error": str(error)})
        was, call.runtime_was_silent = call.runtime_was_silent, False
        return was or loop.time() - asked_at > SLOW_S

    def _ended(self, key: Key, call: _Call) -> None:
        if self._calls.get(key) is call:
            del self._calls[key]
        if not call.task.cancelled():
            call.task.exception()  # whoever waits for it gets it; a late one has no reader


async def _ended_within(task: asyncio.Task[Reply], seconds: float) -> bool:
    """Wait for a call; if this is cancelled, so is the call."""
    try:
        await asyncio.wait([task], timeout=seconds)
    except asyncio.CancelledError:
        task.cancel()
        raise
    return task.done()
