"""The client against a real gRPC server on a unix socket: calls, errors, loss and return."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from kubeletpy.remote import errors
from kubeletpy.remote.connection import MAX_OUTPUT
from kubeletpy.remote.generated import api_pb2 as cri
from tests.unit.remote.conftest import Dial, Serve
from tests.unit.remote.fake_server import IMAGES, RUNTIME

SANDBOX = cri.PodSandboxConfig(metadata=cri.PodSandboxMetadata(name="web", namespace="shop"))
CONTAINER = cri.ContainerConfig(metadata=cri.ContainerMetadata(name="app"))


def fails(code: grpc.StatusCode, details: str) -> Any:
    """A handler that answers with an error."""

    async def handler(_request: Any, context: Any) -> None:
        await context.abort(code, details)

    return handler


class Counted:
    """CallMetrics that keeps the calls."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, bool]] = []
        self.sandboxes: list[tuple[str, bool]] = []

    def call_done(self, operation: str, seconds: float, failed: bool) -> None:
        assert seconds >= 0
        self.calls.append((operation, failed))

    def sandbox_done(self, runtime_handler: str, seconds: float, failed: bool) -> None:
        self.sandboxes.append((runtime_handler, failed))


async def test_connect_returns_name_and_version_of_the_runtime(serve: Serve, dial: Dial) -> None:
    server = await serve(ImageFsInfo=lambda *_: cri.ImageFsInfoResponse())
    runtime = dial(server.endpoint)
    answer = await runtime.connect()
    assert (answer.runtime_name, answer.runtime_version) == ("fake", "1.2.3")
    assert runtime.ready
    assert server.requests[0][1].version == "0.1.0"


async def test_calls_carry_their_arguments(serve: Serve, dial: Dial) -> None:
    server = await serve(
        RunPodSandbox=lambda *_: cri.RunPodSandboxResponse(pod_sandbox_id="s1"),
        CreateContainer=lambda *_: cri.CreateContainerResponse(container_id="c1"),
        StopContainer=lambda *_: cri.StopContainerResponse(),
        ExecSync=lambda *_: cri.ExecSyncResponse(exit_code=3, stdout=b"out"),
        UpdateContainerResources=lambda *_: cri.UpdateContainerResourcesResponse(),
    )
    runtime = dial(server.endpoint)
    assert await runtime.run_pod_sandbox(SANDBOX, "gvisor") == "s1"
    assert await runtime.create_container("s1", CONTAINER, SANDBOX) == "c1"
    await runtime.stop_container("c1", 30)
    answer = await runtime.exec_sync("c1", ["sh", "-c", "exit 3"], 1.5)
    assert (answer.exit_code, answer.stdout) == (3, b"out")
    limits = cri.LinuxContainerResources(cpu_shares=2)
    await runtime.update_container_resources("c1", limits, {"a": "b"})
    sent = dict(server.requests)
    assert sent["RunPodSandbox"].runtime_handler == "gvisor"
    assert sent["CreateContainer"].sandbox_config == SANDBOX
    assert sent["StopContainer"].timeout == 30
    assert list(sent["ExecSync"].cmd) == ["sh", "-c", "exit 3"]
    assert sent["ExecSync"].timeout == 2
    assert sent["UpdateContainerResources"].annotations == {"a": "b"}


async def test_deadlines_reach_the_wire(serve: Serve, dial: Dial) -> None:
    server = await serve(
        RunPodSandbox=lambda *_: cri.RunPodSandboxResponse(pod_sandbox_id="s1"),
        StopContainer=lambda *_: cri.StopContainerResponse(),
        ExecSync=lambda *_: cri.ExecSyncResponse(),
        PullImage=lambda *_: cri.PullImageResponse(image_ref="r"),
    )
    runtime = dial(server.endpoint, request_timeout=50)
    await runtime.run_pod_sandbox(SANDBOX, "")
    await runtime.stop_container("c1", 200)
    await runtime.exec_sync("c1", ["true"], 20)
    await runtime.exec_sync("c1", ["true"], 0)
    await runtime.pull_image(cri.ImageSpec(image="i"))
    left = [context.time_remaining() for context in server.contexts]
    # gRPC rounds what it sends up, to as much as a hundredth.
    assert left[:3] == [pytest.approx(desired, rel=0.05) for desired in (100, 250, 70)]
    assert left[3:] == [None, None]


