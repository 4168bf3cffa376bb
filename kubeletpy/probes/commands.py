"""Commands of exec probes: the agent keeps the deadline, whatever the runtime's call does.

A runtime answers ExecSync only when every process that holds the command's output has ended, also
after it has killed the command at its timeout. Such a call goes on here after its deadline, and no
other command of the same probe runs beside it: at most one process and one call per probe hang.
Must never decide what a result means.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from kubeletpy.handlers.exec import run_command
from kubeletpy.handlers.outcome import Answer, HandlerError, Reply, go_seconds
from kubeletpy.probes.schedule import ProbeKind
from kubeletpy.remote.errors import CRIError, DeadlineExceeded, Unavailable
from kubeletpy.remote.protocol import RuntimeService

SLACK_S = 2.0
"""Seconds after a command's timeout in which the runtime may still report it: the runtime counts
from the start of the process, which takes time of its own on a busy machine."""
RUNTIME_S = 2.0
"""Seconds in which a runtime that works answers ContainerStatus."""

Key = tuple[str, ProbeKind]
"""Container id and kind of the probe."""


class ProbeCommands:
    """Runs the commands of exec probes, one at a time for each probe."""

    def __init__(self, runtime: RuntimeService) -> None:
        self._runtime = runtime
        self._calls: dict[Key, asyncio.Task[Reply]] = {}

    def __len__(self) -> int:
        """Calls that the runtime has not answered."""
        return len(self._calls)

    async def run(self, key: Key, command: Sequence[str], timeout: float) -> Reply:
        """Failure unless the command exits with 0 within ``timeout`` seconds.

        While the runtime has not ended an earlier command of the probe, none is run, and that is a
        Failure too.

        Raises:
            HandlerError: the runtime could not run the command, or does not answer at all.
        """
        limit = f'"{" ".join(command)[:200]}" timed out after {go_seconds(timeout)}'
        if key in self._calls:
            await self._must_answer(key)
            # the same text each time, so that the events of many runs are one
            return Reply(
                Answer.FAILURE,
                f"command timed out: {limit}; the runtime has not ended an earlier run of it (a "
                "process holds its output open), so it is not run again until then",
            )
        work = run_command(self._runtime, key[0], command, timeout)
        task = asyncio.get_running_loop().create_task(work, name=f"probe command in {key[0]}")
        self._calls[key] = task
        task.add_done_callback(lambda done: self._ended(key, done))
        try:
            await asyncio.wait([task], timeout=timeout + SLACK_S)
        except asyncio.CancelledError:
            task.cancel()
            raise
        if task.done():
            return await task
        await self._must_answer(key)
        return Reply(Answer.FAILURE, f"command timed out: {limit}")

    def abandon(self, key: Key) -> None:
        """The probe has ended, or its container: cancel a call that hangs."""
        if (task := self._calls.get(key)) is not None:
            task.cancel()

    async def close(self, seconds: float) -> None:
        """Cancel all calls, and wait at most ``seconds`` for their ends."""
        tasks = list(self._calls.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=seconds)

    async def _must_answer(self, key: Key) -> None:
        """A runtime that answers nothing says nothing about the container. Raises HandlerError."""
        try:
            async with asyncio.timeout(RUNTIME_S):
                await self._runtime.container_status(key[0])
        except (TimeoutError, DeadlineExceeded, Unavailable) as error:
            raise HandlerError(
                f"the container runtime did not answer ContainerStatus within "
                f"{go_seconds(RUNTIME_S)}, so that the command could not be run: check that the "
                "runtime is running and not stopped"
            ) from error
        except CRIError:
            return  # it answers

    def _ended(self, key: Key, task: asyncio.Task[Reply]) -> None:
        if self._calls.get(key) is task:
            del self._calls[key]
        if not task.cancelled():
            task.exception()  # whoever waits for it gets it; a late one has no reader
