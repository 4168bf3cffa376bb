"""Ends a command in order: once when it is signalled, and quietly when nobody reads its output.

The same request to stop often arrives twice within milliseconds: ``timeout -s INT`` signals its
child and then its process group. Handlers that are removed at the first signal, as those of an
event loop at its end, turn the second one into a traceback.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Any, TypeVar

from kubeletpy.base.structs import Component

if TYPE_CHECKING:
    import asyncio

_Result = TypeVar("_Result")

EXIT_CODE = 128 + signal.SIGPIPE
"""The exit code that shells show for a program ended by SIGPIPE, which Python ignores."""
INTERRUPTED = 128 + signal.SIGINT
"""The exit code that shells show for a program ended by SIGINT."""
REPEAT_S = 1.0
"""A signal that comes this soon after the first one is the same request. A later one ends the
process at once."""
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class StopRequest(Component):
    """The stop that signals have requested of this process.

    Attributes:
        made: whether there was a signal.
        act: what the first signal calls; it may raise.
        patience: seconds after which another signal ends the process at once.
    """

    act: Callable[[], None]

    def __post_init__(self) -> None:
        self.patience = REPEAT_S
        self._first_at: float | None = None
        self._replaced: dict[int, Any] = {}

    @property
    def made(self) -> bool:
        """Whether there was a signal."""
        return self._first_at is not None

    def handle(self, numbers: Sequence[int]) -> None:
        """Handle these signals, also those that came while they were blocked."""
        for number in numbers:
            if number not in self._replaced:
                self._replaced[number] = signal.signal(number, self._received)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, numbers)

    def restore(self) -> None:
        """Put the handlers back that were there before."""
        for number, handler in self._replaced.items():
            signal.signal(number, handler)

    def _received(self, number: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        if self._first_at is None:
            self._first_at = now
            self.act()
        elif now - self._first_at >= self.patience:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)


_of_process: StopRequest | None = None


def end_in_order(command: Callable[[], int], *, serves: bool = False) -> int:
    """Run a command of a process; returns its exit code, INTERRUPTED or EXIT_CODE.

    Args:
        command: the command.
        serves: it runs until it is signalled, which is its success. A signal that comes before it
            begins to serve is kept until then (:func:`run_until_signalled`).
    """
    global _of_process  # noqa: PLW0603  signals are the process's
    if threading.current_thread() is not threading.main_thread():
        return quiet_if_closed(command)  # no signal reaches it
    request = _of_process = StopRequest(_keep if serves else _interrupt)
    if serves:
        request.handle(STOP_SIGNALS)
    elif signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        request.handle((signal.SIGINT,))
    try:
        return quiet_if_closed(command)
    except KeyboardInterrupt:
        return INTERRUPTED
    finally:
        _of_process = None
        if not request.made:  # else the interpreter still has to end in peace
            request.restore()


def run_until_signalled(
    running: Coroutine[Any, Any, _Result],
    *,
    numbers: Sequence[int] = STOP_SIGNALS,
    patience: float = REPEAT_S,
    loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None,
) -> _Result:
    """Run a coroutine on an event loop of its own; the first of these signals cancels it.

    Args:
        running: the coroutine; after an earlier signal it is cancelled before it begins.
        numbers: the signals.
        patience: see :class:`StopRequest`.
        loop_factory: makes the event loop.

    Raises:
        KeyboardInterrupt: it was cancelled by a signal.
    """
    import asyncio  # no command that only prints needs it

    with _request(numbers) as request:
        request.patience = patience
        try:
            with asyncio.Runner(loop_factory=loop_factory) as runner:
                return runner.run(_cancelled_by(request, running))
        except asyncio.CancelledError:
            if request.made:
                raise KeyboardInterrupt from None
            raise


@contextmanager
def interruptible() -> Iterator[None]:
    """A signal raises KeyboardInterrupt in the block, such as one that waits for a person."""
    if _of_process is None:
        yield
        return
    before, _of_process.act = _of_process.act, _interrupt
    try:
        yield
    finally:
        _of_process.act = before


@contextmanager
def _request(numbers: Sequence[int]) -> Iterator[StopRequest]:
    if threading.current_thread() is not threading.main_thread():
        yield StopRequest(_keep)  # no signal reaches it
        return
    if _of_process is not None:
        _of_process.handle(numbers)
        yield _of_process
        return
    request = StopRequest(_keep)
    request.handle(numbers)
    try:
        yield request
    finally:
        request.restore()


async def _cancelled_by(request: StopRequest, running: Coroutine[Any, Any, _Result]) -> _Result:
    import asyncio

    loop, task, before = asyncio.get_running_loop(), asyncio.ensure_future(running), request.act

    def cancel() -> None:
        loop.call_soon_threadsafe(task.cancel)

    request.act = cancel
    if request.made:
        task.cancel()
    try:
        return await task
    finally:
        request.act = before


def _keep() -> None:
    """Only remember it."""


def _interrupt() -> None:
    raise KeyboardInterrupt


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
