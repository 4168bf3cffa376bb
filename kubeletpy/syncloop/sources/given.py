"""A source of static pods that a program brings itself: one that embeds an agent.

Its pods pass the same checks, defaults and computation of uids as a manifest from a URL.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Protocol

from kubeletpy.base.api.types import JSON
from kubeletpy.pods.pod import SOURCE_API, SOURCE_FILE, SOURCE_HTTP
from kubeletpy.syncloop.sources.api import Deliveries
from kubeletpy.syncloop.sources.manifest import Origin, decode_manifest

Show = Callable[[Sequence[JSON]], None]
"""Takes all pods of a source, each a v1 Pod as JSON; previous pods that are not among them end.

Raises ValueError, which states what is wrong, if any of them can't be a static pod; then the pods
previous ones stay."""


class PodSource(Protocol):
    """A program's own source of pods: they run without an API, as static pods do."""

    @property
    def name(self) -> str:
        """The source's unique name, used in the pods' annotation
        ``kubernetes.io/config.source``."""
        ...

    async def run(self, show: Show) -> None:
        """Show the pods, at once and at every change, until cancelled.

        Nothing on the node is cleaned up before the first call of ``show``. If it raises or
        returns, the agent ends.
        """
        ...


class GivenSource:
    """Delivers what a PodSource shows."""

    def __init__(self, source: PodSource, node_name: str, deliveries: Deliveries) -> None:
        """Raises ValueError for a name that one of the agent's own sources has."""
        if source.name in ("", SOURCE_API, SOURCE_FILE, SOURCE_HTTP):
            raise ValueError(f"a source of pods can't be named {source.name!r}: choose another")
        self._source = source
        self._origin = Origin(node_name, source.name, is_file=False)
        self._deliveries = deliveries

    async def run(self) -> None:
        """Run the source until cancelled."""
        await self._source.run(self._show)
        raise RuntimeError(f"the source of pods {self._source.name} has ended")

    def _show(self, pods: Sequence[JSON]) -> None:
        manifest = {"apiVersion": "v1", "kind": "PodList", "items": list(pods)}
        decoded = decode_manifest(json.dumps(manifest).encode(), self._origin)
        self._deliveries.deliver(self._source.name, decoded)