async def test_negative_grace_is_refused(serve: Serve, dial: Dial) -> None:
    server = await serve(StopContainer=lambda *_: cri.StopContainerResponse())
    with pytest.raises(errors.InvalidArgument, match="StopContainer c1: negative timeout -1 s"):
        await dial(server.endpoint).stop_container("c1", -1)
    assert server.requests == []


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (grpc.StatusCode.NOT_FOUND, errors.NotFound),
        (grpc.StatusCode.UNKNOWN, errors.CRIError),
        (grpc.StatusCode.INVALID_ARGUMENT, errors.InvalidArgument),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, errors.ResourceExhausted),
        (grpc.StatusCode.CANCELLED, errors.Cancelled),
    ],
)
async def test_errors_are_typed(
    serve: Serve, dial: Dial, code: grpc.StatusCode, kind: type[errors.CRIError]
) -> None:
    server = await serve(StartContainer=fails(code, "no such thing"))
    with pytest.raises(errors.CRIError) as raised:
        await dial(server.endpoint).start_container("c1")
    assert type(raised.value) is kind
    assert str(raised.value) == f"StartContainer c1: no such thing ({code.name})"


async def test_unimplemented_call(serve: Serve, dial: Dial) -> None:
    server = await serve()
    with pytest.raises(errors.Unimplemented):
        await dial(server.endpoint).runtime_config()


async def test_deadline_exceeded(serve: Serve, dial: Dial) -> None:
    async def never(_request: Any, _context: Any) -> None:
        await asyncio.Event().wait()

    server = await serve(Status=never)
    runtime = dial(server.endpoint, request_timeout=0.05)
    await runtime.wait_ready()
    with pytest.raises(errors.DeadlineExceeded):
        await runtime.status()


async def test_empty_ids_are_errors(serve: Serve, dial: Dial) -> None:
    server = await serve(
        RunPodSandbox=lambda *_: cri.RunPodSandboxResponse(),
        CreateContainer=lambda *_: cri.CreateContainerResponse(),
        PullImage=lambda *_: cri.PullImageResponse(),
        Exec=lambda *_: cri.ExecResponse(),
    )
    runtime = dial(server.endpoint)
    with pytest.raises(errors.InvalidResponse, match="RunPodSandbox shop/web: pod_sandbox_id not"):
        await runtime.run_pod_sandbox(SANDBOX, "")
    with pytest.raises(errors.InvalidResponse, match="app in sandbox s1: container_id not set"):
        await runtime.create_container("s1", CONTAINER, SANDBOX)
    with pytest.raises(errors.InvalidResponse, match="PullImage busybox: image_ref not set"):
        await runtime.pull_image(cri.ImageSpec(image="busybox"))
    with pytest.raises(errors.InvalidResponse, match="Exec c1: url not set"):
        await runtime.exec(cri.ExecRequest(container_id="c1"))


async def test_oversized_answer(serve: Serve, dial: Dial) -> None:
    def images(count: int) -> Any:
        image = cri.Image(id="i" * 1024 * 1024)
        return lambda *_: cri.ListImagesResponse(images=[image] * count)

    server = await serve(ListImages=images(15))
    runtime = dial(server.endpoint)
    assert len(await runtime.list_images()) == 15
    server.answers["ListImages"] = images(17)
    await server.stop()
    await runtime.wait_lost()
    await server.start()
    await runtime.wait_ready()
    with pytest.raises(errors.ResourceExhausted, match="larger than max"):
        await runtime.list_images()


