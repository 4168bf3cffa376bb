"""The order in which a pod's containers stop: sidecars wait until nothing needs them any more.

Source: docs/reference/behaviour.md, n3; KEP-753. Must never stop anything itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection

from kubeletpy.pods.pod import Pod, is_sidecar


def stop_prerequisites(pod: Pod) -> dict[str, tuple[str, ...]]:
    """Sidecar name -> names that end before its turn: all regular containers, the next sidecar."""
    regular = tuple(container["name"] for container in pod.containers)
    prerequisites: dict[str, tuple[str, ...]] = {}
    later: tuple[str, ...] = ()
    for container in reversed(pod.init_containers):
        if is_sidecar(container):
            prerequisites[container["name"]] = (*regular, *later)
            later = (container["name"],)
    return prerequisites


class StopOrder:
    """The turns in stopping one pod."""

    def __init__(self, pod: Pod | None, stopping: Collection[str]) -> None:
        """``stopping``: names of the containers to stop; all others count as ended."""
        self._prerequisites = stop_prerequisites(pod) if pod is not None else {}
        self._ended = {name: asyncio.Event() for name in stopping}

    async def wait_for_turn(self, name: str, grace: float) -> float:
        """Wait until it is the container's turn, at most ``grace`` seconds; returns the wait."""
        awaited = [
            self._ended[other]
            for other in self._prerequisites.get(name, ())
            if other in self._ended and other != name
        ]
        if not awaited or grace <= 0:
            return 0.0
        loop = asyncio.get_running_loop()
        started = loop.time()
        try:
            async with asyncio.timeout(grace):
                for event in awaited:
                    await event.wait()
        except TimeoutError:
            pass
        return loop.time() - started

    def ended(self, name: str) -> None:
        """A container has stopped."""
        if name in self._ended:
            self._ended[name].set()
