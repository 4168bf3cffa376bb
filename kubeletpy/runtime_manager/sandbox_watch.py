"""The interface to the component that watches new sandboxes. Must never depend on which one."""

from __future__ import annotations

from typing import Protocol

from kubeletpy.pods.pod import Pod


class SandboxWatch(Protocol):
    """Draws conclusions from sandboxes. Must never raise."""

    async def made(self, pod: Pod, sandbox_id: str, handler: str) -> None:
        """The runtime has made a sandbox with a handler; "": the runtime's default one."""
        ...

    def refused(self, pod: Pod, handler: str, error: str) -> None:
        """The runtime has made none; ``error`` is its text."""
        ...
