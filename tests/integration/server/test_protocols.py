"""The node's own server as other clients than kubectl use it, on real runtimes."""

from __future__ import annotations

import asyncio
import base64
import json
import re
import socket
import ssl
import struct
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import quote

import aiohttp
import pytest
import yaml

from kubeletpy.base.wire import spdy
from tests.integration.node.machine import Node
from tests.integration.node.pods import FOREVER, container, pod
from tools.env.process import CommandError
from tools.env.waiting import wait_until

SECONDS = 30
SCRIPT = "echo out; echo err >&2; exit 7"
RUN = {"input": "0", "output": "1", "error": "1"}


@asynccontextmanager
async def session(node: Node, seconds: float = SECONDS) -> AsyncIterator[aiohttp.ClientSession]:
    """A client session with the node's own server, with the administrator's token."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    async with (
        asyncio.timeout(seconds),
        aiohttp.ClientSession(
            f"https://127.0.0.1:{node.port}",
            headers={"Authorization": f"Bearer {token(node)}"},
            connector=aiohttp.TCPConnector(ssl=context),
            read_bufsize=1 << 20,
        ) as made,
    ):
        yield made


def box(node: Node, namespace: str) -> str:
    """A pod that does nothing; the path to its container."""
    node.apply(pod("box"), namespace=namespace)
    node.wait_running(namespace, "box")
    return f"{namespace}/box/main"


@pytest.mark.parametrize(
    "protocol", ["v5.channel.k8s.io", "v4.channel.k8s.io", "v4.base64.channel.k8s.io"]
)
async def test_exec_over_websockets(node: Node, namespace: str, protocol: str) -> None:
    place = box(node, namespace)
    query = [*RUN.items(), *(("command", word) for word in ("sh", "-c", SCRIPT))]
    got: dict[int, bytes] = {}
    async with (
        session(node) as requested,
        requested.ws_connect(f"/exec/{place}", params=query, protocols=(protocol,)) as socket,
    ):
        assert socket.protocol == protocol
        async for message in socket:
            if "base64" in protocol:
                channel, content = int(message.data[0]), base64.b64decode(message.data[1:])
            else:
                channel, content = message.data[0], message.data[1:]
            got[channel] = got.get(channel, b"") + content
    status = json.loads(got.pop(3))
    assert got == {1: b"out\n", 2: b"err\n"}
    assert status["reason"] == "NonZeroExitCode"
    assert status["details"]["causes"] == [{"reason": "ExitCode", "message": "7"}]


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_exec_over_spdy(node: Node, namespace: str, method: str) -> None:
    place = box(node, namespace)
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    query = "input=1&output=1&error=1&command=sh&command=-c&command="
    target = f"/exec/{place}?{query}{quote('cat; ' + SCRIPT)}"
    head = [f"{method} {target} HTTP/1.1", "Host: x", f"Authorization: Bearer {token(node)}"]
    head += ["Connection: Upgrade", "Upgrade: SPDY/3.1"]
    head += [f"X-Stream-Protocol-Version: v{number}.channel.k8s.io" for number in (5, 4, 3)]
    encoder, decoder = spdy.Encoder(), spdy.SpdyDecoder()
    async with asyncio.timeout(SECONDS):
        reader, writer = await asyncio.open_connection("127.0.0.1", node.port, ssl=context)
        writer.write(("\r\n".join(head) + "\r\n\r\n").encode())
        answer = await reader.readuntil(b"\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 101 "), answer
        assert b"\r\nx-stream-protocol-version: v" in answer.lower()
        numbers = {}
        for name in ("error", "stdin", "stdout", "stderr"):
            number, frame = encoder.open_stream({"streamtype": name})
            numbers[number] = name
            writer.write(frame)
        (stdin,) = (number for number, name in numbers.items() if name == "stdin")
        writer.write(spdy.data(stdin, b"in ") + spdy.data(stdin, b"", last=True))
        got = dict.fromkeys(numbers.values(), b"")
        open_ones = set(numbers) - {stdin}
        while open_ones and (piece := await reader.read(1 << 16)):
            for heard in decoder.feed(piece):
                if heard.kind == spdy.DATA:
                    got[numbers[heard.stream]] += heard.data
                if heard.is_last:
                    open_ones.discard(heard.stream)
        writer.close()
    status = json.loads(got.pop("error"))
    assert got == {"stdin": b"", "stdout": b"in out\n", "stderr": b"err\n"}
    assert status["details"]["causes"] == [{"reason": "ExitCode", "message": "7"}]


@pytest.mark.parametrize("protocol", ["v4.channel.k8s.io", "v4.base64.channel.k8s.io"])
async def test_ports_over_websockets(node: Node, namespace: str, protocol: str) -> None:
    echo = container("main", "while :; do nc -l -p 7777 -e cat; done")
    node.apply(pod("echo", echo), namespace=namespace)
    node.wait_running(namespace, "echo")
    record = node.containers(namespace, "echo")["main"]
    wait_until(
        lambda: ":7777 " in node.exec(record.id, "netstat", "-ltn")[1],
        "a listener",
        timeout=SECONDS,
    )
    binary = "base64" not in protocol
    async with (
        session(node) as requested,
        requested.ws_connect(
            f"/portForward/{namespace}/echo", params={"port": "7777"}, protocols=(protocol,)
        ) as socket,
    ):
        got = {0: b"", 1: b""}
        port = (7777).to_bytes(2, "little")
        if binary:
            await socket.send_bytes(b"\0hello")
        else:
            await socket.send_str("0" + base64.b64encode(b"hello").decode())
        while len(got[0]) < 7 or len(got[1]) < 2:
            data = (await socket.receive()).data
            if binary:
                got[data[0]] += data[1:]
            else:
                got[int(data[0])] += base64.b64decode(data[1:])
        assert got == {0: port + b"hello", 1: port}


async def test_a_static_pod_is_found_by_the_uid_of_its_mirror(node: Node, namespace: str) -> None:
    about = pod("static")
    about["metadata"]["namespace"] = namespace
    manifest = node.manifests / "static.json"
    manifest.write_text(json.dumps(about))
    name = f"static-{node.name}"
    try:
        mirror = node.wait_running(namespace, name)["metadata"]["uid"]
        async with session(node) as requested:
            for uid in (mirror, ""):
                place = "/".join(filter(None, (namespace, name, uid, "main")))
                async with requested.post(f"/run/{place}", params={"cmd": "echo hi"}) as answer:
                    assert (answer.status, await answer.text()) == (200, "hi\n")
                async with requested.ws_connect(
                    f"/exec/{place}?output=1&command=echo&command=hi",
                    protocols=("v4.channel.k8s.io",),
                ) as socket:
                    stated = [message.data async for message in socket]
                    assert b"\1hi\n" in stated
            async with requested.post(f"/run/{namespace}/{name}/other/main?cmd=true") as answer:
                assert answer.status == 404
    finally:
        manifest.unlink()
        node.wait_removed(namespace, name)


LINES = 500_000


def resident(node: Node, field: str) -> int:
    """Megabytes that the agent has (VmRSS), or the most that it ever had (VmHWM)."""
    found = re.search(rf"{field}:\s+(\d+) kB", Path(f"/proc/{node.agent.pid}/status").read_text())
    assert found is not None
    return int(found[1]) >> 10


async def test_a_large_log_costs_no_memory(node2: Node, namespace: str) -> None:
    # the log of a container that has ended is not rotated
    node2.apply(pod("ended", container("main", "true"), restartPolicy="Never"), namespace=namespace)
    node2.wait_phase(namespace, "ended", "Succeeded")
    place = f"{namespace}/ended/main"
    (folder,) = node2.pod_logs.glob(f"{namespace}_ended_*/main")
    line = b"2026-01-02T03:04:05Z stdout F %07d\n"
    with (folder / "0.log").open("ab") as file:
        file.truncate(256 << 20)  # what is in the hole is no line of a log, and has no end
        file.seek(0, 2)
        file.write(b"\n" + b"".join(line % number for number in range(LINES)))
    async with session(node2, 3 * SECONDS) as requested:

        async def length(**query: str) -> int:
            size = 0
            async with requested.get(f"/containerLogs/{place}", params=query) as answer:
                assert answer.status == 200
                async for piece in answer.content.iter_any():
                    size += len(piece)
            return size

        assert await length(tailLines="1") == 8
        before = resident(node2, "VmHWM")
        assert await length(tailLines="10") == 80
        assert await length(limitBytes="1000") == 1000
        assert await length() == 8 * LINES
    assert resident(node2, "VmHWM") - before < 20


async def test_v5_half_closes_towards_the_runtime(node: Node, namespace: str) -> None:
    place = box(node, namespace)
    query = "input=1&output=1&command=sh&command=-c&command=cat;echo%20end"
    async with (
        session(node) as requested,
        requested.ws_connect(f"/exec/{place}?{query}", protocols=("v5.channel.k8s.io",)) as socket,
    ):
        await socket.send_bytes(b"\0text ")
        await socket.send_bytes(b"\xff\0")
        stated = b"".join([m.data[1:] async for m in socket if m.data[0] == 1])
    assert stated == b"text end\n"


def test_status_flags_logs_and_profiles(node2: Node) -> None:
    def get(path: str) -> str:
        return node2.kubectl("get", "--raw", f"/api/v1/nodes/{node2.name}/proxy{path}")

    assert get("/healthz?verbose").splitlines()[:3] == ["[+]ping ok", "[+]log ok", "[+]syncloop ok"]
    assert get("/healthz/syncloop") == "ok"
    assert f"hostname-override={node2.name}\n" in get("/flagz")
    assert "Binary version: 1.37.0" in get("/statusz")
    names = {entry.name for entry in Path("/var/log").iterdir() if entry.is_file()}
    listed = get("/logs/")
    assert all(name in listed for name in names if name.isalnum())
    for way_out in ("/logs/../../etc/passwd", "/logs/%2e%2e/%2e%2e/etc/passwd"):
        with pytest.raises(CommandError):
            get(way_out)
    assert "SyncLoop.run" in get("/debug/pprof/goroutine")
    assert "MainThread" in get("/debug/pprof/threadcreate")


def test_streams_logs_and_scrapes_are_counted(node2: Node, namespace: str) -> None:
    def get(path: str) -> str:
        return node2.kubectl("get", "--raw", f"/api/v1/nodes/{node2.name}/proxy{path}")

    node2.apply(pod("says", container("main", f"echo hello; {FOREVER}")), namespace=namespace)
    uid = node2.wait_running(namespace, "says")["metadata"]["uid"]

    def counted() -> list[float]:
        streams = node2.metric("kubelet_websocket_streaming_requests_total", subresource="exec")
        return [streams, node2.metric("kubelet_http_requests_total", path="metrics/cadvisor")]

    before = counted()
    node2.kubectl("exec", "says", "--", "true", namespace=namespace)  # kubectl 1.36: a WebSocket
    get("/metrics/cadvisor")
    reported = get("/metrics")
    assert counted() == [number + 1 for number in before]
    named = f'container="main",namespace="{namespace}",pod="says",uid="{uid}"'
    used = re.search(rf"kubelet_container_log_filesystem_used_bytes\{{{named}\}} (\d+)\n", reported)
    assert used is not None, reported[-2000:]
    assert 0 < int(used[1]) < 100_000
    assert "\nprocess_start_time_seconds " in get("/metrics/probes")


def test_a_checkpoint_is_made_or_the_answer_has_the_reason(node2: Node, namespace: str) -> None:
    node2.apply(pod("still"), namespace=namespace)
    node2.wait_running(namespace, "still")
    base = f"/api/v1/nodes/{node2.name}/proxy/checkpoint/{namespace}"
    with pytest.raises(CommandError, match="could not find"):
        node2.kubectl("create", "--raw", f"{base}/still/other", "-f", "/dev/null")
    directory = node2.root_dir / "checkpoints"
    try:
        answer = node2.kubectl("create", "--raw", f"{base}/still/main", "-f", "/dev/null")
    except CommandError as error:
        assert f"checkpointing of {namespace}/still/main failed" in str(error)
    else:
        (made,) = directory.iterdir()
        assert str(made) in answer
        made.unlink()
    assert directory.stat().st_mode & 0o777 == 0o700


STREAMS = 300


def token(node: Node) -> str:
    config = yaml.safe_load(Path(node.api.endpoint.admin_kubeconfig).read_text())
    return str(config["users"][0]["user"]["token"])


def opened(node: Node, path: str, secret: str, upgrade: str) -> ssl.SSLSocket:
    """A stream of the node's own API, once it is there."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    raw = socket.create_connection(("127.0.0.1", node.port), timeout=30)
    link = context.wrap_socket(raw)
    lines = [f"GET {path} HTTP/1.1", "Host: x", f"Authorization: Bearer {secret}"]
    if upgrade == "websocket":
        key = base64.b64encode(bytes(16)).decode()
        lines += ["Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13"]
        lines += [f"Sec-WebSocket-Key: {key}", "Sec-WebSocket-Protocol: v5.channel.k8s.io"]
    elif upgrade:
        lines += ["Connection: Upgrade", f"Upgrade: {upgrade}"]
        lines += ["X-Stream-Protocol-Version: portforward.k8s.io"]
    link.sendall(("\r\n".join(lines) + "\r\n\r\n").encode())
    answer = link.recv(4096)
    assert answer.split()[1] in (b"101", b"200"), answer
    return link


