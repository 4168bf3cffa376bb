"""gRPC probes of servers that send frames endlessly: bytes read, CPU time and memory."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import resource
from collections.abc import AsyncIterator, Callable, Iterator

import hpack
import pytest

from kubeletpy.base.tasks import Turns
from kubeletpy.base.wire.http2 import BOUNDS, Exchange
from kubeletpy.probes.handlers import grpc_health
from kubeletpy.probes.handlers.outcome import HandlerResult
from tests.kit.costs import events_per_turn, no_collections
from tests.kit.probes import serving

LOOPBACK = "127.0.0.1"
IN_FLIGHT = 8 << 20
"""Bytes that the buffers of both sockets may hold beyond what the agent reads."""


def frame(kind: int, body: bytes = b"", *, flags: int = 0, stream: int = 0) -> bytes:
    head = len(body).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big")
    return head + body


SETTINGS = frame(4)
HEAD = frame(1, b"\x88", flags=4, stream=1)
WIDE = frame(4, b"".join(n.to_bytes(2, "big") + b"\0\0\0\1" for n in range(100, 2800)))
INTERIM = frame(
    1, hpack.Encoder().encode([(":status", "103")] + [("x", "y")] * 200), flags=4, stream=1
)
FLOODS = {
    "settings": (SETTINGS, frame(4, b"\0\3\0\0\0\1")),
    "wide-settings": (SETTINGS, WIDE),
    "settings-acks": (SETTINGS, frame(4, flags=1)),
    "ping": (SETTINGS, frame(6, bytes(8))),
    "window-update": (SETTINGS, frame(8, b"\0\0\0\1")),
    "window-update-of-the-stream": (SETTINGS, frame(8, b"\0\0\0\1", stream=1)),
    "goaway": (SETTINGS, frame(7, b"\x7f\xff\xff\xff\0\0\0\0")),
    "push-promise": (SETTINGS, frame(5, b"\0\0\0\2\x82", flags=4, stream=1)),
    "continuation": (SETTINGS + frame(1, b"\x88", stream=1), frame(9, b"\x90" * 8, stream=1)),
    "empty-continuation": (SETTINGS + frame(1, b"\x88", stream=1), frame(9, stream=1)),
    "interim": (SETTINGS, INTERIM),
    "priority": (SETTINGS, frame(2, bytes(5), stream=1)),
    "unknown": (SETTINGS, frame(77, b"x", stream=1)),
    "empty-data": (SETTINGS + HEAD, frame(0, stream=1)),
    "data": (SETTINGS + HEAD, frame(0, b"x" * 1000, stream=1)),
    "nothing-but-pings": (b"", frame(6, bytes(8))),
}


@contextlib.asynccontextmanager
async def flooding(start: bytes, again: bytes) -> AsyncIterator[tuple[int, Callable[[], int]]]:
    """Runs a server that floods each client with frames; yields its port and a counter of bytes."""
    sent = 0
    block = again * (65536 // len(again) + 1)

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        await reader.read(24)
        writer.write(start[: len(SETTINGS)])
        if start:
            await asyncio.sleep(0.02)  # the request comes after the settings
        writer.write(start[len(SETTINGS) :])
        while True:
            writer.write(block)
            sent += len(block)
            await writer.drain()

    async with serving(talk) as port:
        yield port, lambda: sent


@pytest.mark.parametrize("kind", FLOODS)
async def test_a_flood_of_frames_is_a_failure_at_once(kind: str) -> None:
    """The kubelet's client answers each frame until the probe's time is up, without a bound."""
    fed = Fed()
    async with flooding(*FLOODS[kind]) as (port, sent):
        with fed.counting():
            reply = await grpc_health.check(LOOPBACK, port, "", 60)
    assert reply.answer is HandlerResult.FAILURE
    assert "timeout" not in reply.output, "it ended long before its time was up"
    assert fed.bytes <= BOUNDS.bytes + 1
    assert fed.replied <= 64 * BOUNDS.frames
    assert sent() < IN_FLIGHT


@pytest.mark.parametrize("kind", ["settings", "ping", "data"])
async def test_the_failure_names_the_bound(kind: str) -> None:
    async with flooding(*FLOODS[kind]) as (port, _):
        reply = await grpc_health.check(LOOPBACK, port, "", 60)
    what = "16384 bytes" if kind == "data" else "64 frames"
    assert reply.output == (
        "error: health rpc probe failed: rpc error: code = ResourceExhausted desc = the server "
        f"sent more than {what} in answer to one call; it was disconnected"
    )


async def test_floods_in_parallel_hold_the_loop_for_one_at_a_time() -> None:
    """Nine containers with three probes each, which answer at the same moment."""
    turns = Turns()
    async with contextlib.AsyncExitStack() as stack:
        ports = [(await stack.enter_async_context(flooding(*each)))[0] for each in FLOODS.values()]
        with events_per_turn() as per_turn, Fed(per_turn.count).counting():
            checks = [
                grpc_health.check(LOOPBACK, port, "", 60, turns) for port in ports for _ in range(3)
            ]
            replies = await asyncio.gather(*checks)
    assert {each.answer for each in replies} == {HandlerResult.FAILURE}
    assert per_turn.total > len(ports)
    assert per_turn.most == 1


async def test_a_turn_of_the_loop_has_one_task() -> None:
    turns, done = Turns(), 0

    def work() -> None:
        nonlocal done
        done += 1

    for _ in range(5):
        turns.add(work)
    assert done == 0
    for turn in range(1, 6):
        await asyncio.sleep(0)
        assert done == turn
    turns.add(work)
    await asyncio.sleep(0)
    assert done == 6


async def test_nothing_is_kept_of_a_flood() -> None:
    """Neither bytes nor objects: cycles would stay until the next full collection."""
    async with contextlib.AsyncExitStack() as stack:
        ports = [(await stack.enter_async_context(flooding(*each)))[0] for each in FLOODS.values()]
        for port in ports:  # first uses load modules
            await grpc_health.check(LOOPBACK, port, "", 60)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        with no_collections():
            for port in ports * 3:
                await grpc_health.check(LOOPBACK, port, "", 60)
            grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
            found = [each for each in _collected() if type(each).__module__.startswith("kubeletpy")]
    assert found == []
    assert grown < 8 * 1024, f"{grown} KiB"


def _collected() -> list[object]:
    """Objects that only the cyclic garbage collector would free."""
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        gc.collect()
        return list(gc.garbage)
    finally:
        gc.set_debug(0)
        gc.garbage.clear()


class Fed:
    """Measures exchanges: bytes fed and bytes of replies; calls ``each`` for each feeding."""

    def __init__(self, each: Callable[[], None] = lambda: None) -> None:
        self.bytes = self.replied = 0
        self._each = each

    @contextlib.contextmanager
    def counting(self) -> Iterator[None]:
        feed = Exchange.feed
        total: dict[int, int] = {}

        def counted(exchange: Exchange, data: bytes) -> bytes:
            total[id(exchange)] = total.get(id(exchange), 0) + len(data)
            self.bytes = max(self.bytes, total[id(exchange)])
            self._each()
            reply = feed(exchange, data)
            self.replied = max(self.replied, len(reply))
            return reply

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Exchange, "feed", counted)
            yield
