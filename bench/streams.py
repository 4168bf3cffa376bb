"""``python -m bench.streams``: exec and logs through the agent, and from the runtime's own server.

The same client uses both over SPDY, alternating in the same run. It connects to the agent's /exec
over TLS with a bearer token, and to the URL that the runtime returns for the same Exec call. A
round trip begins before the connection (or the CRI call) and ends with the status on the error
stream. The floor of a followed log is reading and formatting the same text without sending it.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import json
import os
import ssl
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from urllib.parse import quote, urlsplit

import aiohttp

from bench.manifests import CONTAINER, NAMESPACE, manifest
from bench.results import Results, Row, table
from bench.stand import NODE, Stand, make_stand
from bench.watching import READY
from kubeletpy.base.wire import spdy
from kubeletpy.base.wire.upgrade import Headers, UpgradeResponse, request_upgrade
from kubeletpy.kubeapi.protocol import PODS
from kubeletpy.remote.client import RemoteRuntime
from kubeletpy.remote.generated import api_pb2 as cri
from kubeletpy.server.logs.records import Formatter

NAME = "streams"
AIM = 1.5
PIECE = 32 << 10
"""Bytes of a data frame, as Go's clients send them."""
_LINE = b"2030-01-01T00:00:00.123456789Z stdout F " + b"x" * 99 + b"\n"
Dial = Callable[[Sequence[str], bool], Awaitable[UpgradeResponse]]


class Spdy:
    """One exec, on a connection that has been upgraded."""

    def __init__(self, answer: UpgradeResponse, *, stdin: bool) -> None:
        if answer.status != 101:
            raise RuntimeError(f"{answer.status} {answer.body!r}")
        loop = asyncio.get_running_loop()
        self._reader = asyncio.StreamReader(limit=1 << 20)
        protocol = asyncio.StreamReaderProtocol(self._reader)
        answer.transport.set_protocol(protocol)
        protocol.connection_made(answer.transport)
        self._reader.feed_data(answer.rest) if answer.rest else None
        answer.transport.resume_reading()
        self._writer = asyncio.StreamWriter(answer.transport, protocol, self._reader, loop)
        encoder = spdy.Encoder()
        self._numbers: dict[str, int] = {}
        for name in ("error", *(["stdin"] if stdin else []), "stdout"):
            self._numbers[name], frame = encoder.open_stream({"streamtype": name})
            self._writer.write(frame)

    async def run(self, supplied: bytes = b"") -> int:
        """Send stdin, read all; bytes of stdout. Raises RuntimeError if the process failed."""
        async with asyncio.TaskGroup() as group:
            if "stdin" in self._numbers:
                group.create_task(self._send(supplied))
            got = await group.create_task(self._read())
        self._writer.transport.abort()
        return got

    async def _send(self, supplied: bytes) -> None:
        number = self._numbers["stdin"]
        for start in range(0, len(supplied), PIECE):
            self._writer.write(spdy.data(number, supplied[start : start + PIECE]))
            await self._writer.drain()
        self._writer.write(spdy.data(number, b"", last=True))

    async def _read(self) -> int:
        decoder, got, status = spdy.SpdyDecoder(), 0, b""
        waiting = {self._numbers["stdout"], self._numbers["error"]}
        while waiting:
            piece = await self._reader.read(1 << 18)
            if not piece:
                raise RuntimeError("the connection ended")
            for frame in decoder.feed(piece):
                if frame.kind == spdy.DATA and frame.stream == self._numbers["stdout"]:
                    got += len(frame.data)
                elif frame.kind == spdy.DATA:
                    status += frame.data
                if frame.is_last:
                    waiting.discard(frame.stream)
        if status and json.loads(status).get("status") != "Success":
            raise RuntimeError(status.decode())
        return got


class Ways:
    """How to reach the container: through the agent, and directly."""

    def __init__(self, stand: Stand, runtime: RemoteRuntime, container: str) -> None:
        self._runtime = runtime
        self._container = container
        config = json.loads((stand.directory / "kubelet.json").read_text())
        self.directory = stand.directory
        self.port: int = config["port"]
        self.token = _token(stand.server.admin)
        self.tls = ssl.create_default_context()
        self.tls.check_hostname = False
        self.tls.verify_mode = ssl.CERT_NONE

    async def agent(self, command: Sequence[str], stdin: bool) -> UpgradeResponse:
        """Through the agent."""
        query = "".join(f"command={quote(each)}&" for each in command)
        query += f"output=1&input={int(stdin)}"
        target = f"/exec/{NAMESPACE}/{NAME}/{CONTAINER}?{query}"
        headers = [("Authorization", f"Bearer {self.token}"), *_upgrade(f"127.0.0.1:{self.port}")]
        return await request_upgrade(
            "127.0.0.1",
            self.port,
            method="POST",
            target=target,
            headers=headers,
            timeout=30,
            tls=self.tls,
        )

    async def direct(self, command: Sequence[str], stdin: bool) -> UpgradeResponse:
        """From the runtime's own streaming server."""
        desired = cri.ExecRequest(
            container_id=self._container, cmd=command, stdin=stdin, stdout=True, stderr=False
        )
        parts = urlsplit(await self._runtime.exec(desired))
        return await request_upgrade(
            parts.hostname or "",
            parts.port or 80,
            method="POST",
            target=parts.path,
            headers=_upgrade(parts.netloc),
            timeout=30,
        )


def _upgrade(host: str) -> Headers:
    return [
        ("Host", host),
        ("Connection", "Upgrade"),
        ("Upgrade", "SPDY/3.1"),
        ("X-Stream-Protocol-Version", "v4.channel.k8s.io"),
        ("Content-Length", "0"),
    ]


