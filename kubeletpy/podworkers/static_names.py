"""Assigns the full name of a static pod to one uid at a time: first come, first served. Pure.

A changed manifest makes a new uid under the old full name; the new pod waits until the old one has
ended. Plain data; it must never start anything itself. Source: docs/reference/behaviour.md, b8.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from kubeletpy.base.structs import Struct, field


class NamesInUse(Struct, frozen=True):
    """The uid that uses each full name, and the uids that wait for it, in order."""

    started: Mapping[str, str] = field(default_factory=dict)
    waiting: Mapping[str, Sequence[str]] = field(default_factory=dict)


NOBODY = NamesInUse()
"""No name is in use."""


class StaticNames:
    """Full names in use, and the queues for them."""

    def __init__(self, names: NamesInUse = NOBODY) -> None:
        self._started = dict(names.started)
        self._waiting = {name: list(uids) for name, uids in names.waiting.items()}

    def in_use(self) -> NamesInUse:
        """The names in use and the queues as they are now."""
        waiting = {name: tuple(uids) for name, uids in self._waiting.items()}
        return NamesInUse(dict(self._started), waiting)

    def started(self, full_name: str) -> str | None:
        """The uid that uses a name."""
        return self._started.get(full_name)

    def wait(self, full_name: str, uid: str) -> None:
        """Queue for a name; queueing twice keeps the first place."""
        queue = self._waiting.setdefault(full_name, [])
        if uid not in queue:
            queue.append(uid)

    def may_start(self, full_name: str, uid: str, alive: Callable[[str], bool]) -> bool:
        """Take the name if it is free and no pod ahead in the queue still waits to start."""
        holder = self._started.get(full_name)
        if holder is not None:
            return holder == uid
        queue = [other for other in self._waiting.get(full_name, ()) if alive(other)]
        if queue and queue[0] != uid:
            self._waiting[full_name] = queue
            return False
        self._started[full_name] = uid
        self._set_queue(full_name, queue[1:])
        return True

    def release(self, full_name: str, uid: str) -> list[str]:
        """Give back the name and any place in the queue; returns who is waiting now, in order."""
        if self._started.get(full_name) == uid:
            del self._started[full_name]
        queue = [other for other in self._waiting.get(full_name, ()) if other != uid]
        self._set_queue(full_name, queue)
        return [] if full_name in self._started else list(queue)

    def _set_queue(self, full_name: str, queue: list[str]) -> None:
        if queue:
            self._waiting[full_name] = queue
        else:
            self._waiting.pop(full_name, None)
