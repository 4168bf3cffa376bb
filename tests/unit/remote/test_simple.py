"""A runtime inside a program: missing calls, kept records, and how containers end."""

from __future__ import annotations

import asyncio
import inspect
import signal
from collections.abc import Sequence

import pytest

from kubeletpy.remote import protocol
from kubeletpy.remote.errors import (
    CRIError,
    DeadlineExceeded,
    FailedPrecondition,
    Internal,
    InvalidArgument,
    NotFound,
    Unimplemented,
)
from kubeletpy.remote.generated import api_pb2 as cri
from kubeletpy.remote.simple import (
    KILLED,
    MOST_EVENTS,
    MOST_OUTPUT,
    Container,
    PartialRuntime,
    Sandbox,
    SimpleRuntime,
)
from kubeletpy.remote.streams import ProcessStreams, StreamInput, StreamOutput
from kubeletpy.remote.verify import lets_through

pytestmark = pytest.mark.virtual_time

BOTH: tuple[protocol.RuntimeService, protocol.ImageService] = (PartialRuntime(), PartialRuntime())
"""For mypy."""


@pytest.mark.parametrize("service", [protocol.RuntimeService, protocol.ImageService])
def test_a_partial_runtime_has_every_call(service: type) -> None:
    calls = {name: each for name, each in vars(service).items() if inspect.isfunction(each)}
    calls = {name: each for name, each in calls.items() if not name.startswith("_")}
    assert len(calls) > 5
    for name, each in calls.items():
        assert inspect.signature(getattr(PartialRuntime, name)) == inspect.signature(each), name


async def test_a_missing_call_is_named_in_the_error() -> None:
    with pytest.raises(Unimplemented, match="RunPodSandbox: this runtime has no such call"):
        await PartialRuntime().run_pod_sandbox(cri.PodSandboxConfig(), "")
    with pytest.raises(Unimplemented, match="GetContainerEvents"):
        await anext(aiter(PartialRuntime().get_container_events()))


LABELS = {"pod": "a", "name": "c"}


@pytest.mark.parametrize(
    ("desired", "through"),
    [
        (None, True),
        (cri.ContainerFilter(), True),
        (cri.ContainerFilter(id="1"), True),
        (cri.ContainerFilter(id="2"), False),
        (cri.ContainerFilter(pod_sandbox_id="s"), True),
        (cri.ContainerFilter(pod_sandbox_id="t"), False),
        (cri.ContainerFilter(state={"state": cri.CONTAINER_RUNNING}), True),
        (cri.ContainerFilter(state={"state": cri.CONTAINER_CREATED}), False),
        (cri.ContainerFilter(label_selector={"pod": "a"}), True),
        (cri.ContainerFilter(label_selector={"pod": "a", "name": "d"}), False),
        (cri.ContainerFilter(label_selector={"other": "a"}), False),
        (cri.ContainerFilter(id="1", label_selector={"pod": "b"}), False),
    ],
    ids=str,
)
def test_filters(desired: cri.ContainerFilter | None, through: bool) -> None:
    item = cri.Container(id="1", pod_sandbox_id="s", state=cri.CONTAINER_RUNNING, labels=LABELS)
    assert lets_through(desired, item) is through


class Scripted(SimpleRuntime):
    """Containers end by themselves or by a signal, depending on their command."""

    def __init__(self) -> None:
        super().__init__()
        self.sent: list[int] = []
        self._codes: dict[str, asyncio.Future[int]] = {}

    async def launch(self, container: Container) -> None:
        if container.config.command == ["no"]:
            raise InvalidArgument("StartContainer", "no")
        self._codes[container.id] = asyncio.get_running_loop().create_future()

    async def result(self, container: Container) -> int:
        if container.config.command == ["breaks"]:
            raise OSError("it broke")
        return await self._codes[container.id]

    def send(self, container: Container, signum: int) -> None:
        self.sent.append(signum)
        if signum == signal.SIGKILL or container.config.command != ["stubborn"]:
            self._codes[container.id].set_result(128 + signum)


async def started(runtime: Scripted, *command: str) -> str:
    sandbox = await runtime.run_pod_sandbox(cri.PodSandboxConfig(log_directory="/logs"), "")
    config = cri.ContainerConfig(command=command, log_path="c/0.log", labels=LABELS)
    container = await runtime.create_container(sandbox, config, cri.PodSandboxConfig())
    await runtime.start_container(container)
    return container


async def status(runtime: Scripted, container: str) -> cri.ContainerStatus:
    return (await runtime.container_status(container)).status


@pytest.mark.parametrize(
    ("command", "grace", "sent", "code", "seconds"),
    [
        ("good", 5, [signal.SIGTERM], 143, 0),
        ("stubborn", 5, [signal.SIGTERM, signal.SIGKILL], 137, 5),
        ("good", 0, [signal.SIGKILL], 137, 0),
    ],
)
async def test_stopping(command: str, grace: int, sent: list[int], code: int, seconds: int) -> None:
    runtime = Scripted()
    container = await started(runtime, command)
    assert (await status(runtime, container)).state == cri.CONTAINER_RUNNING
    began = asyncio.get_running_loop().time()
    await runtime.stop_container(container, grace)
    assert asyncio.get_running_loop().time() - began == seconds
    seen = await status(runtime, container)
    assert (runtime.sent, seen.exit_code, seen.reason) == (sent, code, "Error")
    assert (seen.state, seen.log_path) == (cri.CONTAINER_EXITED, "/logs/c/0.log")
    await runtime.stop_container(container, grace)
    assert runtime.sent == sent