async def test_credentials_stay_out_of_errors(serve: Serve, dial: Dial) -> None:
    stated = "login joe:hunter2 at https://joe:hunter2@reg/ with am9lOmh1bnRlcjI= failed"
    server = await serve(PullImage=fails(grpc.StatusCode.UNKNOWN, stated))
    auth = cri.AuthConfig(username="joe", auth="am9lOmh1bnRlcjI=")
    with pytest.raises(errors.CRIError) as raised:
        await dial(server.endpoint).pull_image(cri.ImageSpec(image="reg/app"), auth)
    reported = "login joe:[redacted] at https://reg/ with [redacted] failed"
    assert raised.value.details == reported
    assert str(raised.value) == f"PullImage reg/app: {reported} (UNKNOWN)"
    assert raised.value.__cause__ is None
    assert raised.value.__suppress_context__


async def test_server_vanishes_and_comes_back(serve: Serve, dial: Dial) -> None:
    requested = asyncio.Event()

    async def hang(_request: Any, _context: Any) -> None:
        requested.set()
        await asyncio.Event().wait()

    server = await serve(Status=hang)
    runtime = dial(server.endpoint)
    heard: list[bool] = []
    runtime.add_listener(heard.append)
    await runtime.wait_ready()
    under_way = asyncio.create_task(runtime.status())
    await requested.wait()
    await server.stop()
    with pytest.raises(errors.CRIError):
        await under_way
    await runtime.wait_lost()
    assert not runtime.ready
    with pytest.raises(errors.Unavailable):
        await runtime.version()
    await server.start()
    await runtime.wait_ready()
    assert (await runtime.version()).runtime_name == "fake"
    assert heard == [True, False, True]


async def test_server_comes_late(serve: Serve, dial: Dial, short_dir: Path) -> None:
    runtime = dial(str(short_dir / "a.sock"))
    connecting = asyncio.create_task(runtime.connect())
    with pytest.raises(errors.Unavailable):
        await runtime.version()
    await serve(ImageFsInfo=fails(grpc.StatusCode.UNKNOWN, "not initialised"))
    assert (await connecting).runtime_name == "fake"


async def test_a_missing_runtime_is_named(dial: Dial, short_dir: Path) -> None:
    with pytest.raises(errors.Unavailable, match=r"nobody\.sock: no container runtime answers"):
        await dial(f"unix://{short_dir}/nobody.sock").connect(timeout=0.05)


@pytest.mark.parametrize("services", [(), (RUNTIME,), (IMAGES,)])
async def test_a_server_without_cri_services_is_refused(
    serve: Serve, dial: Dial, services: tuple[str, ...]
) -> None:
    server = await serve(services=services, ImageFsInfo=lambda *_: cri.ImageFsInfoResponse())
    with pytest.raises(errors.IncompatibleRuntime, match="is this a CRI v1 runtime"):
        await dial(server.endpoint).connect()


async def test_a_runtime_with_an_old_cri_version_is_refused(serve: Serve, dial: Dial) -> None:
    old = cri.VersionResponse(
        version="0.1.0", runtime_name="old", runtime_version="1", runtime_api_version="v1alpha2"
    )
    server = await serve(Version=lambda *_: old)
    with pytest.raises(errors.IncompatibleRuntime, match="old 1 speaks CRI v1alpha2, we speak v1"):
        await dial(server.endpoint).connect()


async def test_image_endpoint_apart(serve: Serve, dial: Dial) -> None:
    runtimes = await serve("a", services=(RUNTIME,))
    images = await serve(
        "b",
        services=(IMAGES,),
        ImageFsInfo=lambda *_: cri.ImageFsInfoResponse(),
        ListImages=lambda *_: cri.ListImagesResponse(images=[cri.Image(id="i")]),
    )
    runtime = dial(runtimes.endpoint, image_endpoint=images.endpoint)
    await runtime.connect()
    assert [image.id for image in await runtime.list_images()] == ["i"]
    assert [name for name, _ in images.requests] == ["ImageFsInfo", "ListImages"]
    assert [name for name, _ in runtimes.requests] == ["Version"]


async def test_same_image_endpoint_shares_the_connection(serve: Serve, dial: Dial) -> None:
    server = await serve()
    runtime = dial(server.endpoint, image_endpoint=str(server.socket))
    assert runtime.image_connection is runtime.connection