def reset(link: ssl.SSLSocket) -> None:
    link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    socket.socket.close(link)


def test_pods_start_in_a_storm_that_leaves_nothing(node2: Node, namespace: str) -> None:
    node, secret = node2, token(node2)
    chatty = container("main", "while :; do echo line; sleep 0.2; done")
    node.apply(pod("busy", chatty, container("other", FOREVER)), namespace=namespace)
    node.wait_running(namespace, "busy")
    base = f"{namespace}/busy"
    kinds = [
        (f"/containerLogs/{base}/main?follow=true", ""),
        (f"/containerLogs/{base}/main?follow=true&timestamps=true", ""),
        (f"/portForward/{base}", "SPDY/3.1"),
        (f"/exec/{base}/other?command=cat&input=1&output=1", "websocket"),
    ]

    for path, upgrade in kinds:  # what is made once
        reset(opened(node, path, secret, upgrade))
    before, memory = node.descriptors(), resident(node, "VmRSS")
    # execs are processes of containerd on two cores: a tenth of the streams
    mixed = [kinds[3] if i % 10 == 0 else kinds[i % 3] for i in range(STREAMS)]
    with ThreadPoolExecutor(8) as threads:
        streams = list(threads.map(lambda kind: opened(node, kind[0], secret, kind[1]), mixed))
    assert node.descriptors() > before + STREAMS
    node.apply(pod("new"), namespace=namespace)
    node.wait_running(namespace, "new")
    grown = resident(node, "VmRSS") - memory
    for link in streams:
        reset(link)
    assert grown < 60, f"{grown} MB for {STREAMS} streams"
    wait_until(lambda: node.descriptors() <= before + 8, "nothing left open", timeout=60)
