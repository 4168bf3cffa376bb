"""Streams of users: logs followed and execs opened through the API, and dropped at any moment."""

from __future__ import annotations

import asyncio
import random
import ssl
from collections import Counter
from pathlib import Path
from typing import Any

import aiohttp
import yaml

from bench.manifests import NAMESPACE
from bench.stand import Stand

EVERY = 1.0
AT_ONCE = 8
LONGEST = 6.0
_ERRORS = (aiohttp.ClientError, OSError, TimeoutError)
_READS = ("/stats/summary", "/metrics/cadvisor", "/pods", "/metrics/resource")


class Streams:
    """Opens streams on running containers; ``counts`` has the number that succeeded."""

    def __init__(self, stand: Stand, draw: random.Random) -> None:
        self._stand, self._draw = stand, draw
        self.counts: Counter[str] = Counter()
        config: Any = yaml.safe_load(_admin(stand).read_text())
        self._api: str = config["clusters"][0]["cluster"]["server"]
        self._token: str = config["users"][0]["user"]["token"]

    async def run(self) -> None:
        """Open and drop streams until cancelled."""
        limit = asyncio.Semaphore(AT_ONCE)
        kinds = {"log": self._log, "exec": self._exec, "read": self._read}
        async with self._session() as session, asyncio.TaskGroup() as group:
            while True:
                await asyncio.sleep(self._draw.expovariate(1 / EVERY))
                await limit.acquire()
                kind = self._draw.choices(list(kinds), [3, 3, 1])[0]
                task = group.create_task(kinds[kind](session, self._draw.uniform(0, LONGEST)))
                task.add_done_callback(lambda _: limit.release())

    async def once(self) -> None:
        """Open one stream of each kind, so that one-time resources exist."""
        async with self._session() as session:
            for kind in (self._log, self._exec):
                await kind(session, 0.5)
            for path in _READS:
                await self._get(session, path)

    async def profile(self, name: str) -> str:
        """One page of the agent's /debug/pprof: the resources that its process holds."""
        async with self._session() as session:
            return await self._get(session, f"/debug/pprof/{name}")

    def _session(self) -> aiohttp.ClientSession:
        tls = ssl.create_default_context()
        tls.check_hostname = False
        tls.verify_mode = ssl.CERT_NONE
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=tls, force_close=True),
            headers={"Authorization": f"Bearer {self._token}"},
            timeout=aiohttp.ClientTimeout(total=30),
        )

    def _target(self) -> tuple[str, str] | None:
        running = [
            (name, entry["name"])
            for name, pod in self._stand.pods.latest.items()
            for entry in (pod.get("status") or {}).get("containerStatuses") or ()
            if "running" in (entry.get("state") or {})
        ]
        return self._draw.choice(running) if running else None

    async def _log(self, session: aiohttp.ClientSession, seconds: float) -> None:
        if (target := self._target()) is None:
            return
        url = f"{self._api}/api/v1/namespaces/{NAMESPACE}/pods/{target[0]}/log"
        query = {"container": target[1], "follow": "true"}
        try:
            async with asyncio.timeout(seconds), session.get(url, params=query) as answer:
                self.counts[f"log {answer.status}"] += 1
                async for _ in answer.content.iter_any():
                    pass
        except _ERRORS:
            self.counts["log dropped"] += 1

    async def _exec(self, session: aiohttp.ClientSession, seconds: float) -> None:
        if (target := self._target()) is None:
            return
        url = f"{self._api}/api/v1/namespaces/{NAMESPACE}/pods/{target[0]}/exec"
        query = {"container": target[1], "command": "cat", "stdin": "true", "stdout": "true"}
        protocols = ["v5.channel.k8s.io"]
        try:
            async with (
                asyncio.timeout(seconds),
                session.ws_connect(url, params=query, protocols=protocols) as stream,
            ):
                self.counts["exec"] += 1
                await stream.send_bytes(b"\0hello\n")
                while True:
                    await stream.receive_bytes()
        except (*_ERRORS, TypeError):
            self.counts["exec dropped"] += 1

    async def _read(self, session: aiohttp.ClientSession, _: float) -> None:
        try:
            await self._get(session, self._draw.choice(_READS))
            self.counts["read"] += 1
        except _ERRORS:
            self.counts["read refused"] += 1

    async def _get(self, session: aiohttp.ClientSession, path: str) -> str:
        async with session.get(f"https://127.0.0.1:{self._stand.port}{path}") as answer:
            answer.raise_for_status()
            return await answer.text()


def _admin(stand: Stand) -> Path:
    return stand.server.admin
