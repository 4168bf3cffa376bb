"""Lists larger than one message, from runtimes with and without streams for them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest

from kubeletpy.remote import errors
from kubeletpy.remote.generated import api_pb2 as cri
from tests.unit.remote.conftest import Dial, Serve

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
