"""Every call of the client against a runtime that answers garbage, extremes, nothing, or no end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest
from google.protobuf.message_factory import GetMessageClass

from kubeletpy.remote.errors import (
    Code,
    CRIError,
    DeadlineExceeded,
    InvalidResponse,
    is_silence,
    no_answer,
    runtime_is_silent,
)
from tests.kit.remote import CALLS, extreme, methods, outcome
from tests.unit.remote.conftest import Dial, Serve

GARBAGE = {
    "noise": b"\xff\x13\x37" * 50,
    "torn": b"\x0a\x7fabc",
    "not UTF-8": b"\x0a\x02\xff\xfe\x12\x02\xff\xfe\x1a\x02\xff\xfe\x22\x02\xff\xfe",
}
TEXT_FIRST = {"Version", "RunPodSandbox", "CreateContainer", "Exec", "Attach", "PortForward"}
"""Calls whose answer begins with a text, in which bytes that are not UTF-8 are a fault."""


def test_the_table_has_every_call() -> None:
    assert set(CALLS) == set(methods())


def _serving(data: Any) -> dict[str, Any]:
    """Handlers of all calls, each with ``data(method)`` as its answer or answers."""

    def handler(name: str, method: Any) -> Any:
        def one(_request: Any, _context: Any) -> Any:
            return data(method)

        async def several(_request: Any, _context: Any) -> AsyncIterator[Any]:
            yield data(method)

        return several if method.server_streaming else one

    return {name: handler(name, method) for name, method in methods().items()}


@pytest.mark.parametrize("kind", GARBAGE)
async def test_garbage_is_an_error_that_names_call_and_remedy(
    kind: str, serve: Serve, dial: Dial, caplog: pytest.LogCaptureFixture
) -> None:
    server = await serve(**_serving(lambda _method: GARBAGE[kind]))
    runtime = dial(server.endpoint)
    for name, call in CALLS.items():
        if kind == "not UTF-8" and name not in TEXT_FIRST:
            continue
        with pytest.raises(InvalidResponse) as caught:
            await outcome(call(runtime))
        answer = methods()[name].output_type.name
        assert str(caught.value).startswith(name)
        assert f"of {len(GARBAGE[kind])} bytes is no {answer} of CRI v1" in str(caught.value)
        assert "\n" not in str(caught.value)
    assert not [each for each in caplog.records if not _is_of_a_closed_loop(each)]


def _is_of_a_closed_loop(record: logging.LogRecord) -> bool:
    """gRPC has one queue of events for the process: what another test's calls left may end here.

    This test's own loop runs, so the message is never about its calls.
    """
    return record.exc_info is not None and str(record.exc_info[1]) == "Event loop is closed"


@pytest.mark.parametrize("high", [False, True], ids=["low", "high"])
async def test_extremes_are_an_answer_or_an_error(high: bool, serve: Serve, dial: Dial) -> None:
    server = await serve(
        **_serving(lambda method: extreme(GetMessageClass(method.output_type), high))
    )
    runtime = dial(server.endpoint)
    for call in CALLS.values():
        try:
            await outcome(call(runtime))
        except CRIError as error:
            assert len(str(error)) < 5000


async def test_missing_fields_are_an_answer_or_an_error(serve: Serve, dial: Dial) -> None:
    server = await serve(**_serving(lambda _method: b""))
    runtime = dial(server.endpoint)
    refused = set()
    for name, call in CALLS.items():
        try:
            await outcome(call(runtime))
        except InvalidResponse as error:
            refused.add(name)
            assert "not set" in str(error)
    assert refused == {
        *("Version", "Status", "RunPodSandbox", "PodSandboxStatus", "PodSandboxStats"),
        *("CreateContainer", "ContainerStatus", "ContainerStats", "PullImage"),
        *("Exec", "Attach", "PortForward"),
    }


async def test_silence_ends_with_the_deadline(serve: Serve, dial: Dial) -> None:
    release = asyncio.Event()

    async def silent(_request: Any, _context: Any) -> bytes:
        await release.wait()
        return b""

    async def silent_stream(_request: Any, _context: Any) -> AsyncIterator[bytes]:
        await release.wait()
        yield b""

    handlers = {
        name: silent_stream if method.server_streaming else silent
        for name, method in methods().items()
    }
    server = await serve(**handlers)
    runtime = dial(server.endpoint, request_timeout=0.2)
    endless = {"PullImage", "GetContainerEvents"}
    timed = [name for name in CALLS if name not in endless]
    found = await asyncio.gather(
        *(outcome(CALLS[name](runtime)) for name in timed), return_exceptions=True
    )
    release.set()
    for name, each in zip(timed, found, strict=True):
        assert isinstance(each, DeadlineExceeded), (name, each)
        assert name in str(each)


# The error for a silent peer names the call and the time instead of quoting gRPC.


@pytest.mark.parametrize(
    ("code", "details", "silent"),
    [
        (Code.DEADLINE_EXCEEDED, "", True),
        (Code.DEADLINE_EXCEEDED, "Deadline Exceeded", True),
        (Code.DEADLINE_EXCEEDED, "Stream removed (Deadline Exceeded)", True),
        (Code.UNKNOWN, "Stream removed (Deadline Exceeded)", True),
        (Code.CANCELLED, "Stream removed (Deadline Exceeded)", True),
        (Code.UNKNOWN, "Stream removed", False),
        (Code.DEADLINE_EXCEEDED, "timeout 1s exceeded: context deadline exceeded", False),
        (Code.UNAVAILABLE, "Deadline Exceeded", False),
        (Code.UNKNOWN, "no such image", False),
    ],
)
def test_silence(code: Code, details: str, silent: bool) -> None:
    assert is_silence(code, details) is silent


def test_texts() -> None:
    assert no_answer(120) == "no answer within 120s"
    assert no_answer(None) == "no answer in time"
    assert runtime_is_silent("RunPodSandbox", "unix:///run/x.sock", 240) == (
        "no answer within 240s to RunPodSandbox from the container runtime at unix:///run/x.sock; "
        "check that it is running and not overloaded or stopped, or raise runtimeRequestTimeout"
    )
