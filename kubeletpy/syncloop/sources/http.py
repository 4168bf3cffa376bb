"""The source *http*: static pods from a URL, polled at intervals.

The pods last read stay in force while the URL returns none that can be read; an empty answer means
that there are none. The headers are never logged: they may hold credentials.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from aiohttp import client

from kubeletpy.base.structs import Component, field
from kubeletpy.kubeapi.sessions import USER_AGENT
from kubeletpy.pods.pod import SOURCE_HTTP
from kubeletpy.remote.errors import CRIError
from kubeletpy.syncloop.sources.file import Deliver
from kubeletpy.syncloop.sources.manifest import (
    MAX_MANIFEST,
    ManifestError,
    Origin,
    decode_manifest,
    renamed,
)

if TYPE_CHECKING:
    from kubeletpy.syncloop.sources.static_uids import StaticUids

log = logging.getLogger(__name__)

TIMEOUT = 10.0


class HttpSource(Component):
    """Polls ``url`` at once and every ``check_frequency`` seconds."""

    url: str
    node_name: str
    to: Deliver
    headers: Mapping[str, Sequence[str]] = field(default_factory=dict)
    check_frequency: float = 20.0
    uids: StaticUids | None = None
    """Which uids pods have whose manifests have none; None: the computed ones."""

    def __post_init__(self) -> None:
        self._origin = Origin(self.node_name, self.url, is_file=False)
        self._headers = [(k, v) for k, values in self.headers.items() for v in values]
        self._last: bytes | None = None
        self._problem = ""

    async def run(self) -> None:
        """Poll the URL periodically until cancelled."""
        timeout = client.ClientTimeout(total=TIMEOUT)
        try:
            named = {"User-Agent": USER_AGENT}
            async with client.ClientSession(timeout=timeout, headers=named) as session:
                while True:
                    try:
                        await self.deliver(await self._fetch(session))
                        self._log_problem("")
                    except (client.ClientError, TimeoutError) as error:
                        self._log_problem(f"{type(error).__name__}: {error}")
                    except (ManifestError, CRIError) as error:
                        self._log_problem(str(error))
                    await asyncio.sleep(self.check_frequency)
        finally:
            if self.uids is not None:
                await self.uids.close()

    async def deliver(self, body: bytes) -> None:
        """Deliver what a body holds, unless it is the same as last time.

        Raises ManifestError, or CRIError if the runtime does not report which static pods run.
        """
        if body == self._last:
            return
        computed: set[str] = set()
        # on a thread: megabytes of YAML take seconds
        pods = (
            await asyncio.to_thread(decode_manifest, body, self._origin, computed) if body else []
        )
        if self.uids is not None:
            changed = dict.fromkeys(computed)
            uids = await self.uids.settle(SOURCE_HTTP, pods, changed)
            pods = [renamed(pod, uids) for pod in pods]
        self._last = body
        self.to(SOURCE_HTTP, pods)

    async def _fetch(self, session: client.ClientSession) -> bytes:
        async with session.get(self.url, headers=self._headers) as response:
            if response.status != 200:
                raise ManifestError(f"answered with status {response.status}")
            body = bytearray()
            async for chunk in response.content.iter_chunked(65536):
                body += chunk
                if len(body) > MAX_MANIFEST:
                    raise ManifestError(f"larger than {MAX_MANIFEST} bytes")
            return bytes(body)

    def _log_problem(self, problem: str) -> None:
        if problem and problem != self._problem:
            log.error("static pods from URL not read", extra={"url": self.url, "problem": problem})
        self._problem = problem
