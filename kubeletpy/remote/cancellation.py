"""Whose a cancellation is: gRPC ends calls with one when their channel is closed, too."""

from __future__ import annotations

import asyncio


def is_ours() -> bool:
    """Whether cancellation of the running task was requested.

    A cancelled task keeps the frames that it left: a frame of theirs that refers to the task is a
    cycle with it, so it is looked up here.
    """
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
