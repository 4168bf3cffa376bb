"""Watches over HTTP: a line of JSON per event, until the client or the watch ends."""

from __future__ import annotations

import asyncio
import json

from aiohttp import web

from kubeletpy.clock import Clock
from kubeletpy_up.http import negotiation
from kubeletpy_up.printers.tables import IncludeObject
from kubeletpy_up.storage.watch import Subscription, WatchEvent

_WRITE_SECONDS = 30.0
"""A client that reads nothing for this long is disconnected."""


async def stream(
    request: web.Request, form: negotiation.Form, subscription: Subscription, clock: Clock
) -> web.StreamResponse:
    """Send a watch's events as they come; the caller closes it."""
    include = negotiation.read_include_object(form, request.query.get("includeObject", ""))
    response = web.StreamResponse(headers={"Cache-Control": "no-cache, private"})
    response.content_type = "application/json"
    response.enable_chunked_encoding()
    await response.prepare(request)
    writer = _LineWriter(form, subscription, include, clock)
    while (event := await subscription.next()) is not None:
        lines = [writer.line(each) for each in (event, *subscription.take())]
        try:
            async with asyncio.timeout(_WRITE_SECONDS):
                await response.write("".join(lines).encode())
        except TimeoutError:
            if request.transport is not None:
                request.transport.abort()
            break
    return response


class _LineWriter:
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

    def line(self, event: WatchEvent) -> str:
        """One event. Only the first Table carries the columns."""
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
            text = json.dumps(shaped, separators=(",", ":"))
        elif text is None:
            text = json.dumps(event.object, separators=(",", ":"))
        return f'{{"type":"{event.type}","object":{text}}}\n'
