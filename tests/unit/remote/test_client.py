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
from tests.kit.remote import IMAGES, RUNTIME
from tests.unit.remote.conftest import Dial, Serve

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
        ExecSync=lambda request, _: cri.ExecSyncResponse(stdout=printed * len(request.cmd))
    )
    runtime = dial(server.endpoint)
    assert len((await runtime.exec_sync("c1", ["once"], 0)).stdout) == len(printed)
    with pytest.raises(errors.ResourceExhausted, match="larger than max"):
        await runtime.exec_sync("c1", ["twice", "as much"], 0)


# Lists larger than one message, from runtimes with and without streams for them.

UID = "io.kubernetes.pod.uid"
STUFFING = "x" * 1_400_000
"""About as much as one pod of a real API server can carry."""


def sandboxes(count: int, stuffing: str = STUFFING) -> list[cri.PodSandbox]:
    return [
        cri.PodSandbox(
            id=f"s{number}",
            metadata=cri.PodSandboxMetadata(name="p"),
            state=cri.SANDBOX_NOTREADY if number % 2 else cri.SANDBOX_READY,
            labels={UID: f"uid-{number}"},
            annotations={"a": stuffing},
        )
        for number in range(count)
    ]


def containers(count: int, stuffing: str = STUFFING) -> list[cri.Container]:
    return [
        cri.Container(
            id=f"c{number}",
            pod_sandbox_id=f"s{number}",
            metadata=cri.ContainerMetadata(name="c"),
            state=cri.CONTAINER_RUNNING,
            labels={UID: f"uid-{number}"},
            annotations={"a": stuffing},
        )
        for number in range(count)
    ]


def matches(item: Any, chosen: Any, **same: str) -> bool:
    return (
        chosen.id in ("", item.id)
        and (not chosen.HasField("state") or chosen.state.state == item.state)
        and chosen.label_selector.items() <= item.labels.items()
        and all(getattr(chosen, name) in ("", value) for name, value in same.items())
    )


def listing(known: list[cri.PodSandbox], inside: list[cri.Container]) -> dict[str, Any]:
    """The answers of a runtime with these sandboxes and containers."""
    return {
        "ListPodSandbox": lambda request, _: cri.ListPodSandboxResponse(
            items=[each for each in known if matches(each, request.filter)]
        ),
        "ListContainers": lambda request, _: cri.ListContainersResponse(
            containers=[
                each
                for each in inside
                if matches(each, request.filter, pod_sandbox_id=each.pod_sandbox_id)
            ]
        ),
    }


async def selectors() -> list[dict[str, str]]:
    return [{UID: f"uid-{number}"} for number in range(40)]


async def test_containers_are_listed_by_sandbox(serve: Serve, dial: Dial) -> None:
    server = await serve(**listing(sandboxes(14, ""), containers(14)))
    runtime = dial(server.endpoint)
    assert {c.id for c in await runtime.list_containers()} == {f"c{n}" for n in range(14)}
    begun = len(server.requests)
    assert len(await runtime.list_containers()) == 14
    again = [request for name, request in server.requests[begun:] if name == "ListContainers"]
    assert cri.ListContainersRequest() not in again, "known by now"


async def test_a_list_that_fits_is_requested_once(serve: Serve, dial: Dial) -> None:
    server = await serve(**listing(sandboxes(3), containers(3)))
    runtime = dial(server.endpoint)
    assert len(await runtime.list_pod_sandbox()) == len(await runtime.list_containers()) == 3
    assert len(server.requests) == 2