async def test_events_and_their_end(serve: Serve, dial: Dial) -> None:
    async def events(_request: Any, context: Any) -> AsyncIterator[cri.ContainerEventResponse]:
        yield cri.ContainerEventResponse(container_id="c1")
        yield cri.ContainerEventResponse(container_id="c2")
        await context.abort(grpc.StatusCode.UNAVAILABLE, "going down")

    server = await serve(GetContainerEvents=events)
    seen = []
    with pytest.raises(errors.Unavailable, match="going down"):
        async for event in dial(server.endpoint).get_container_events():
            seen.append(event.container_id)
    assert seen == ["c1", "c2"]


async def test_events_unimplemented(serve: Serve, dial: Dial) -> None:
    server = await serve()
    with pytest.raises(errors.Unimplemented):
        await anext(aiter(dial(server.endpoint).get_container_events()))


async def test_a_canceled_call_ends_at_the_server(serve: Serve, dial: Dial) -> None:
    requested, removed = asyncio.Event(), asyncio.Event()

    async def hang(_request: Any, _context: Any) -> None:
        requested.set()
        try:
            await asyncio.Event().wait()
        finally:
            removed.set()

    server = await serve(PullImage=hang)
    pull = asyncio.create_task(dial(server.endpoint).pull_image(cri.ImageSpec(image="i")))
    await requested.wait()
    pull.cancel()
    with pytest.raises(asyncio.CancelledError):
        await pull
    await removed.wait()


async def test_closing_ends_calls_without_canceling_their_tasks(serve: Serve, dial: Dial) -> None:
    requested = asyncio.Event()

    async def hang(_request: Any, _context: Any) -> None:
        requested.set()
        await asyncio.Event().wait()

    async def events(_request: Any, _context: Any) -> AsyncIterator[cri.ContainerEventResponse]:
        yield cri.ContainerEventResponse(container_id="c1")
        await asyncio.Event().wait()

    server = await serve(Status=hang, GetContainerEvents=events)
    runtime = dial(server.endpoint)
    stream = runtime.get_container_events()
    await anext(aiter(stream))
    waiting = [asyncio.ensure_future(c) for c in (runtime.status(), anext(aiter(stream)))]
    await requested.wait()
    await runtime.close()
    await runtime.close()
    results = await asyncio.gather(*waiting, return_exceptions=True)
    assert [type(result) for result in results] == [errors.Cancelled] * 2
    assert not runtime.ready
    with pytest.raises(errors.Cancelled):
        await runtime.version()


async def test_calls_are_counted(serve: Serve, dial: Dial) -> None:
    async def events(_request: Any, _context: Any) -> AsyncIterator[cri.ContainerEventResponse]:
        yield cri.ContainerEventResponse(container_id="c1")

    server = await serve(
        RunPodSandbox=lambda *_: cri.RunPodSandboxResponse(), GetContainerEvents=events
    )
    counted = Counted()
    runtime = dial(server.endpoint, metrics=counted)
    await runtime.version()
    with pytest.raises(errors.Unimplemented):
        await runtime.list_containers()
    with pytest.raises(errors.InvalidResponse):
        await runtime.run_pod_sandbox(SANDBOX, "gvisor")
    assert [event.container_id async for event in runtime.get_container_events()] == ["c1"]
    assert counted.calls == [
        ("version", False),
        ("list_containers", True),
        ("run_podsandbox", True),
        ("get_container_events", False),
    ]
    assert counted.sandboxes == [("gvisor", True)]


async def test_a_command_that_prints_too_much_is_an_error(serve: Serve, dial: Dial) -> None:
    """Ten probes of 16 MiB each held the event loop for a second."""
    printed = b"x" * (MAX_OUTPUT - 100)
    server = await serve(
        ExecSync=lambda request, _: cri.ExecSyncResponse(stdout=printed * len(request.cmd)),
    )
    runtime = dial(server.endpoint)
    assert len((await runtime.exec_sync("c1", ["once"], 0)).stdout) == len(printed)
    with pytest.raises(errors.ResourceExhausted, match="larger than max"):
        await runtime.exec_sync("c1", ["twice", "as much"], 0)