def _token(kubeconfig: Path) -> str:
    import yaml

    user = yaml.safe_load(kubeconfig.read_text())["users"][0]["user"]
    return str(user["token"])


async def exec_times(
    ways: Ways, rounds: int, command: Sequence[str], supplied: bytes | None
) -> Row:
    """Milliseconds of one exec, alternating."""
    took: dict[str, list[float]] = {"agent": [], "direct": []}
    dials: dict[str, Dial] = {"agent": ways.agent, "direct": ways.direct}
    for index in range(rounds + 2):
        for name, dial in dials.items():
            begun = time.perf_counter()
            session = Spdy(await dial(command, supplied is not None), stdin=supplied is not None)
            got = await session.run(supplied or b"")
            if got != len(supplied or b""):
                raise RuntimeError(f"{got} bytes came back of {len(supplied or b'')}")
            if index >= 2:  # the first ones are slower
                took[name].append((time.perf_counter() - begun) * 1000)
    what = f"exec {command[0]}" + (f", {len(supplied) >> 10} KiB both ways" if supplied else "")
    return Row(what, 0, "ms", took["agent"], took["direct"], aim=AIM)


async def output_times(ways: Ways, rounds: int, megabytes: int) -> Row:
    """Milliseconds per MB from a process that writes as fast as it can."""
    command = ["dd", "if=/dev/zero", "bs=65536", f"count={megabytes * 16}"]
    took: dict[str, list[float]] = {"agent": [], "direct": []}
    dials: dict[str, Dial] = {"agent": ways.agent, "direct": ways.direct}
    for _ in range(rounds):
        for name, dial in dials.items():
            session = Spdy(await dial(command, False), stdin=False)
            begun = time.perf_counter()
            got = await session.run()
            took[name].append((time.perf_counter() - begun) * 1e9 / got)
    return Row("exec output", 0, "ms/MB", took["agent"], took["direct"], aim=AIM)


async def log_times(ways: Ways, log: Path, rounds: int, megabytes: int) -> Row:
    """Milliseconds per MB of log sent to a follower; the floor reads and formats it itself."""
    lines = (megabytes << 20) // len(_LINE)
    text = _LINE * lines
    reported = len(Formatter(timestamps=False).feed(text[: len(_LINE)])) * lines
    copy = ways.directory / "floor.log"  # the log itself may be rotated at any time
    await asyncio.to_thread(copy.write_bytes, text)
    took: dict[str, list[float]] = {"agent": [], "floor": []}
    target = f"https://127.0.0.1:{ways.port}/containerLogs/{NAMESPACE}/{NAME}/{CONTAINER}"
    headers = {"Authorization": f"Bearer {ways.token}"}
    connector = aiohttp.TCPConnector(ssl=ways.tls)
    async with aiohttp.ClientSession(connector=connector, read_bufsize=1 << 20) as session:
        for _ in range(rounds):
            query = {"follow": "true", "tailLines": "0"}
            async with session.get(target, params=query, headers=headers) as answer:
                answer.raise_for_status()
                await asyncio.sleep(0.2)  # it waits for the file to change by then
                begun = time.perf_counter()
                writing = asyncio.create_task(asyncio.to_thread(_append, log, text))
                got = 0
                while got < reported:
                    got += len(await answer.content.readany())
                took["agent"].append((time.perf_counter() - begun) * 1e9 / got)
                await writing
                answer.close()
            took["floor"].append(await asyncio.to_thread(_read_time, copy))
    return Row("log follow", 0, "ms/MB", took["agent"], took["floor"])


def _append(log: Path, text: bytes) -> None:
    with log.open("ab") as file:
        file.write(text)


def _read_time(log: Path) -> float:
    begun, got = time.perf_counter(), 0
    formatter = Formatter(timestamps=False)
    with log.open("rb") as file:
        while piece := file.read(1 << 18):
            got += len(formatter.feed(piece))
    return (time.perf_counter() - begun) * 1e9 / got


async def run(generation: int, rounds: int, megabytes: int) -> Results:
    """Measure."""
    results = Results(generation)
    async with make_stand(generation) as stand:
        await stand.start_agent()
        await stand.api.create(PODS, manifest(NAME, NODE), NAMESPACE)
        await stand.pods.until(NAME, READY)
        runtime = RemoteRuntime(stand.agent_runtime.endpoint)
        await runtime.connect(20)
        try:
            (container,) = (await runtime.list_containers(cri.ContainerFilter()))[:1]
            status = await runtime.container_status(container.id)
            ways = Ways(stand, runtime, container.id)
            blob = base64.b64encode(os.urandom(3 << 18))[: 1 << 20]
            results.rows = [
                await exec_times(ways, rounds, ["true"], None),
                await exec_times(ways, rounds, ["cat"], blob),
                await output_times(ways, max(3, rounds // 5), megabytes),
                await log_times(ways, Path(status.status.log_path), max(3, rounds // 5), megabytes),
            ]
        finally:
            await runtime.close()
        await stand.stop_agent()
    return results


def main() -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(prog="python -m bench.streams")
    parser.add_argument("--containerd", type=int, choices=(1, 2), default=2)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--megabytes", type=int, default=64)
    supplied = parser.parse_args()
    if os.geteuid() != 0:
        print("bench: containers need root", file=sys.stderr)
        return 1
    print(table(asyncio.run(run(supplied.containerd, supplied.rounds, supplied.megabytes))))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
