"""containerd's own services: files of its content store, bytes that it has written, and exits."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import Any, cast

import grpc
import pytest

from kubeletpy.remote import errors
from kubeletpy.remote.connection import MAX_EVENT, GrpcChannel
from kubeletpy.remote.containerd import RemoteContent, task_exits
from kubeletpy.remote.generated import api_pb2 as cri
from kubeletpy.remote.generated.snapshots_pb2 import StatSnapshotRequest, StatSnapshotResponse
from kubeletpy.remote.generated.task_events_pb2 import Envelope, SubscribeRequest, TaskExit
from tests.kit.remote import EVENTS, SNAPSHOTS
from tests.unit.remote.conftest import Serve

BLOB, INGEST = f"sha256:{1:064x}", f"sha256:{2:064x}"


def content(folder: Path, socket: Path, snapshotter: str = "snapshots") -> RemoteContent:
    async def file_systems() -> cri.ImageFsInfoResponse:
        snapshots = cri.FilesystemIdentifier(mountpoint=f"{folder}/{snapshotter}")
        return cri.ImageFsInfoResponse(image_filesystems=[cri.FilesystemUsage(fs_id=snapshots)])

    return RemoteContent(GrpcChannel(f"unix://{socket}"), file_systems)


async def test_the_first_bytes_of_blobs_and_ingests(tmp_path: Path) -> None:
    store = content(tmp_path, tmp_path / "socket")
    assert await store.head(BLOB, 4) == b""
    folder = tmp_path / "io.containerd.content.v1.content"
    (folder / "blobs/sha256").mkdir(parents=True)
    (folder / "blobs" / BLOB.replace(":", "/")).write_bytes(b"complete")
    for number, ref in enumerate((f"k8s.io/1/layer-{BLOB}", f"k8s.io/7/layer-{INGEST}")):
        (folder / f"ingest/{number}").mkdir(parents=True)
        (folder / f"ingest/{number}/ref").write_text(ref)
        (folder / f"ingest/{number}/data").write_bytes(b"arriving")
    assert await store.head(BLOB, 4) == b"comp"
    assert await store.head(INGEST, 5) == b"arriv"
    assert await store.head(f"sha256:{3:064x}", 5) == b""
    await store.connection.close()


async def test_bytes_that_the_runtime_has_written(tmp_path: Path) -> None:
    socket = tmp_path / "socket"
    store = content(tmp_path, socket)
    assert await store.written() is None
    server = await asyncio.start_unix_server(lambda _, writer: writer.close(), socket)
    before = await store.written()
    (tmp_path / "file").write_bytes(bytes(1 << 20))
    after = await store.written()
    assert before is not None
    assert after is not None
    assert after >= before + (1 << 20)
    server.close()
    await store.connection.close()


@pytest.mark.parametrize("snapshotter", ["io.containerd.snapshotter.v1.overlayfs", "stargz"])
async def test_whether_a_layer_has_its_files(
    tmp_path: Path, serve: Serve, snapshotter: str
) -> None:
    async def stat(request: Any, context: Any) -> StatSnapshotResponse:
        assert ("containerd-namespace", "k8s.io") in context.invocation_metadata()
        if request != StatSnapshotRequest(snapshotter="overlayfs", key="there"):
            await context.abort(grpc.StatusCode.NOT_FOUND, "snapshot does not exist")
        return StatSnapshotResponse()

    server = await serve(services=(SNAPSHOTS,), Stat=stat)
    store = content(tmp_path, server.socket, snapshotter)
    assert await store.has_files("there")
    assert await store.has_files("other") is (snapshotter == "stargz")
    await store.connection.close()


# -- exits ---------------------------------------------------------------------------------------


def sent(
    task: TaskExit | bytes,
    *,
    namespace: str = "k8s.io",
    topic: str = "/tasks/exit",
    kind: str = "containerd.events.TaskExit",
) -> Envelope:
    """An event as containerd sends it."""
    envelope = Envelope(namespace=namespace, topic=topic)
    envelope.event.type_url = kind
    envelope.event.value = task if isinstance(task, bytes) else task.SerializeToString()
    return envelope


def exit_of(container_id: str, process: str | None = None) -> TaskExit:
    return TaskExit(container_id=container_id, id=container_id if process is None else process)


async def followed(serve: Serve, *events: Envelope | bytes, then: Any = None) -> list[str]:
    """The exits that a client finds among events, before the stream breaks."""

    async def subscribe(_request: Any, context: Any) -> AsyncIterator[Envelope | bytes]:
        assert ("containerd-namespace", "k8s.io") in context.invocation_metadata()
        for event in events:
            yield event
        await context.abort(then or grpc.StatusCode.UNAVAILABLE, "going\x1b down")

    server = await serve(services=(EVENTS,), Subscribe=subscribe)
    connection, seen = GrpcChannel(server.endpoint), []
    try:
        async with aclosing(cast("Any", task_exits(connection))) as exits:
            async for each in exits:
                seen.append(each)
    except errors.Unavailable as error:
        assert error.details == "going down"
    finally:
        await connection.close()
    filters = ['namespace==k8s.io,topic=="/tasks/exit"']
    assert server.requests == [("Subscribe", SubscribeRequest(filters=filters))]
    return seen


async def test_exits_of_main_processes_in_the_namespace_of_the_cri(serve: Serve) -> None:
    url = "type.googleapis.com/containerd.events.TaskExit"
    assert await followed(
        serve,
        sent(exit_of("c1")),
        sent(exit_of("c2", "an-exec")),
        sent(exit_of("c3"), namespace="moby"),
        sent(exit_of("c4"), topic="/tasks/oom"),
        sent(exit_of("c5"), kind="containerd.events.TaskDelete"),
        sent(exit_of("c6"), kind=url),
    ) == ["c1", "c6"]


async def test_garbage_among_exits_is_ignored(serve: Serve) -> None:
    assert await followed(
        serve,
        b"\xff\xff\xff",
        sent(b"\xff\xff"),
        sent(TaskExit()),
        sent(exit_of("a b")),
        sent(exit_of("../c")),
        sent(exit_of("c\n")),
        sent(exit_of("c" * 129)),
        Envelope(),
        sent(exit_of("c1")),
    ) == ["c1"]


async def test_a_huge_event_breaks_the_stream(serve: Serve) -> None:
    with pytest.raises(errors.ResourceExhausted):
        await followed(serve, sent(bytes(MAX_EVENT)))


@pytest.mark.parametrize("services", [(EVENTS,), ()], ids=["method", "service"])
async def test_a_runtime_without_task_events(serve: Serve, services: tuple[str, ...]) -> None:
    connection = GrpcChannel((await serve(services=services)).endpoint)
    with pytest.raises(errors.Unimplemented):
        await anext(aiter(task_exits(connection)))
    await connection.close()


async def test_a_runtime_that_refuses_task_events(serve: Serve) -> None:
    with pytest.raises(errors.PermissionDenied):
        await followed(serve, then=grpc.StatusCode.PERMISSION_DENIED)
