"""Measures volumes whose file system may never answer.

A call that hangs keeps its thread until it returns. So each server (or each volume without one) has
one call at a time, and gets no other call while that hangs. At most MOST_HANGING calls may hang at
once. The volumes of other servers are measured meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import TypeVar
from weakref import WeakValueDictionary

from kubeletpy.base.host.patient_threads import PatientThreads
from kubeletpy.volumes.claims.on_disk import FailureOutcome
from kubeletpy.volumes.claims.operation import OperationFailed
from kubeletpy.volumes.usage.meter import AT_ONCE

log = logging.getLogger(__name__)

T = TypeVar("T")

PATIENCE_S = 10.0
"""Seconds within which a working file system answers."""
MOST_HANGING = 16
"""Hanging calls for one kind of volume; each holds a thread."""
_NAMED = 4


class Meters:
    """The threads for one kind of volume. Use it in one event loop."""

    def __init__(self) -> None:
        self._threads = PatientThreads(MOST_HANGING + AT_ONCE)
        self._hanging: dict[str, str] = {}
        """Server or volume that does not answer -> the call."""
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._full = False

    async def measure(self, who: str, call: str, read: Callable[[], T]) -> T:
        """Run ``read`` in a thread and return its result; ``call`` names it.

        Raises OperationFailed: it failed, or ``who`` does not answer, or too many others do not.
        """
        turn = self._turns.setdefault(who, asyncio.Lock())
        async with turn:
            self._check_hanging(who, call)
            try:
                asked = asyncio.get_running_loop().run_in_executor(self._threads, read)
                try:
                    answered, _ = await asyncio.wait((asked,), timeout=PATIENCE_S)
                finally:
                    if not asked.done():  # its thread goes on, even if the caller is canceled
                        self._hanging[who] = call
                        asked.add_done_callback(partial(self._returned, who))
                if answered:
                    return asked.result()
            except OSError as error:
                raise OperationFailed(FailureOutcome.UNCERTAIN, str(error), call=call) from error
            text = f"no answer within {PATIENCE_S:g}s"
            log.warning(
                "volumes are not measured until their file system answers",
                extra={"call": call, "of": who, "hanging": len(self._hanging)},
            )
            raise OperationFailed(FailureOutcome.UNCERTAIN, text, call=call)

    def _check_hanging(self, who: str, call: str) -> None:
        """Raise OperationFailed if ``who`` or too many others do not answer."""
        if who in self._hanging:
            text = f"{who} still has not answered: {self._hanging[who]}"
            raise OperationFailed(FailureOutcome.UNCERTAIN, text, call=call)
        if len(self._hanging) < MOST_HANGING:
            return
        named = ", ".join(list(self._hanging)[:_NAMED])
        text = f"{len(self._hanging)} others do not answer and hold all threads: {named}, ..."
        if not self._full:
            self._full = True
            log.warning("volumes are not measured", extra={"call": call, "why": text})
        raise OperationFailed(FailureOutcome.TRANSIENT, text, call=call)

    def _returned(self, who: str, asked: asyncio.Future[T]) -> None:
        if not asked.cancelled():
            asked.exception()  # nobody waits for it any more
        del self._hanging[who]
        self._full = False
