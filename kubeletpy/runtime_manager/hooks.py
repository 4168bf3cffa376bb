"""Where lifecycle hooks plug in: the interface of the runtime manager, and nothing behind it.

Must never run a hook itself.
"""

from __future__ import annotations

from typing import Protocol

from kubeletpy.base.api import types as api
from kubeletpy.pods.pod import Pod


class HookFailed(Exception):
    """A hook failed; the text is the container's message and holds no secret."""


class LifecycleHooks(Protocol):
    """Runs the hooks of a container's ``lifecycle``."""

    async def post_start(self, pod: Pod, container: api.Container, container_id: str) -> None:
        """After the start; the rest of the sync waits. Raises HookFailed: the container goes."""
        ...

    async def pre_stop(
        self,
        pod: Pod | None,
        container_name: str,
        container_id: str,
        handler: api.LifecycleHandler,
    ) -> None:
        """Before the stop, within the grace period; the caller cancels it when that is over.

        ``pod`` is None when only the runtime has it. Raises HookFailed: it is reported, and the
        stop goes on.
        """
        ...
