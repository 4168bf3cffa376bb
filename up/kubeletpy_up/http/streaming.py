"""Watches over HTTP until the client or the watch ends: events are lines of JSON, or protobuf."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Awaitable, Callable, Sequence

from aiohttp import web

from kubeletpy.base.clock import Clock
from kubeletpy_up.http import negotiation
from kubeletpy_up.printers.tables import IncludeObject
from kubeletpy_up.schema import protobuf
from kubeletpy_up.schema.bounds import LARGE
from kubeletpy_up.schema.sliced_json import encode
from kubeletpy_up.storage.watch import Subscription, WatchEvent

Call = Callable[..., Awaitable[bytes]]
_GZIP = 16 + zlib.MAX_WBITS
_BATCH = 256
"""Maximum number of events that are written at once."""
_UNKNOWN = 1024
"""Assumed size, in bytes, of an event that is not encoded yet."""
_WRITE_SECONDS = 30.0
"""A client that reads nothing for this long is disconnected."""


async def stream(
    request: web.Request,
    form: negotiation.Form,
    subscription: Subscription,
    clock: Clock,
    call: Call,
    *,
    compressed: bool = False,
) -> web.StreamResponse:
    """Send a watch's events as they come; the caller closes it.

    ``call`` runs a function on a thread, which encodes many or large events.
    ``compressed``: with a gzip member for each flush, as kube-apiserver 1.37 does it.
    """
    include = negotiation.read_include_object(form, request.query.get("includeObject", ""))
    content_type = protobuf.WATCH if form.protobuf else "application/json"
    headers = {"Cache-Control": "no-cache, private", "Content-Type": content_type}
    if compressed:
        headers |= {"Content-Encoding": "gzip", "Vary": "Accept-Encoding"}
    response = web.StreamResponse(headers=headers)
    response.enable_chunked_encoding()
    await response.prepare(request)
    writer = _Writer(form, subscription, include, clock)
    while (event := await subscription.next()) is not None:
        events = (event, *subscription.take())
        many = sum(len(each.text) if each.text is not None else _UNKNOWN for each in events)
        for start in range(0, len(events), _BATCH):
            batch = events[start : start + _BATCH]
            if many > LARGE:
                data = await call(writer.events, batch, compressed)
            else:
                data = writer.events(batch, compressed)
            try:
                async with asyncio.timeout(_WRITE_SECONDS):
                    await response.write(data)
            except TimeoutError:
                if request.transport is not None:
                    request.transport.abort()
                return response
    return response


def member(data: bytes) -> bytes:
    """A gzip member whose data is flushed before its end.

    Go's reader returns data before a flush at once. Data at the end of a member it returns only
    with the next member's header: without the flush, the last event waits for another.
    """
    packing = zlib.compressobj(1, zlib.DEFLATED, _GZIP)
    return packing.compress(data) + packing.flush(zlib.Z_SYNC_FLUSH) + packing.flush()


class _Writer:
    def __init__(
        self,
        form: negotiation.Form,
        subscription: Subscription,
        include: IncludeObject,
        clock: Clock,
    ) -> None:
        self._form = form
        self._resource = subscription.resource
        self._include = include
        self._clock = clock
        self._first = True

    def events(self, events: Sequence[WatchEvent], compressed: bool) -> bytes:
        """Some events as they are sent at once."""
        data = b"".join(self.event(each) for each in events)
        return member(data) if compressed else data

    def event(self, event: WatchEvent) -> bytes:
        """One event as it is sent. Only the first Table carries the columns."""
        if self._form.protobuf:
            return protobuf.event(event.type, event.object)
        text = event.text
        if self._form.kind != "object" and event.type not in ("ERROR", "BOOKMARK"):
            shaped = negotiation.shape(
                self._form,
                self._resource,
                event.object,
                now=self._clock.now(),
                include_object=self._include,
                with_columns=self._first,
            )
            self._first = False
            text = encode(shaped, ascii_only=True)
        elif text is None:
            text = encode(event.object, ascii_only=True)
        return f'{{"type":"{event.type}","object":{text}}}\n'.encode()
