"""Keeps what a terminating pod's containers read up to date until the last one has ended.

A shutdown hook may run for as long as the grace period, which can exceed the life of a token. While
a pod runs, its syncs update its volumes; while it terminates, one sync waits for the containers to
stop, and a task beside it does this. Must never make anything that a pod did not have. The kubelet
updates nothing in that time. Source: docs/reference/behaviour.md, i4.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Sequence

from kubeletpy.base.structs import Struct, field
from kubeletpy.base.tasks import background
from kubeletpy.pods.pod import Pod
from kubeletpy.podworkers.sync_step import SyncStep

FIRST_S = 1.0
"""Seconds until the first update: most pods have ended by then."""


class _Terminating(Struct):
    pod: Pod
    changed: asyncio.Event = field(default_factory=asyncio.Event)


class TerminatingUpdates:
    """Has the steps of a sync update what they hold for the pods that terminate."""

    def __init__(
        self, steps: Sequence[SyncStep], period_s: float, rng: random.Random | None = None
    ) -> None:
        """``period_s``: the least seconds between two updates; the most are 1.5 times that."""
        self._steps = tuple(steps)
        self._period_s = period_s
        self._rng = rng or random.Random()
        self._pods: dict[str, _Terminating] = {}

    def touch(self, pod: Pod) -> None:
        """Update a terminating pod now: it has changed, or something that it reads has."""
        if (found := self._pods.get(pod.uid)) is not None:
            found.pod = pod
            found.changed.set()

    @contextlib.asynccontextmanager
    async def during(self, pod: Pod) -> AsyncIterator[None]:
        """Update ``pod`` as long as the body runs."""
        terminating = self._pods[pod.uid] = _Terminating(pod)
        name = f"updates of terminating pod {pod.uid}"
        async with background(self._update(terminating), name):
            try:
                yield
            finally:
                del self._pods[pod.uid]

    async def _update(self, terminating: _Terminating) -> None:
        wait = FIRST_S
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    await terminating.changed.wait()
            terminating.changed.clear()
            for step in self._steps:
                await step.keep_up(terminating.pod)
            wait = self._period_s * (1 + self._rng.random() / 2)