async def test_sandboxes_are_listed_by_state_and_by_pod(serve: Serve, dial: Dial) -> None:
    server = await serve(**listing(sandboxes(14), []))
    runtime = dial(server.endpoint)
    assert len(await runtime.list_pod_sandbox()) == 14
    assert len(server.requests) == 3, "all, then two states; there is no stream"
    server = await serve("b", **listing(sandboxes(40), containers(40)))
    runtime = dial(server.endpoint, pod_selectors=selectors)
    assert len(await runtime.list_pod_sandbox()) == 40
    assert len(await runtime.list_containers()) == 40
    chosen = cri.PodSandboxFilter(label_selector={UID: "uid-3"})
    assert [s.id for s in await runtime.list_pod_sandbox(chosen)] == ["s3"]


async def test_a_list_that_is_too_large_even_in_parts_fails(serve: Serve, dial: Dial) -> None:
    server = await serve(**listing(sandboxes(40), []))
    with pytest.raises(errors.ResourceExhausted, match="smaller parts"):
        await dial(server.endpoint).list_pod_sandbox()


async def test_a_stream_is_better_than_parts(serve: Serve, dial: Dial) -> None:
    async def stream(_request: Any, _context: Any) -> AsyncIterator[cri.StreamContainersResponse]:
        for container in containers(14):
            yield cri.StreamContainersResponse(containers=[container])

    server = await serve(**listing([], containers(14)), StreamContainers=stream)
    assert len(await dial(server.endpoint).list_containers()) == 14
    assert [name for name, _ in server.requests] == ["ListContainers", "StreamContainers"]


async def test_a_stream_of_large_messages_is_replaced_by_parts(serve: Serve, dial: Dial) -> None:
    """CRI-O, for example, sends messages of 3000 items each."""

    async def stream(_request: Any, _context: Any) -> AsyncIterator[cri.StreamContainersResponse]:
        yield cri.StreamContainersResponse(containers=containers(14))

    known = listing(sandboxes(14, ""), containers(14))
    server = await serve(**known, StreamContainers=stream)
    runtime = dial(server.endpoint)
    for _ in range(2):
        assert {c.id for c in await runtime.list_containers()} == {f"c{n}" for n in range(14)}
    assert [name for name, _ in server.requests].count("StreamContainers") == 1


@pytest.mark.parametrize("failed", [grpc.StatusCode.UNKNOWN, grpc.StatusCode.UNAVAILABLE])
async def test_a_state_that_a_runtime_does_not_select_by(
    serve: Serve, dial: Dial, failed: grpc.StatusCode
) -> None:
    """cri-dockerd, for example, refuses the state "unknown"; a temporary error is no refusal."""
    known = listing(sandboxes(14, ""), containers(14))

    async def answer(request: cri.ListContainersRequest, context: Any) -> Any:
        chosen = request.filter
        if chosen.HasField("state") and chosen.state.state == cri.CONTAINER_UNKNOWN:
            await context.abort(failed, "invalid filter 'status=unknown'")
        return known["ListContainers"](request, context)

    server = await serve(**{**known, "ListContainers": answer})
    runtime = dial(server.endpoint)
    if failed is grpc.StatusCode.UNKNOWN:
        assert {c.id for c in await runtime.list_containers()} == {f"c{n}" for n in range(14)}
    else:
        with pytest.raises(errors.Unavailable):
            await runtime.list_containers()


async def test_changes_while_parts_are_listed_are_not_lost(serve: Serve, dial: Dial) -> None:
    """A container that ends between two parts is in both of them, and has ended."""
    known = containers(14)

    def answer(request: cri.ListContainersRequest, _: Any) -> cri.ListContainersResponse:
        found = [each for each in known if matches(each, request.filter)]
        if request.filter.state.state == cri.CONTAINER_RUNNING and request.filter.HasField("state"):
            found = [cri.Container.FromString(c.SerializeToString()) for c in found[:5]]
            for container in known:
                container.state = cri.CONTAINER_EXITED
                container.annotations.clear()
        return cri.ListContainersResponse(containers=found)

    server = await serve(ListContainers=answer)
    listed = await dial(server.endpoint).list_containers()
    assert [c.state for c in listed] == [cri.CONTAINER_EXITED] * 14
