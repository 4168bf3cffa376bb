"""One connection against h2's server, in memory and on virtual time."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import Iterator

import h2.events
import pytest
from h2.errors import ErrorCodes
from h2.settings import SettingCodes

from kubeletpy.kubeapi import http2_limits as limits
from kubeletpy.kubeapi.http2 import Stream
from kubeletpy.kubeapi.transport import Inflater, StreamRefused, TransportError
from tests.http2.wire import OK, Wire
from tests.kit.virtual_time import on_virtual_time, settle

pytestmark = pytest.mark.virtual_time

MIB = 1 << 20


async def test_an_answer_in_pieces_of_any_size() -> None:
    for size in (1, 7, 1 << 20):
        wire = Wire()
        asking = asyncio.ensure_future(wire.ask())
        await settle()
        headers = [*OK, ("content-length", "5"), ("retry-after", "3")]
        wire.server.send_headers(1, headers)
        wire.server.send_data(1, b"hello", end_stream=True)
        wire.reply(by=size)
        stream = await asking
        assert (stream.status, stream.content_length, stream.header("retry-after")) == (200, 5, "3")
        assert await stream.read() == b"hello"
        assert stream.closed
        assert wire.client.load.streams == 0


async def test_a_body_waits_for_the_servers_window() -> None:
    wire = Wire(INITIAL_WINDOW_SIZE=1000)
    asking = asyncio.ensure_future(wire.ask(b"x" * 100_000))
    got = 0
    while got < 100_000:
        await settle()
        parts = wire.of(h2.events.DataReceived)
        arrived = sum(part.flow_controlled_length for part in parts)
        assert arrived > got, "each window is used"
        assert arrived - got <= 1000
        wire.server.acknowledge_received_data(arrived - got, 1)
        got = arrived
        wire.reply()
    wire.server.send_headers(1, OK, end_stream=True)
    wire.reply()
    assert (await asking).status == 200


async def test_a_server_may_answer_before_the_whole_request() -> None:
    wire = Wire(INITIAL_WINDOW_SIZE=10)
    asking = asyncio.ensure_future(wire.ask(b"x" * 100))
    await settle()
    wire.server.send_headers(1, [(":status", "413")], end_stream=True)
    wire.reply()
    assert (await asking).status == 413
    await settle()
    (reset,) = wire.of(h2.events.StreamReset)
    assert reset.error_code == ErrorCodes.CANCEL
    assert wire.client.load.streams == 0


async def test_a_server_may_answer_early_and_reset_the_stream() -> None:
    """Both in one packet, as servers do that stop reading the request."""
    wire = Wire(INITIAL_WINDOW_SIZE=10)
    asking = asyncio.ensure_future(wire.ask(b"x" * 100))
    await settle()
    wire.server.send_headers(1, [(":status", "413")], end_stream=True)
    wire.server.reset_stream(1, ErrorCodes.NO_ERROR)
    wire.reply()
    assert (await asking).status == 413
    assert not wire.client.lost, "other requests go on"
    assert wire.client.load.streams == 0


async def test_an_unread_watch_does_not_stall_others() -> None:
    wire = Wire()
    slow, quick = await wire.requested(), await wire.requested()
    part = b"x" * 16384
    sent = 0
    while wire.server.local_flow_control_window(1) >= len(part):
        wire.server.send_data(1, part)
        sent += len(part)
        wire.reply()
        await settle()
    assert sent == limits.STREAM_WINDOW
    got = 0
    reading = quick.chunks()
    for _ in range(8 * MIB // len(part)):
        wire.server.send_data(3, part)
        wire.reply()
        got += len(await anext(reading))
        await settle()
    assert got == 8 * MIB, "more than the connection's window"
    assert len(await anext(slow.chunks())) == limits.STREAM_WINDOW
    await settle()
    assert wire.server.local_flow_control_window(1) >= limits.STREAM_WINDOW // 2


async def test_a_body_over_the_limit_is_not_read() -> None:
    wire = Wire()
    stream = await wire.requested()
    wire.server.send_data(1, b"x" * 100)
    wire.reply()
    with pytest.raises(TransportError, match="larger than 99 bytes"):
        await stream.read(99)
    await settle()
    assert len(wire.of(h2.events.StreamReset)) == 1


async def compressed(body: bytes, encoding: str = "gzip") -> tuple[Wire, Stream]:
    wire = Wire()
    asking = asyncio.ensure_future(wire.ask())
    await settle()
    wire.server.send_headers(1, [*OK, ("content-encoding", encoding)])
    for at in range(0, len(body), 10_000):
        wire.server.send_data(1, body[at : at + 10_000])
    wire.server.end_stream(1)
    wire.reply()
    return wire, await asking


async def test_a_compressed_body() -> None:
    text = b"".join(b"pod-%d" % number for number in range(200_000))
    _, stream = await compressed(gzip.compress(text))
    assert await stream.read() == text
    _, stream = await compressed(b"plain", "identity")
    assert await stream.read() == b"plain"


async def test_a_bomb_is_cut_off_at_the_limit() -> None:
    bomb = gzip.compress(bytes(64 * MIB))
    assert len(bomb) < limits.STREAM_WINDOW
    _, stream = await compressed(bomb)
    took = []
    inflate = Inflater.decompress
    with pytest.MonkeyPatch.context() as patch:

        def take(self: Inflater, data: bytes) -> Iterator[bytes]:
            for piece in inflate(self, data):
                took.append(len(piece))
                yield piece

        patch.setattr(Inflater, "decompress", take)
        with pytest.raises(TransportError, match=f"larger than {MIB} bytes"):
            await stream.read(MIB)
    assert sum(took) <= 2 * MIB
    assert stream.closed


@pytest.mark.parametrize(
    ("body", "encoding", "error"),
    [
        (b"plain", "gzip", "no gzip"),
        (gzip.compress(b"hello")[:-3], "gzip", "ends before its gzip"),
        (gzip.compress(b"hello") + b"more", "gzip", "no gzip after its member 1"),
        (gzip.compress(b"hello")[:-5] + b"wrong", "gzip", "no gzip"),
        (b"plain", "br", "not requested"),
    ],
    ids=["plain", "cut off", "longer", "wrong sum", "not requested"],
)
def test_bodies_other_than_the_requested_gzip(body: bytes, encoding: str, error: str) -> None:
    @on_virtual_time
    async def reading() -> None:
        _, stream = await compressed(body, encoding)
        with pytest.raises(TransportError, match=error):
            await stream.read()
        assert stream.closed

    reading()


async def test_a_cancelled_request_leaves_nothing() -> None:
    wire = Wire()
    asking = asyncio.ensure_future(wire.ask())
    await settle()
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    await settle()
    (reset,) = wire.of(h2.events.StreamReset)
    assert (reset.stream_id, reset.error_code) == (1, ErrorCodes.CANCEL)
    assert wire.client.load.streams == 0
    other = await wire.requested()
    # data sent before the server got the reset; its share of the window is returned
    late = b"\x00\x00\x05\x00\x00\x00\x00\x00\x01hello"
    wire.say(late)
    assert not wire.client.lost
    other.close()
    other.close()
    await settle()
    assert len(wire.of(h2.events.StreamReset)) >= 2


async def test_deadlines() -> None:
    wire = Wire()
    stream = await wire.requested(seconds=5)
    with pytest.raises(TransportError, match="no answer within 5 s"):
        await stream.read()
    assert asyncio.get_running_loop().time() == pytest.approx(5)
    await settle()
    assert len(wire.of(h2.events.StreamReset)) == 1
    assert not wire.of(h2.events.PingReceived), "the server has answered, only not all of it"


async def test_a_silent_server_gets_no_more_requests_until_it_answers() -> None:
    wire = Wire()
    with pytest.raises(TransportError, match="no answer within 3 s"):
        await wire.ask(seconds=3)
    assert not wire.client.load.usable
    assert len(wire.of(h2.events.PingReceived)) == 1
    wire.reply()
    assert wire.client.load.usable
    with pytest.raises(TransportError, match="no answer within 3 s"):
        await wire.ask(seconds=3)
    await asyncio.sleep(limits.PING_TIMEOUT_S - 0.1)
    assert not wire.client.lost
    await asyncio.sleep(0.2)
    assert wire.client.lost
    assert wire.closed == "aborted"


async def test_a_dead_connection_is_noticed_within_half_a_minute() -> None:
    wire = Wire()
    stream = await wire.requested(seconds=600)
    reading = asyncio.ensure_future(stream.read())
    for n in range(1, 4):
        await asyncio.sleep(limits.READ_IDLE_S + 0.1)
        assert len(wire.of(h2.events.PingReceived)) == n
        assert wire.client.load.usable, "one PING is no reason to connect again"
        wire.reply()
    heard = asyncio.get_running_loop().time()
    with pytest.raises(TransportError, match="did not answer a PING within 10 s"):
        await reading
    assert asyncio.get_running_loop().time() - heard == pytest.approx(25)
    assert wire.closed == "aborted"
    assert wire.changes > 0


async def test_a_connection_without_streams_sends_no_pings_and_ends() -> None:
    wire = Wire()
    (await wire.requested()).close()
    await asyncio.sleep(limits.IDLE_S - 1)
    assert not wire.client.lost
    assert not wire.of(h2.events.PingReceived)
    await asyncio.sleep(2)
    assert wire.client.lost
    assert wire.closed == "closed"
    assert len(wire.of(h2.events.ConnectionTerminated)) == 1


def _goaway(last: int, code: int = 0, text: bytes = b"") -> bytes:
    body = last.to_bytes(4, "big") + code.to_bytes(4, "big") + text
    return len(body).to_bytes(3, "big") + b"\x07\x00\x00\x00\x00\x00" + body


async def test_a_server_that_ends_the_connection_finishes_open_streams() -> None:
    wire = Wire()
    first = await wire.requested()
    second = asyncio.ensure_future(wire.ask())
    await settle()
    # as Go's server does: first without a limit, then with the last stream
    wire.say(_goaway(2**31 - 1))
    assert not wire.client.load.usable
    assert wire.client.ending
    assert not second.done()
    wire.server.send_data(1, b"hel")
    wire.reply()
    wire.say(_goaway(1, 0, b"shutting down"))
    with pytest.raises(StreamRefused, match=r"ended the connection \(NO_ERROR: shutting down\)"):
        await second
    wire.server.send_data(1, b"lo", end_stream=True)
    data = wire.server.data_to_send()
    assert not wire.client.lost
    wire.say(data + _goaway(1))
    assert await first.read() == b"hello"
    assert wire.closed == "closed", "with its last stream"


async def test_errors_of_a_reset() -> None:
    for code, kind, text in (
        (ErrorCodes.REFUSED_STREAM, StreamRefused, "refused"),
        (ErrorCodes.INTERNAL_ERROR, TransportError, "INTERNAL_ERROR"),
    ):
        wire = Wire()
        asking = asyncio.ensure_future(wire.ask())
        await settle()
        wire.server.reset_stream(1, code)
        wire.reply()
        with pytest.raises(TransportError, match=text) as caught:
            await asking
        assert type(caught.value) is kind
        assert not wire.client.lost


async def test_a_lost_connection_fails_all() -> None:
    wire = Wire()
    watch = await wire.requested()
    wire.server.send_data(1, b"begun")
    wire.reply()
    asking = asyncio.ensure_future(wire.ask())
    await settle()
    wire.client.connection_lost(ConnectionResetError("reset by peer"))
    with pytest.raises(TransportError, match="reset by peer"):
        await asking
    chunks = watch.chunks()
    assert await anext(chunks) == b"begun", "what had arrived is read first"
    with pytest.raises(TransportError, match="reset by peer"):
        await anext(chunks)
    with pytest.raises(StreamRefused):
        await wire.ask()


async def test_settings_of_a_server() -> None:
    wire = Wire(MAX_CONCURRENT_STREAMS=2)
    wire.server.update_settings({SettingCodes.HEADER_TABLE_SIZE: 1 << 30})
    wire.reply()
    assert wire.client.load.allowed == 2
    assert wire.client._h2.encoder.header_table_size == limits.HEADER_TABLE_BYTES
    await wire.requested()
    await wire.requested()
    with pytest.raises(StreamRefused):
        await wire.ask()
    assert not wire.client.lost
    assert Wire(MAX_CONCURRENT_STREAMS=1 << 31).client.load.allowed == limits.MAX_STREAMS


def _frame(kind: int, flags: int, stream: int, body: bytes = b"") -> bytes:
    return len(body).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + body


DATA, HEADERS, RST, SETTINGS, PUSH, PING, WINDOW, CONTINUATION = 0, 1, 3, 4, 5, 6, 8, 9
STATUS = b"\x88"  # :status: 200, indexed
MANY = limits.CONTROL_BURST + limits.CONTROL_PER_STREAM + 50
HOSTILE = {
    "not HTTP/2": b"HTTP/1.1 400 Bad Request\r\n\r\n",
    "a frame that is too long": _frame(DATA, 0, 1)[3:].join([b"\xff\xff\xff", b""]),
    "a header bomb": _frame(
        HEADERS, 4, 1, STATUS + b"\x40\x01a\x7f\x81\x1e" + b"b" * 4000 + b"\xbe" * 2000
    ),
    "endless CONTINUATION": _frame(HEADERS, 0, 1, STATUS) + _frame(CONTINUATION, 0, 1) * 1000,
    "a flood of SETTINGS": _frame(SETTINGS, 0, 0) * MANY,
    "a flood of PING": _frame(PING, 0, 0, bytes(8)) * MANY,
    "a flood of RST_STREAM": _frame(RST, 0, 1, bytes(4)) * MANY,
    "a flood of WINDOW_UPDATE": _frame(WINDOW, 0, 0, b"\0\0\0\1") * MANY,
    "a flood of empty DATA": _frame(HEADERS, 4, 1, STATUS) + _frame(DATA, 0, 1) * MANY,
    "a flood of unknown frames": _frame(200, 0, 0) * MANY,
    "a body over its length": _frame(HEADERS, 4, 1, STATUS + b"\x5c\x011")
    + _frame(DATA, 0, 1, b"22"),
    "an answer without a status": _frame(HEADERS, 4, 1, b"\x5c\x011"),
    "an impossible status": _frame(HEADERS, 4, 1, b"\x08\x03999"),
    "a pushed answer": _frame(PUSH, 4, 1, b"\0\0\0\2" + b"\x82\x84\x87"),
    "a stream that nobody opened": _frame(HEADERS, 4, 9, STATUS),
    "a window over all bounds": _frame(WINDOW, 0, 0, b"\x7f\xff\xff\xff"),
    "more than the window": _frame(HEADERS, 4, 1, STATUS) + _frame(DATA, 0, 1, b"x" * 16384) * 300,
    "a GOAWAY of nothing": _frame(7, 0, 0, b"\0"),
    "broken header compression": _frame(HEADERS, 4, 1, b"\xff" * 20),
    "informational answers": _frame(HEADERS, 4, 1, b"\x08\x03103") * 3000,
}


@pytest.mark.parametrize("name", HOSTILE)
async def test_a_hostile_server_loses_one_connection(name: str) -> None:
    wire = Wire()
    asking = asyncio.ensure_future(wire.ask())
    await settle()
    wire.reads = False
    begun = asyncio.get_running_loop().time()
    for at in range(0, len(HOSTILE[name]), 65536):
        wire.say(HOSTILE[name][at : at + 65536])
    assert wire.closed == "aborted"
    with pytest.raises(TransportError):
        await (await asking).read()
    with pytest.raises(StreamRefused, match="the server broke HTTP/2: "):
        await wire.ask()
    assert asyncio.get_running_loop().time() == begun


async def test_a_server_that_does_not_read_is_disconnected() -> None:
    wire = Wire()
    wire.reads = False
    asking = asyncio.ensure_future(wire.ask())
    await settle()
    wire.unread = limits.MAX_WRITE_BUFFER
    wire.say(_frame(PING, 0, 0, bytes(8)))
    with pytest.raises(TransportError, match="does not read"):
        await asking


async def test_bodies_wait_while_the_socket_is_full() -> None:
    wire = Wire()
    wire.client.pause_writing()
    asking = asyncio.ensure_future(wire.ask(b"body"))
    await settle()
    assert not wire.of(h2.events.DataReceived)
    wire.client.resume_writing()
    await settle()
    assert wire.of(h2.events.DataReceived)[0].data == b"body"
    asking.cancel()
