"""Images in use by starts of containers, and the queue of pulls.

:class:`ImageUses` keeps starts and removals apart, image by image. The runtime lists a use only
once the container exists. From the moment a start has found or pulled its image until then, the
start holds the image here. A removal marks its image here while the runtime works on it. Both are
checked without an await, so no start slips in between.

:class:`PullQueue` limits how many pulls run at once, and how many start per second.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, nullcontext

from kubeletpy.base.structs import Component, Struct
from kubeletpy.images.policy import PullPosition
from kubeletpy.remote.local_server import Rate

Start = tuple[str, str]
"""A start of a container: uid of the pod, name of the container."""
MOST_REMOVALS = 4096
"""Removals kept; a start that takes longer than so many creates its container without its image."""


class ImageUses:
    """The images that starts hold, and those that are being removed, by the runtime's id."""

    def __init__(self) -> None:
        self.removals = 0
        """Removals begun so far: the position that :meth:`hold` takes."""
        self._held: dict[Start, set[str]] = {}
        self._used: set[str] = set()
        self._removing: dict[str, asyncio.Event] = {}
        self._removed: dict[str, int] = {}
        """Image -> number of its last removal."""

    def begin_round(self) -> None:
        """Count uses from now on: the runtime's list, read next, has the earlier ones."""
        self._used = set[str]().union(*self._held.values())

    def used(self, image_id: str) -> bool:
        """Whether a start has held the image at any time since the round began."""
        return image_id in self._used

    async def hold(self, start: Start, image_id: str, since: int) -> bool:
        """Hold an image for a start until :meth:`release`.

        Args:
            since: ``removals`` before the runtime was queried for the image, or pulled it.

        Returns False, after the end of its removal, if the image was removed meanwhile: the
        runtime's answer is outdated.
        """
        if (removing := self._removing.get(image_id)) is not None:
            await removing.wait()
            return False
        if self._removed.get(image_id, 0) > since:
            return False
        self._held.setdefault(start, set()).add(image_id)
        self._used.add(image_id)
        return True

    def release(self, start: Start) -> None:
        """The container of this start exists, or will not be created."""
        self._held.pop(start, None)

    @contextmanager
    def removing(self, image_id: str) -> Iterator[None]:
        """Mark an image that is not used while the block removes it."""
        self.removals += 1
        self._removed.pop(image_id, None)
        self._removed[image_id] = self.removals
        if len(self._removed) > MOST_REMOVALS:
            del self._removed[next(iter(self._removed))]
        ended = self._removing[image_id] = asyncio.Event()
        try:
            yield
        finally:
            del self._removing[image_id]
            ended.set()


class PullRateExceeded(Exception):
    """registryPullQPS and registryBurst are exhausted: no pull now."""


class Ticket(Struct, eq=False, frozen=True):
    """One pull, by its owner's name for it; two of the same name are two pulls."""

    pod: str
    what: str


class PullQueue(Component):
    """Grants pulls in order of arrival: one at a time, a limited number, or all at once.

    ``parallel`` is how many pulls may run together (1 for serializeImagePulls), None for no limit.
    ``qps`` and ``burst`` are starts per second and in a burst; ``qps`` 0 is no limit.
    """

    parallel: int | None
    qps: float
    burst: int

    def __post_init__(self) -> None:
        self._limit = self.parallel or None
        self._slots = asyncio.Semaphore(self.parallel) if self.parallel else None
        self._waiting: dict[Ticket, float] = {}
        self._running: dict[Ticket, float] = {}
        self._rate = Rate(self.qps, max(self.burst, 1)) if self.qps > 0 else None

    @asynccontextmanager
    async def slot(self, ticket: Ticket) -> AsyncIterator[None]:
        """Wait for a slot and hold it."""
        loop = asyncio.get_running_loop()
        self._waiting[ticket] = loop.time()
        try:
            async with self._slots or nullcontext():
                del self._waiting[ticket]
                self._running[ticket] = loop.time()
                yield
        finally:
            self._waiting.pop(ticket, None)
            self._running.pop(ticket, None)

    def positions(self) -> Iterator[tuple[Ticket, PullPosition]]:
        """The pulls that are under way, and those that wait, in order."""
        running = len(self._running)
        for ticket, since in self._running.items():
            yield ticket, PullPosition(since, None, running, self._limit)
        for ahead, (ticket, since) in enumerate(self._waiting.items()):
            yield ticket, PullPosition(since, ahead, running, self._limit)

    def take_token(self) -> None:
        """Count one request to a registry.

        Raises:
            PullRateExceeded: there were too many.
        """
        if self._rate is not None and not self._rate.takes(asyncio.get_running_loop().time()):
            raise PullRateExceeded("pull QPS exceeded")
