"""/logs/{path}: files of the node's log directory, and queries for logs of its services.

Must never hold more than a block of a file, nor read faster than the client does.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import mimetypes
import os
from contextlib import aclosing
from email.utils import formatdate

from aiohttp import web

from kubeletpy.base.host.patient_threads import PatientThreads
from kubeletpy.server.app import Handler
from kubeletpy.server.node_logs import journal
from kubeletpy.server.node_logs.files import NodeLogFile, RefusedPath, open_entry
from kubeletpy.server.node_logs.query import (
    UNITS_COMMAND,
    InvalidQuery,
    LogQuery,
    Range,
    UnreadableQuery,
    file_names,
    in_journal,
    journal_command,
    read_query,
)

log = logging.getLogger(__name__)

QUERY_S = 30.0
"""How long a query may take, including the client reading the answer."""
MAX_OUTPUT = 256 << 20
"""Maximum bytes in the answer to a query."""
QUERIES_AT_ONCE = 4
READERS = 4
"""Threads that read files for clients; separate from those that start pods."""
_TEXT = "text/plain; charset=utf-8"
_SAFE = {"X-Content-Type-Options": "nosniff"}


class NodeLogs:
    """Serves one log directory."""

    def __init__(self, root: str, *, queries: bool, write_timeout: float) -> None:
        """Args:
        queries: whether to answer queries; if not, a query string is ignored.
        write_timeout: seconds after which a client that reads nothing is dropped; 0: never.
        """
        self._root = root
        self._queries = queries
        self._write_timeout = write_timeout or None
        self._under_way = 0
        self._threads = PatientThreads(READERS)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Answer."""
        path = request.match_info.get("path", "")
        try:
            query = read_query(list(request.query.items())) if self._queries else None
        except UnreadableQuery as error:
            raise web.HTTPBadRequest(text=f"{error}\n") from None
        except InvalidQuery as error:
            raise web.HTTPNotAcceptable(text=f"{error}\n") from None
        if query is not None and path:
            raise web.HTTPNotAcceptable(text="path not allowed in query mode\n")
        if query is not None and query.services:
            return await self._query(request, query)
        return await self._show(request, query.file if query is not None else path)

    # -- files -------------------------------------------------------------------------------

    async def _show(self, request: web.Request, path: str) -> web.StreamResponse:
        entry = await self._open(path)
        try:
            if entry.is_directory:
                # links of the page are relative to the directory
                if not request.path.endswith("/"):
                    last = request.raw_path.partition("?")[0].rpartition("/")[2]
                    return web.Response(status=301, headers={"Location": f"./{last}/"})
                page = await self._threads.run(entry.listing)
                return web.Response(text=page, content_type="text/html", headers=_SAFE)
            return await self._send(request, entry, path)
        finally:
            entry.close()

    async def _open(self, path: str) -> NodeLogFile:
        try:
            return await self._threads.run(open_entry, self._root, path)
        except RefusedPath as error:
            raise web.HTTPForbidden(text=f"{error}\n") from None
        except (FileNotFoundError, NotADirectoryError):
            raise web.HTTPNotFound(text="404 page not found\n") from None
        except OSError as error:
            if error.errno == errno.ENAMETOOLONG:
                raise web.HTTPNotFound(text="404 page not found\n") from None
            why = os.strerror(error.errno) if error.errno else "can't be opened"
            raise web.HTTPForbidden(text=f"{why}\n") from None

    async def _send(
        self, request: web.Request, entry: NodeLogFile, path: str
    ) -> web.StreamResponse:
        headers = {
            **_SAFE,
            "Accept-Ranges": "bytes",
            "Content-Type": _content_type(path),
            "Last-Modified": formatdate(entry.modified, usegmt=True),
        }
        start, end, status = 0, entry.size, 200
        try:
            asked = request.http_range
        except ValueError:
            asked = slice(0)  # not a range of bytes: the whole file, as RFC 9110 requires
        if asked.start is not None:
            start, end, _ = asked.indices(entry.size)
            if start >= end:
                return web.Response(
                    status=416, headers={**_SAFE, "Content-Range": f"bytes */{entry.size}"}
                )
            status = 206
            headers["Content-Range"] = f"bytes {start}-{end - 1}/{entry.size}"
        response = web.StreamResponse(status=status, headers=headers)
        response.content_length = end - start
        await response.prepare(request)
        try:
            while start < end and (data := await self._threads.run(entry.read, start, end)):
                await self._write(response, data)
                start += len(data)
        except (OSError, TimeoutError) as error:
            log.debug("a log file could not be sent", extra={"path": path, "why": str(error)})
        if start < end and request.transport is not None:
            # the head promised more: breaking the connection is the only way left to report it
            request.transport.abort()
        return response

    async def _write(self, response: web.StreamResponse, data: bytes) -> None:
        async with asyncio.timeout(self._write_timeout):
            await response.write(data)

    # -- queries -----------------------------------------------------------------------------

    async def _query(self, request: web.Request, query: LogQuery) -> web.StreamResponse:
        if self._under_way >= QUERIES_AT_ONCE:
            raise web.HTTPTooManyRequests(
                text="too many log queries at once\n", headers={"Retry-After": "10"}
            )
        self._under_way += 1
        response = web.StreamResponse(headers={**_SAFE, "Content-Type": _TEXT})
        response.enable_chunked_encoding()
        try:
            await response.prepare(request)
            async with asyncio.timeout(QUERY_S):
                await self._answer(response, query)
        except TimeoutError:
            log.info("a log query took too long", extra={"services": ",".join(query.services)})
            if request.transport is not None:
                request.transport.abort()
        finally:
            self._under_way -= 1
        return response

    async def _answer(self, response: web.StreamResponse, query: LogQuery) -> None:
        known = await journal.units(UNITS_COMMAND)
        in_files = [name for name in query.services if not in_journal(name, known)]
        if in_files and query.lines != Range():
            await response.write(
                f"\noptions present and query resolved to log files for {' '.join(in_files)}\n"
                "try without specifying options\n".encode()
            )
            return
        if in_files:
            for name in in_files:
                await self._send_service_file(response, name)
            return
        try:
            left = MAX_OUTPUT
            async with aclosing(journal.output(journal_command(query), left)) as pieces:
                async for piece in pieces:
                    await response.write(piece)
                    left -= len(piece)
            if left <= 0:
                await response.write(b"\nerror: cut, the output is too long\n")
        except journal.JournalMissing:
            await response.write(b"\nerror: journal output not available\n")

    async def _send_service_file(self, response: web.StreamResponse, service: str) -> None:
        for name in file_names(service):
            try:
                entry = await self._threads.run(open_entry, self._root, name)
            except (FileNotFoundError, NotADirectoryError):
                continue
            except OSError as error:
                why = error.strerror or str(error)
                await response.write(f"\nerror getting log for {service}: {why}\n".encode())
                return
            try:
                if entry.is_directory:
                    continue
                sent, end = 0, min(entry.size, MAX_OUTPUT)
                while sent < end and (data := await self._threads.run(entry.read, sent, end)):
                    await response.write(data)
                    sent += len(data)
                return
            finally:
                entry.close()
        await response.write(f"\nlog not found for {service}\n".encode())


def handler(root: str, *, queries: bool, write_timeout: float) -> Handler:
    """The handler of ``/logs/``."""
    return NodeLogs(root, queries=queries, write_timeout=write_timeout).handle


def _content_type(path: str) -> str:
    kind, packed = mimetypes.guess_type(path, strict=False)
    if packed is not None:
        return "application/octet-stream"
    # what a pod may have written there must not run in anybody's browser
    return "application/json" if kind == "application/json" else _TEXT