async def test_an_exit_event_contains_its_pod() -> None:
    runtime = Scripted()
    container = await started(runtime, "good")
    events = aiter(runtime.get_container_events())
    await runtime.stop_container(container, 1)
    event = await anext(events)
    assert (event.container_id, event.container_event_type) == (
        container,
        cri.CONTAINER_STOPPED_EVENT,
    )
    assert [each.exit_code for each in event.containers_statuses] == [143]
    assert event.pod_sandbox_status.state == cri.SANDBOX_READY


async def test_events_that_nobody_reads_are_bounded() -> None:
    runtime = Scripted()
    for _ in range(MOST_EVENTS + 1):
        await runtime.stop_container(await started(runtime, "good"), 1)
    assert runtime._exits.qsize() == MOST_EVENTS


async def test_a_result_that_fails_is_an_exit(caplog: pytest.LogCaptureFixture) -> None:
    runtime = Scripted()
    container = await started(runtime, "breaks")
    await asyncio.sleep(0)
    assert (await status(runtime, container)).exit_code == 255
    assert "it broke" in caplog.text


async def test_a_sandbox_ends_with_its_containers() -> None:
    runtime = Scripted()
    container = await started(runtime, "good")
    (sandbox,) = await runtime.list_pod_sandbox()
    await runtime.stop_pod_sandbox(sandbox.id)
    assert (await status(runtime, container)).state == cri.CONTAINER_EXITED
    assert not await runtime.list_pod_sandbox(cri.PodSandboxFilter(state={"state": 0}))
    await runtime.remove_pod_sandbox(sandbox.id)
    await runtime.remove_pod_sandbox(sandbox.id)
    assert not await runtime.list_containers()


async def test_a_failed_start_leaves_the_container_created() -> None:
    runtime = Scripted()
    with pytest.raises(InvalidArgument):
        await started(runtime, "no")
    (container,) = await runtime.list_containers()
    assert container.state == cri.CONTAINER_CREATED
    running = await started(runtime, "good")
    for error, container_id in ((CRIError, running), (NotFound, "other")):
        with pytest.raises(error):
            await runtime.start_container(container_id)
    await runtime.close()


class Executing(Scripted):
    """Runs commands of its own, and forwards ports to nothing."""

    async def exec_in(
        self, container: Container, command: Sequence[str], client: ProcessStreams
    ) -> int:
        match command:
            case ("print", count):
                assert await client.stdin.read() == b""
                await client.stdout.write(b"x" * int(count))
                await client.stderr.write(b"err")
                return 3
            case ("wait",):
                await asyncio.Event().wait()
            case ("late",):
                raise TimeoutError
        raise InvalidArgument("Exec", "no such command")

    async def forward_to(
        self, sandbox: Sandbox, port: int, reader: asyncio.StreamReader, writer: StreamOutput
    ) -> None:
        await asyncio.Event().wait()


@pytest.mark.parametrize(
    ("command", "error"), [("wait", DeadlineExceeded), ("late", Internal), ("no", InvalidArgument)]
)
async def test_a_probes_command_that_fails(command: str, error: type[CRIError]) -> None:
    runtime = Executing()
    container = await started(runtime, "good")
    with pytest.raises(error):
        await runtime.exec_sync(container, [command], 3)


async def test_a_probes_command_is_that_of_exec() -> None:
    runtime = Executing()
    container = await started(runtime, "good")
    answer = await runtime.exec_sync(container, ["print", "5"], 1)
    assert answer == cri.ExecSyncResponse(stdout=b"xxxxx", stderr=b"err", exit_code=3)
    answer = await runtime.exec_sync(container, ["print", str(2 * MOST_OUTPUT + 5)], 1)
    assert len(answer.stdout) == MOST_OUTPUT


def unread() -> ProcessStreams:
    async def send(data: bytes) -> None:
        pass

    return ProcessStreams(StreamInput().reader, StreamOutput(send), StreamOutput(send))


async def test_sessions_end_with_their_container_or_sandbox() -> None:
    runtime = Executing()
    container = await started(runtime, "good")
    sandbox = runtime.containers[container].sandbox.id
    session = await runtime.exec(cri.ExecRequest(container_id=container, cmd=["wait"]))
    forward = await runtime.port_forward(cri.PortForwardRequest(pod_sandbox_id=sandbox, port=[80]))
    assert (session.tty, forward.ports) == (False, (80,))
    output = unread().stdout
    command = asyncio.ensure_future(session.run(unread()))
    connection = asyncio.ensure_future(forward.connect(80, StreamInput().reader, output))
    await asyncio.sleep(1)
    await runtime.stop_container(container, 0)
    assert await command == KILLED and not connection.done()
    await runtime.stop_pod_sandbox(sandbox)
    await connection
    for call in (
        runtime.exec(cri.ExecRequest(container_id=container)),
        runtime.attach(cri.AttachRequest(container_id=container)),
        runtime.exec_sync(container, ["print", "1"], 1),
    ):
        with pytest.raises(FailedPrecondition, match="does not run"):
            await call


async def test_a_runtime_without_streams_names_what_it_lacks() -> None:
    runtime = Scripted()
    container = await started(runtime, "good")
    sandbox = runtime.containers[container].sandbox.id
    command = await runtime.exec(cri.ExecRequest(container_id=container, tty=True))
    attached = await runtime.attach(cri.AttachRequest(container_id=container))
    forward = await runtime.port_forward(cri.PortForwardRequest(pod_sandbox_id=sandbox))
    assert command.tty
    for call, name in (
        (command.run(unread()), "exec_in"),
        (attached.run(unread()), "attach_to"),
        (forward.connect(80, StreamInput().reader, unread().stdout), "forward_to"),
        (runtime.exec_sync(container, ["true"], 1), "exec_in"),
    ):
        with pytest.raises(Unimplemented, match=name):
            await call
