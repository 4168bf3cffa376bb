"""Lists of tens of thousands of items, and a runtime that ignores every filter."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from kubeletpy.remote import calls
from kubeletpy.remote.errors import ResourceExhausted
from kubeletpy.remote.generated import api_pb2 as cri
from kubeletpy.runtime_manager import names
from tests.unit.remote.conftest import Dial, Serve

ITEMS = 6_000


def _labels(number: int) -> dict[str, str]:
    uid = f"uid-{number:08d}"
    return {names.POD_UID: uid, names.POD_NAME: f"p{number}", names.POD_NAMESPACE: "default"}


def sandboxes(count: int) -> bytes:
    """A list of as many pods' sandboxes."""
    return cri.ListPodSandboxResponse(
        items=[
            cri.PodSandbox(
                id=f"{number:064x}",
                metadata=cri.PodSandboxMetadata(name=f"p{number}", namespace="default"),
                state=cri.SANDBOX_NOTREADY,
                created_at=number + 1,
                labels=_labels(number),
            )
            for number in range(count)
        ]
    ).SerializeToString()


def containers(count: int) -> bytes:
    """A list of a container of each."""
    return cri.ListContainersResponse(
        containers=[
            cri.Container(
                id=f"{number:064x}",
                pod_sandbox_id=f"{number:064x}",
                metadata=cri.ContainerMetadata(name="c"),
                state=cri.CONTAINER_EXITED,
                created_at=number + 1,
                labels={**_labels(number), names.CONTAINER_NAME: "c"},
            )
            for number in range(count)
        ]
    ).SerializeToString()


def _sandbox_status(sandbox_id: str) -> cri.PodSandboxStatusResponse:
    number = int(sandbox_id, 16)
    about = _labels(number)
    metadata = cri.PodSandboxMetadata(
        name=about[names.POD_NAME], namespace="default", uid=about[names.POD_UID]
    )
    status = cri.PodSandboxStatus(id=sandbox_id, metadata=metadata, created_at=1, labels=about)
    return cri.PodSandboxStatusResponse(status=status)


def _container_status(container_id: str) -> cri.ContainerStatusResponse:
    number = int(container_id, 16)
    status = cri.ContainerStatus(
        id=container_id,
        metadata=cri.ContainerMetadata(name="c"),
        state=cri.CONTAINER_EXITED,
        created_at=number + 1,
        image=cri.ImageSpec(image="i"),
        image_ref="i",
        labels={**_labels(number), names.CONTAINER_NAME: "c"},
    )
    return cri.ContainerStatusResponse(status=status)


def _deaf(count: int) -> dict[str, Any]:
    """The answers of a runtime that has so many pods and ignores filters."""
    first, second = sandboxes(count), containers(count)
    return {"ListPodSandbox": lambda *_: first, "ListContainers": lambda *_: second}


async def test_what_a_filter_does_not_let_through_is_dropped(
    serve: Serve, dial: Dial, caplog: pytest.LogCaptureFixture
) -> None:
    runtime = dial((await serve(**_deaf(50))).endpoint)
    chosen = {names.POD_UID: "uid-00000007"}
    for _ in range(2):
        (sandbox,) = await runtime.list_pod_sandbox(cri.PodSandboxFilter(label_selector=chosen))
        (container,) = await runtime.list_containers(cri.ContainerFilter(label_selector=chosen))
        assert sandbox.id == container.pod_sandbox_id == f"{7:064x}"
        assert not await runtime.list_containers(
            cri.ContainerFilter(state=cri.ContainerStateValue(state=cri.CONTAINER_RUNNING))
        )
    assert [record.message for record in caplog.records] == [
        "the runtime ignores the filter of a list: each pod costs the list of the whole node; "
        "check the runtime's version"
    ] * 2
    assert [vars(record)["list"] for record in caplog.records] == ["sandboxes", "containers"]
    assert len(await runtime.list_containers()) == 50


async def test_a_stream_without_end_is_cut_off(
    serve: Serve, dial: Dial, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calls, "MOST_STREAMED", 1_000_000)
    sent = 0

    async def endless(*_: Any) -> AsyncIterator[bytes]:
        nonlocal sent
        while True:
            sent += 1
            yield containers(100)

    async def too_large(_request: Any, context: Any) -> None:
        await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "too large")

    server = await serve(
        ListContainers=too_large,
        StreamContainers=endless,
        ListPodSandbox=lambda *_: cri.ListPodSandboxResponse(),
    )
    runtime = dial(server.endpoint)
    with pytest.raises(ResourceExhausted, match="StreamContainers: the list is larger than"):
        _ = [each async for each in runtime.stream_containers()]
    with pytest.raises(ResourceExhausted):
        await runtime.list_containers()
    await asyncio.sleep(0)
    assert sent * len(containers(100)) < 20_000_000, "gRPC reads ahead by a window"


async def test_memory_and_tasks_do_not_grow_with_the_items(serve: Serve, tmp_path: Path) -> None:
    answers = _deaf(ITEMS)
    received_kib = (len(answers["ListPodSandbox"]()) + len(answers["ListContainers"]())) // 1024
    server = await serve(
        **answers,
        ContainerStatus=lambda request, _: _container_status(request.container_id),
        RemoveContainer=lambda *_: b"",
        PodSandboxStatus=lambda request, _: _sandbox_status(request.pod_sandbox_id),
    )
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.unit.remote.reads_long_lists"),
        *(server.endpoint, str(tmp_path)),
        stdout=asyncio.subprocess.PIPE,
        cwd=Path(__file__).parents[3],
    )
    out, _ = await process.communicate()
    found = json.loads(out)
    print(found, received_kib)
    assert found["tasks"] < 100
    assert found["kib"] < 25 * received_kib
