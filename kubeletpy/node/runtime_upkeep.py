"""Keeps the runtime and the Node object in sync: the pod CIDR, and the runtime's identity.

The node's range (spec.podCIDRs; without an API, podCIDR from the configuration) is passed to the
runtime, again after a lost connection. After that, another version may run behind the socket.
Source: docs/reference/behaviour.md, o1; docs/reference/config.csv: podCIDR.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from kubeletpy.base.api import types as api
from kubeletpy.node.build import RuntimeInfo
from kubeletpy.remote.errors import CRIError
from kubeletpy.remote.generated import api_pb2 as cri
from kubeletpy.remote.protocol import RuntimeService

RETRY_S = 10.0

log = logging.getLogger(__name__)


class RuntimeUpkeep:
    """Keeps the runtime's properties and the node's range of pod addresses current."""

    def __init__(
        self,
        runtime: RuntimeService,
        info: RuntimeInfo,
        *,
        read: Callable[[], Awaitable[RuntimeInfo]] | None = None,
        changed: Callable[[], None] = lambda: None,
        pod_cidr: str = "",
    ) -> None:
        """Args:
        info: the runtime at startup.
        read: reads them again, may raise CRIError; None: it never changes.
        changed: called when the runtime info has changed.
        pod_cidr: from the configuration, for a node without an API.
        """
        self._runtime = runtime
        self._info = info
        self._read = read
        self._changed = changed
        self._wanted = pod_cidr
        self._passed = ""
        self._returned = False
        self._due = asyncio.Event()
        if pod_cidr:
            self._due.set()

    def info(self) -> RuntimeInfo:
        """The current runtime info."""
        return self._info

    def node_shown(self, node: api.Node) -> None:
        """The API has shown the node."""
        spec = node.get("spec") or {}
        single = spec.get("podCIDR")
        wanted = ",".join(spec.get("podCIDRs") or ([single] if single else []))
        if wanted and wanted != self._wanted:
            self._wanted = wanted
            self._due.set()

    def connection_changed(self, connected: bool) -> None:
        """The connection to the runtime was lost or is back."""
        if connected:
            self._returned, self._passed = True, ""
            self._due.set()

    async def run(self) -> None:
        """Do what is due until cancelled; failures are retried."""
        while True:
            await self._due.wait()
            self._due.clear()
            try:
                await self._refresh()
            except CRIError as error:
                log.warning(
                    "could not update or query the runtime; retrying",
                    extra={"podCIDR": self._wanted, "why": str(error)},
                )
                await asyncio.sleep(RETRY_S)
                self._due.set()

    async def _refresh(self) -> None:
        if self._returned and self._read is not None:
            found = await self._read()
            self._returned = False
            if found != self._info:
                log.info(
                    "the runtime is another one",
                    extra={"runtime": found.name, "version": found.version},
                )
                self._info = found
                self._changed()
        wanted = self._wanted
        if wanted and wanted != self._passed:
            network = cri.NetworkConfig(pod_cidr=wanted)
            await self._runtime.update_runtime_config(cri.RuntimeConfig(network_config=network))
            self._passed = wanted
            log.info("the runtime has received the range of pods", extra={"podCIDR": wanted})
