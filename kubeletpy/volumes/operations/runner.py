"""Runs volume operations, each as a task of its own, and records their results.

A crash of one operation does not affect the others. Source: docs/reference/behaviour-storage.md,
sd, sg.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from kubeletpy.base.host.errors import exhausted
from kubeletpy.volumes.claims.attached import Attached
from kubeletpy.volumes.claims.model import VolumeSpec, Waits
from kubeletpy.volumes.claims.on_disk import FailureOutcome
from kubeletpy.volumes.claims.operation import OperationFailed
from kubeletpy.volumes.claims.plugin import VolumePlugin
from kubeletpy.volumes.operations.backoff import Backoffs
from kubeletpy.volumes.operations.model import Operation, OperationKind
from kubeletpy.volumes.operations.outcome import Left, OperationDone, after
from kubeletpy.volumes.operations.protocol import CarryOut, OperationListener
from kubeletpy.volumes.operations.state import Running, VolumeState

log = logging.getLogger(__name__)


class OperationRunner:
    """Use it inside a running event loop."""

    def __init__(
        self,
        state: VolumeState,
        backoffs: Backoffs,
        carry_out: CarryOut,
        listener: OperationListener,
        *,
        attachment: Callable[[VolumeSpec], Attached | Waits],
        ended: Callable[[Operation], None],
    ) -> None:
        """``attachment`` answers whether a volume is attached; ``ended`` is called after each."""
        self._state = state
        self._backoffs = backoffs
        self._carry_out = carry_out
        self._listener = listener
        self._attachment = attachment
        self._ended = ended

    def start(self, operation: Operation) -> None:
        """Start an operation with exclusive use of its volume, or of its pod's part of it."""
        log.debug("volume operation", extra={"call": operation.call, "why": operation.reason})
        loop = asyncio.get_running_loop()
        name = f"{operation.kind} {operation.unique_name}"
        task = loop.create_task(self._run(operation), name=name)
        self._state.running[operation.key] = Running(operation, task, loop.time())

    async def _run(self, operation: Operation) -> None:
        loop = asyncio.get_running_loop()
        begun = loop.time()
        state = self._state
        plugin = state.plugins[operation.plugin]
        pod = state.pods.get(operation.pod_uid)
        volume = state.actual.get(operation.unique_name)
        alone = volume is None or not (volume.pods.keys() - {operation.pod_uid})
        failed: OperationFailed | None = None
        result: OperationDone | FailureOutcome
        try:
            attachment = None
            if operation.spec is not None:
                found = self._attachment(operation.spec)
                attachment = None if isinstance(found, Waits) else found
            result = await self._carry_out(operation, plugin, pod, alone, attachment)
        except OperationFailed as error:
            failed, result = error, error.outcome
        except asyncio.CancelledError:
            raise
        except Exception as error:  # a plugin's bug must not stop all other volumes
            log.exception("volume operation broke", extra={"call": operation.call})
            why = str(exhausted(error) or f"{type(error).__name__}: {error}")
            failed = OperationFailed(FailureOutcome.UNCERTAIN, why, call=operation.call)
            result = failed.outcome
        finally:
            state.running.pop(operation.key, None)
        now = loop.time()
        self._note(operation, plugin, result, now)
        self._count(operation, failed, now)
        self._listener.ended(operation, pod, now - begun, failed)
        self._ended(operation)

    def _note(
        self,
        operation: Operation,
        plugin: VolumePlugin,
        result: OperationDone | FailureOutcome,
        now: float,
    ) -> None:
        left = Left(operation.mount, operation.staged)
        if operation.spec is not None and operation.kind is OperationKind.STAGE:
            left = Left(staged=plugin.staged(operation.spec))
        elif operation.spec is not None:
            left = Left(plugin.published(operation.spec, operation.pod_uid))
        actual, name = self._state.actual, operation.unique_name
        actual[name] = after(actual.get(name), operation, result, left, now)

    def _count(self, operation: Operation, failed: OperationFailed | None, now: float) -> None:
        if failed is None:
            self._backoffs.ended(operation.kind, operation.key)
            return
        about = operation.spec or operation.mount or operation.staged
        failed.call = failed.call or operation.call
        driver = about.driver if about is not None else ""
        self._backoffs.failed((operation.kind, operation.key), failed, driver, now)
