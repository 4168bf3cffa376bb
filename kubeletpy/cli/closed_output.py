"""Ends a command quietly when its output is no longer read (``kubeletpy run --help | head``)."""

from __future__ import annotations

import os
import select
import signal
import sys
from collections.abc import Callable

EXIT_CODE = 128 + signal.SIGPIPE
"""The exit code that shells show for a program ended by SIGPIPE, which Python ignores."""


def quiet_if_closed(command: Callable[[], int]) -> int:
    """Run a command and flush its output; returns its exit code, or EXIT_CODE without a reader.

    Raises BrokenPipeError: another pipe or connection than standard output broke.
    """
    try:
        try:
            return command()
        finally:
            if sys.stdout is not None:
                sys.stdout.flush()
    except BrokenPipeError:
        if not _reader_has_closed():
            raise
    # the interpreter flushes what is left once more when it ends
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
    return EXIT_CODE


def _reader_has_closed() -> bool:
    try:
        output = sys.stdout.fileno()
    except (AttributeError, OSError, ValueError):  # there is none, or it is not a file
        return False
    poll = select.poll()
    poll.register(output, 0)  # errors are reported in any case
    return any(events & (select.POLLERR | select.POLLHUP) for _, events in poll.poll(0))
