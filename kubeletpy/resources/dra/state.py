"""The claims on this node, in memory and in their file.

A change is on the disk when ``put`` or ``drop`` returns. Source:
docs/reference/behaviour-resources.md, rx.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from pathlib import Path

from kubeletpy.base.host.files import write_private
from kubeletpy.base.tasks import Lasting
from kubeletpy.resources.dra.claims import ClaimProblem
from kubeletpy.resources.dra.model import BadClaimState, ClaimInfo, ClaimKey, Claims

MAX_BYTES = 16 << 20
"""More than the claims of any node need; a bigger file is not read."""


class ClaimState:
    """Use it inside the event loop only."""

    def __init__(self, path: Path, show: Callable[[Claims], None]) -> None:
        """Read the file, if there is one; ``show`` is called with the claims at each change.

        Raises:
            BadClaimState: it cannot be used. The agent must not run then: claims of running pods
                would be prepared again, and never unprepared.
        """
        self._path = path
        self._show = show
        self._claims: dict[ClaimKey, ClaimInfo] = {claim.key: claim for claim in _read(path)}
        self._turn = asyncio.Lock()
        self._lasting = Lasting()
        self._written = 0
        self._version = 0
        show(self._claims)

    @property
    def claims(self) -> Claims:
        """All claims."""
        return self._claims

    async def put(self, claims: Iterable[ClaimInfo]) -> None:
        """Add or replace these claims. Raises ClaimProblem: the disk does not take it."""
        for claim in claims:
            self._claims[claim.key] = claim
        await self._save()

    async def drop(self, claims: Iterable[ClaimInfo]) -> None:
        """Forget these claims. Raises ClaimProblem: the disk does not take it."""
        for claim in claims:
            self._claims.pop(claim.key, None)
        await self._save()

    async def close(self) -> None:
        """Wait for a write in progress."""
        await self._lasting.close()

    async def _save(self) -> None:
        """Write the current state; a write continues even when its waiter is canceled."""
        self._version += 1
        self._show(self._claims)
        await self._lasting.finish(self._write(self._version))

    async def _write(self, mine: int) -> None:
        """Have it written; a caller that waits for its turn may find that done."""
        from kubeletpy.resources.dra import checkpoint

        async with self._turn:
            if self._written >= mine:
                return
            version, text = self._version, checkpoint.written(self._claims.values())
            try:
                await asyncio.to_thread(write_private, self._path, text)
            except OSError as error:
                raise ClaimProblem(f"{self._path} cannot be written: {error}") from error
            self._written = version


def _read(path: Path) -> list[ClaimInfo]:
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
        if len(data) > MAX_BYTES:
            raise BadClaimState(f"it has more than {MAX_BYTES} bytes")
        from kubeletpy.resources.dra import checkpoint  # most nodes have no claims

        return checkpoint.parse_checkpoint(data.decode())
    except FileNotFoundError:
        return []
    except (OSError, ValueError) as error:
        raise BadClaimState(f"{path}: {error}. Drain the node and remove the file") from error
