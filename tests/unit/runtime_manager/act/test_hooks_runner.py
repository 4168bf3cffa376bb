"""Lifecycle hooks: the effect of each handler, and its message when it fails."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from kubeletpy.metrics.registry import Metrics
from kubeletpy.node.facts import NodeAddresses
from kubeletpy.pods.pod import Pod
from kubeletpy.remote.errors import Unavailable
from kubeletpy.remote.generated import api_pb2 as cri
from kubeletpy.runtime_manager.act.hooks_runner import LifecycleHookRunner
from kubeletpy.runtime_manager.names import PORTS
from kubeletpy.runtime_manager.protocol import HookFailed
from tests.kit.events import Recorder
from tests.kit.probes import answering, redirecting, serving
from tests.kit.records import container, make_pod
from tests.kit.virtual_time import on_virtual_time, timed

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
LOOPBACK = "127.0.0.1"


class Runtime:
    """One container c1 in sandbox s1."""

    def __init__(self) -> None:
        self.commands: list[tuple[str, list[str], float]] = []
        self.answer: Any = cri.ExecSyncResponse()
        self.sandbox = cri.PodSandboxStatus(network=cri.PodSandboxNetworkStatus(ip=LOOPBACK))
        self.ports: list[dict[str, Any]] = []

    async def exec_sync(self, container_id: str, cmd: Any, timeout: float) -> Any:
        self.commands.append((container_id, list(cmd), timeout))
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    async def list_containers(self, filter: Any = None) -> Any:
        return [cri.Container(id=f"c{n}", pod_sandbox_id=f"s{n}") for n in range(3)]

    async def pod_sandbox_status(self, sandbox: str, verbose: bool = False) -> Any:
        assert sandbox == "s1"
        return cri.PodSandboxStatusResponse(status=self.sandbox)

    async def container_status(self, container_id: str, verbose: bool = False) -> Any:
        status = cri.ContainerStatus(annotations={PORTS: json.dumps(self.ports)})
        return cri.ContainerStatusResponse(status=status)


class Bench:
    """A hook runner, and the records of its effects."""

    def __init__(self, ports: Any = ()) -> None:
        self.runtime = Runtime()
        self.events = Recorder()
        self.metrics = Metrics()
        self.pod = make_pod(container("app", ports=list(ports)))
        self.addresses = NodeAddresses(["192.0.2.1"])
        self.runner = LifecycleHookRunner(
            self.runtime,  # type: ignore[arg-type]
            self.events,
            self.metrics.hooks,
            self.addresses,
        )

    async def stop(self, handler: Any, pod: Pod | None = None) -> None:
        await self.runner.pre_stop(pod or self.pod, "app", "c1", handler)

    def scraped(self) -> str:
        return self.metrics.render().decode()


async def test_exec_runs_without_a_limit_of_its_own() -> None:
    bench = Bench()
    spec: Any = container("app", lifecycle={"postStart": {"exec": {"command": ["a", "b c"]}}})
    await bench.runner.post_start(bench.pod, spec, "c1")
    without: Any = container("app")
    await bench.runner.post_start(bench.pod, without, "c1")
    assert bench.runtime.commands == [("c1", ["a", "b c"], 0)]


@pytest.mark.parametrize(
    ("answer", "parts"),
    [
        (
            cri.ExecSyncResponse(exit_code=3, stdout=b"out", stderr=b"err"),
            "command 'leave now' exited with 3, message: 'outerr'",
        ),
        (Unavailable("ExecSync", "socket gone"), "code = Unavailable desc = socket gone"),
    ],
)
async def test_a_failed_exec_has_the_message_of_the_kubelet(answer: Any, parts: str) -> None:
    bench = Bench()
    bench.runtime.answer = answer
    with pytest.raises(HookFailed) as failed:
        await bench.stop({"exec": {"command": ["leave", "now"]}})
    text = str(failed.value)
    assert text.startswith('Exec lifecycle hook ([leave now]) for Container "app" in Pod "')
    assert parts in text


@on_virtual_time
async def test_sleep() -> None:
    bench = Bench()
    for seconds in (0, 7):
        _, took = await timed(bench.stop({"sleep": {"seconds": seconds}}))
        assert took == seconds
    assert "kubelet_sleep_action_terminated_early_total 0" in bench.scraped()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(3):
            await bench.stop({"sleep": {"seconds": 60}})
    assert "kubelet_sleep_action_terminated_early_total 1" in bench.scraped()


@pytest.mark.parametrize("handler", [{"tcpSocket": {"port": 80}}, {}, {"sleep": {"seconds": -1}}])
async def test_invalid_handlers_fail(handler: Any) -> None:
    with pytest.raises(HookFailed):
        await Bench().stop(handler)


@pytest.mark.parametrize("status", [b"200 OK", b"404 Not Found", b"500 Oops"])
async def test_http_ignores_the_status_of_the_response(status: bytes) -> None:
    heard: list[bytes] = []
    async with serving(answering(OK.replace(b"200 OK", status), heard)) as port:
        bench = Bench([{"name": "web", "containerPort": port}])
        await bench.stop({"httpGet": {"port": "web", "path": "/bye"}})
    assert heard[0].startswith(b"GET /bye HTTP/1.1\r\n")
    assert b"User-Agent: kube-lifecycle/1.37\r\n" in heard[0]


async def test_http_uses_the_containers_annotations_without_a_pod() -> None:
    heard: list[bytes] = []
    async with serving(answering(OK, heard)) as port:
        bench = Bench()
        bench.runtime.ports = [{"name": "web", "containerPort": port}]
        await bench.runner.pre_stop(None, "app", "c1", {"httpGet": {"port": "web"}})
    assert len(heard) == 1


async def test_http_on_the_hosts_network() -> None:
    bench = Bench()
    bench.runtime.sandbox = cri.PodSandboxStatus()
    bench.runtime.sandbox.linux.namespaces.options.network = cri.NODE
    bench.addresses.replace([LOOPBACK])
    async with serving(answering(OK)) as port:
        await bench.stop({"httpGet": {"port": port}})
        bench.runtime.sandbox.linux.namespaces.options.network = cri.POD
        with pytest.raises(HookFailed, match="no IP address"):
            await bench.stop({"httpGet": {"port": port}})


async def test_http_on_the_network_of_a_node_that_has_no_address_yet() -> None:
    bench = Bench()
    bench.runtime.sandbox = cri.PodSandboxStatus()
    bench.runtime.sandbox.linux.namespaces.options.network = cri.NODE
    bench.addresses.replace([])
    async with serving(answering(OK)) as port:
        await bench.stop({"httpGet": {"port": port}})


async def test_https_answered_in_plain_text_is_retried_without_credentials() -> None:
    heard: list[bytes] = []

    async def plain(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        first = await reader.read(3)
        if first != b"GET":
            writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            return
        heard.append(first + await reader.readuntil(b"\r\n\r\n"))
        writer.write(OK)

    headers = [{"name": "Authorization", "value": "secret"}, {"name": "X-A", "value": "1"}]
    async with serving(plain) as port:
        bench = Bench()
        action = {"port": port, "scheme": "HTTPS", "httpHeaders": headers}
        await bench.stop({"httpGet": action})
    assert len(heard) == 1
    assert b"X-A: 1" in heard[0]
    assert b"secret" not in heard[0]
    notified = f"request to HTTPS lifecycle hook {LOOPBACK}:{port} got HTTP response"
    assert bench.events.seen == [
        f"Warning LifecycleHTTPFallback: {notified}, retry with HTTP succeeded"
    ]
    assert "kubelet_lifecycle_handler_http_fallbacks_total 1" in bench.scraped()


async def test_http_that_cannot_be_had() -> None:
    bench = Bench()
    with pytest.raises(HookFailed, match="connection refused"):
        await bench.stop({"httpGet": {"port": 1, "path": "/x"}})
    with pytest.raises(HookFailed, match="port web not found"):
        await bench.stop({"httpGet": {"port": "web"}})
    async with serving(redirecting(lambda n: "/again")) as port:
        with pytest.raises(HookFailed, match="stopped after 10 redirects"):
            await bench.stop({"httpGet": {"port": port}})
    assert bench.events.seen == []
