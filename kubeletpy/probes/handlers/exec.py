"""The exec handler: a command in the container, through the runtime. Never a shell of our own."""

from __future__ import annotations

from collections.abc import Sequence

from kubeletpy.probes.handlers.outcome import (
    KEPT_OUTPUT,
    HandlerError,
    HandlerResult,
    Reply,
    go_seconds,
)
from kubeletpy.remote.errors import CRIError, DeadlineExceeded
from kubeletpy.remote.protocol import RuntimeService


async def run_command(
    runtime: RuntimeService, container_id: str, command: Sequence[str], timeout: float
) -> Reply:
    """Success if the command exits with 0 within ``timeout`` seconds; 0: no limit.

    A command that ends otherwise, or does not end, is a Failure: its output has the details. The
    answer may come after the limit: a runtime waits for every process that holds the command's
    output open, even when the command itself has ended. The call's own deadline bounds the wait;
    probes keep a shorter one (:mod:`kubeletpy.probes.commands`).

    Raises:
        HandlerError: the runtime could not run the command.
    """
    try:
        answer = await runtime.exec_sync(container_id, command, timeout)
    except DeadlineExceeded:
        shown = " ".join(command)[:200]
        return Reply(
            HandlerResult.FAILURE,
            f'command timed out: "{shown}" timed out after {go_seconds(timeout)}',
        )
    except CRIError as error:
        raise HandlerError(
            f"rpc error: code = {error.code.shown} desc = {error.details or error}"
        ) from error
    output = answer.stdout[:KEPT_OUTPUT]
    output += answer.stderr[: KEPT_OUTPUT - len(output)]
    text = output.decode("utf-8", "replace")
    worked = HandlerResult.SUCCESS if answer.exit_code == 0 else HandlerResult.FAILURE
    return Reply(worked, text, answer.exit_code)
