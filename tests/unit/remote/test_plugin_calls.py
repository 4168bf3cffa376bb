"""Calls to a plugin end in time, and their errors name the plugin without secrets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import grpc.aio
import pytest

from kubeletpy.remote.errors import Code
from kubeletpy.remote.generated import pluginregistration_pb2 as pb
from kubeletpy.remote.plugin_calls import MAX_ANSWER, PluginCallFailed, PluginCalls
from tests.kit.costs import leaves_when_cancelled

SERVICE = pb.DESCRIPTOR.services_by_name["Registration"]
Context = grpc.aio.ServicerContext[bytes, bytes]
Handler = Callable[[bytes, Context], Awaitable[bytes]]


@asynccontextmanager
async def plugin(directory: Path, handler: Handler) -> AsyncIterator[PluginCalls]:
    """A plugin that answers GetInfo with the handler, and a client for it."""
    server = grpc.aio.server()
    method = grpc.unary_unary_rpc_method_handler(handler)
    generic = grpc.method_handlers_generic_handler(SERVICE.full_name, {"GetInfo": method})
    server.add_generic_rpc_handlers((generic,))
    socket = str(directory / "s.sock")
    server.add_insecure_port(f"unix:{socket}")
    await server.start()
    calls = PluginCalls(socket, SERVICE, "plugin x")
    try:
        yield calls
    finally:
        await calls.close()
        await server.stop(None)


def silent() -> tuple[Handler, asyncio.Event]:
    """A handler that never answers, and an event that is set when it is called."""
    requested = asyncio.Event()

    async def never(_: bytes, __: Context) -> bytes:
        requested.set()
        await asyncio.Event().wait()
        return b""

    return never, requested


async def get_info(calls: PluginCalls, within: float = 30.0, secret: str = "") -> pb.PluginInfo:
    return await calls.call("GetInfo", pb.InfoRequest(), pb.PluginInfo, within, secrets=[secret])


async def test_an_answer(tmp_path: Path) -> None:
    async def answer(_: bytes, __: Context) -> bytes:
        return pb.PluginInfo(type="CSIPlugin", name="x").SerializeToString()

    async with plugin(tmp_path, answer) as calls:
        await calls.connect(30)
        assert (await get_info(calls)).name == "x"


async def test_a_canceled_call_is_freed_with_its_last_reference(tmp_path: Path) -> None:
    handler, requested = silent()
    async with plugin(tmp_path, handler) as calls:
        assert await leaves_when_cancelled(get_info(calls), requested.wait())


async def test_a_refusal_names_plugin_and_call_and_keeps_secrets(tmp_path: Path) -> None:
    async def refuse(_: bytes, context: Context) -> bytes:
        await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "bad password hunter2\x1b[2J")
        return b""

    async with plugin(tmp_path, refuse) as calls:
        with pytest.raises(PluginCallFailed) as raised:
            await get_info(calls, secret="hunter2")
    assert raised.value.code is Code.INVALID_ARGUMENT
    assert str(raised.value) == (
        "GetInfo of plugin x: rpc error: code = InvalidArgument desc = bad password [redacted][2J"
    )


async def test_nonsense(tmp_path: Path) -> None:
    async def nonsense(_: bytes, __: Context) -> bytes:
        return b"\xff\xff\xff no message"

    async with plugin(tmp_path, nonsense) as calls:
        with pytest.raises(PluginCallFailed, match=r"GetInfo of plugin x.*not what") as raised:
            await get_info(calls)
    assert not raised.value.answered


async def test_too_much(tmp_path: Path) -> None:
    async def huge(_: bytes, __: Context) -> bytes:
        return pb.PluginInfo(name="x" * MAX_ANSWER).SerializeToString()

    async with plugin(tmp_path, huge) as calls:
        with pytest.raises(PluginCallFailed) as raised:
            await get_info(calls)
    assert raised.value.code is Code.RESOURCE_EXHAUSTED


async def test_no_answer_in_time(tmp_path: Path) -> None:
    handler, _ = silent()
    async with plugin(tmp_path, handler) as calls:
        with pytest.raises(PluginCallFailed) as raised:
            await get_info(calls, within=0.2)
    assert raised.value.code is Code.DEADLINE_EXCEEDED


async def test_closed_while_it_waits(tmp_path: Path) -> None:
    handler, requested = silent()
    async with plugin(tmp_path, handler) as calls:
        waiting = asyncio.create_task(get_info(calls))
        await requested.wait()
        await calls.close()
        with pytest.raises(PluginCallFailed, match="has disconnected"):
            await waiting
        with pytest.raises(PluginCallFailed, match="has disconnected"):
            await get_info(calls)


async def test_a_socket_without_a_listener(tmp_path: Path) -> None:
    (tmp_path / "s.sock").touch()
    calls = PluginCalls(str(tmp_path / "s.sock"), SERVICE, "plugin x")
    try:
        with pytest.raises(PluginCallFailed, match=r"connecting to plugin x.*within 0\.2s"):
            await calls.connect(0.2)
        with pytest.raises(PluginCallFailed) as raised:
            await get_info(calls, within=5)
    finally:
        await calls.close()
    assert raised.value.code in (Code.UNAVAILABLE, Code.DEADLINE_EXCEEDED)
