"""A state file of placement: read and checked at the start, then written as a whole, one write
after another."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from kubeletpy.base.host.files import write_private
from kubeletpy.base.structs import Struct
from kubeletpy.base.tasks import Lasting
from kubeletpy.resources.placement.state_json import StateError

log = logging.getLogger(__name__)

MAX_BYTES = 64 << 20
"""More than any node's pods need; a bigger file is not read."""


_OF_DISK = "Repair its file system, then start again; the file itself may be sound."


class StateUnusable(Exception):
    """The agent can't start with this state file; the message states what to do."""

    def __init__(self, path: Path, why: str, advice: str = "") -> None:
        advice = advice or "Drain this node and delete the file, then start again."
        super().__init__(f"{path} can't be used: {why}. {advice}")


class PlacementState(Protocol):
    """A manager's state: each container's resources, and the policy that allocated them."""

    @property
    def policy(self) -> str:
        """The policy by which it was given."""

    @property
    def entries(self) -> Mapping[str, Any]:
        """The containers' resources, by uid of their pod."""

    @property
    def pools(self) -> Mapping[str, Any]:
        """The resources of pods that are placed as one, by uid."""

    @property
    def is_empty(self) -> bool:
        """Whether it holds nothing: no container has anything, and it describes no machine."""


S = TypeVar("S", bound=PlacementState)


class Form(Struct, Generic[S], frozen=True):
    """How a state is kept.

    Attributes:
        name: the file's.
        setting: the agent's setting that names the policy.
        held: what the entries are, for messages: ``CPUs``.
        read: parses a text to a state; raises StateError.
        write: gives the text of a state.
    """

    name: str
    setting: str
    held: str
    read: Callable[[str], S]
    write: Callable[[S], str]


class StateFile(Generic[S]):
    """One file. Use it inside the event loop only."""

    def __init__(self, root_dir: Path, form: Form[S]) -> None:
        self.path = root_dir / form.name
        self._form = form
        self._turn = asyncio.Lock()
        self._lasting = Lasting()
        self._newest: str | None = None
        """The state that the file should contain."""
        self._written: str | None = None
        self._later: asyncio.Task[None] | None = None

    async def begin(self, fresh: S, problem: Callable[[S], str] | None) -> S:
        """The state to continue from, which the file then contains: what was in it, or a fresh one.

        Args:
            fresh: the state of a node on which no container has anything yet.
            problem: why a state can't be used, or an empty text; None: only the fresh one can
                (policy none).

        Raises:
            StateUnusable: the file can't be read, is damaged, belongs to another policy, does
                not suit this machine, or can't be written.
        """
        try:
            text = self._read()
            state = fresh if text is None else self._checked(text, fresh, problem)
        except StateError as error:
            raise StateUnusable(self.path, str(error)) from error
        except OSError as error:
            raise StateUnusable(self.path, error.strerror or str(error), _OF_DISK) from error
        if text == self._form.write(state):
            # a read-only disk does not keep the agent from starting
            self._newest = self._written = text
            return state
        try:
            await self.write(state)
        except OSError as error:
            if problem is not None:
                raise StateUnusable(self.path, error.strerror or str(error), _OF_DISK) from error
            log.warning("state not written", extra={"path": str(self.path), "error": str(error)})
        return state

    async def write(self, state: S) -> None:
        """Write this state to the file. Raises OSError."""
        await self._write(self._form.write(state))

    def write_soon(self, state: S) -> None:
        """Write this state to the file soon; a failure is left for the next write."""
        self._newest = self._form.write(state)
        if self._later is None:
            self._later = asyncio.ensure_future(self._write_newest())
            self._later.add_done_callback(lambda _: setattr(self, "_later", None))

    async def close(self) -> None:
        """Wait for a write in progress."""
        if self._later is not None:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait([self._later])
        await self._lasting.close()

    # -- inside ---------------------------------------------------------------------------------

    def _read(self) -> str | None:
        """The file's text; None: there is no file, or it is empty. Blocking."""
        try:
            with self.path.open("rb") as file:
                data = file.read(MAX_BYTES + 1)
        except FileNotFoundError:
            return None
        if len(data) > MAX_BYTES:
            raise StateError(f"it is larger than {MAX_BYTES} bytes")
        return data.decode("utf-8", "surrogateescape") or None

    def _checked(self, text: str, fresh: S, problem: Callable[[S], str] | None) -> S:
        found = self._form.read(text)
        if found.policy != fresh.policy:
            raise StateError(
                f'{self._form.setting} is "{fresh.policy}", and the {self._form.held} in it were '
                f'given by "{found.policy}"'
            )
        if problem is None or found.is_empty:
            return fresh
        if why := problem(found):
            raise StateError(why)
        return found

    async def _write(self, text: str) -> None:
        """Write a text; a canceled caller leaves no older one behind a newer one."""
        self._newest = text
        await self._lasting.finish(self._write_in_turn())

    async def _write_in_turn(self) -> None:
        async with self._turn:
            # a newer text that waited meanwhile has written this one too
            newest = self._newest
            if newest is not None and newest != self._written:
                await asyncio.to_thread(self._replace, newest)
                self._written = newest

    async def _write_newest(self) -> None:
        try:
            while self._newest is not None and self._newest != self._written:
                await self._write(self._newest)
        except OSError as error:
            log.warning("state not written", extra={"path": str(self.path), "error": str(error)})

    def _replace(self, text: str) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        write_private(self.path, text.encode("utf-8", "surrogateescape"))
