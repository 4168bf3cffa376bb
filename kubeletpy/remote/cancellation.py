"""Finds who cancelled a call: gRPC also cancels calls when their channel is closed."""

from __future__ import annotations

import asyncio


def is_ours() -> bool:
    """Whether cancellation of the running task was requested.

    A cancelled task keeps the frames that it left: a frame of theirs that refers to the task is a
    cycle with it, so it is looked up here.
    """
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
