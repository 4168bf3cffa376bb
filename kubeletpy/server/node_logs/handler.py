"""/logs/{path}: files of the node's log directory, and queries for logs of its services.

Must never hold more than a block of a file, nor read faster than the client does.
"""

from __future__ import annotations

import asyncio
import errno
import html
import logging
import mimetypes
import os
import signal
import stat
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from email.utils import formatdate
from urllib.parse import quote

from aiohttp import web

from kubeletpy.base.host.inotify import HeldFd
from kubeletpy.base.host.patient_threads import PatientThreads
from kubeletpy.base.structs import Component, Hidden, HidesFields, Struct
from kubeletpy.server.node_logs import query as node_logs_query
from kubeletpy.volumes.files.paths import UnsafePath
from kubeletpy.volumes.files.safe_path import open_beneath

# Files and directories. A pod that mounts /var/log can put links there: links that lead out are
# refused, and so is everything except regular files and directories. Blocking: call it on a thread.

log = logging.getLogger(__name__)

BLOCK = 256 << 10
MAX_ENTRIES = 10_000
_REOPEN = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC


class RefusedPath(OSError):
    """Raised if a path leads out of the log directory, or to no file or directory."""


class NodeLogFile(HidesFields, Struct):
    """An open file or directory with its size (bytes) and time (Unix seconds) as of opening."""

    is_directory: bool
    size: int
    modified: float
    held: Hidden[HeldFd]

    def read(self, start: int, end: int) -> bytes:
        """Return bytes of a file from ``start``, at most one block and not beyond ``end``."""
        with self.held.in_use() as fd:
            return os.pread(fd, min(BLOCK, end - start), start) if fd >= 0 else b""

    def listing(self) -> str:
        """Return the names in a directory as a page of links, up to MAX_ENTRIES."""
        with self.held.in_use() as fd:
            names: list[str] = []
            with os.scandir(fd) as entries:
                for entry in entries:
                    names.append(entry.name + ("/" if entry.is_dir(follow_symlinks=False) else ""))
                    if len(names) == MAX_ENTRIES:
                        break
        lines = (f'<a href="{_link(name)}">{_escaped(name)}</a>\n' for name in sorted(names))
        return f"<!doctype html>\n<pre>\n{''.join(lines)}</pre>\n"

    def close(self) -> None:
        """Close it once no thread reads it."""
        self.held.close()


def open_entry(root: str, path: str) -> NodeLogFile:
    """Open the file or directory at a path below ``root``.

    Raises:
        RefusedPath: it leads out, or is neither a file nor a directory.
        OSError: it does not exist or can't be opened.
    """
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if ".." in parts or "\0" in path:
        raise RefusedPath("invalid path")
    try:
        found = open_beneath(root, parts)
    except UnsafePath as error:
        raise RefusedPath(str(error)) from None
    try:
        about = os.fstat(found)
        if not (stat.S_ISREG(about.st_mode) or stat.S_ISDIR(about.st_mode)):
            raise RefusedPath("neither a file nor a directory")
        # opens what was found and checked, whatever is at the path by now
        held = HeldFd(os.open(f"/proc/self/fd/{found}", _REOPEN))
    finally:
        os.close(found)
    return NodeLogFile(stat.S_ISDIR(about.st_mode), about.st_size, about.st_mtime, held)


def _link(name: str) -> str:
    # a first segment with a colon would be read as a scheme
    return "./" * (":" in name) + quote(name.encode("utf-8", "surrogateescape"))


def _escaped(name: str) -> str:
    return html.escape(name.encode("utf-8", "surrogateescape").decode("utf-8", "replace"))


# journalctl: its output is streamed, bounded in time and size. Must never run a shell, nor leave a
# process behind.

READ = 64 << 10
END_S = 5.0
"""Seconds to wait for a killed process to end."""
MAX_UNITS_TEXT = 1 << 20
"""Bytes of the list of units that are read."""


class JournalMissing(Exception):
    """Raised if journalctl is not on this machine, or can't be run."""


async def units(command: Sequence[str]) -> frozenset[str]:
    """Return the units that have written to the journal; none if there is no journal."""
    try:
        async with _running(command) as output:
            return frozenset((await _read_up_to(output, MAX_UNITS_TEXT)).decode().split("\n"))
    except (JournalMissing, UnicodeDecodeError):
        return frozenset()


async def output(command: Sequence[str], limit: int) -> AsyncGenerator[bytes, None]:
    """Yield the output of a command, both streams merged, truncated after ``limit`` bytes.

    Raises:
        JournalMissing: it can't be run.
    """
    async with _running(command) as stream:
        while limit > 0 and (piece := await stream.read(min(READ, limit))):
            limit -= len(piece)
            yield piece


@asynccontextmanager
async def _running(command: Sequence[str]) -> AsyncIterator[asyncio.StreamReader]:
    try:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env={"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C.UTF-8"},
            start_new_session=True,
            limit=READ,
        )
    except (OSError, ValueError) as error:
        raise JournalMissing(str(error)) from error
    assert process.stdout is not None
    try:
        yield process.stdout
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        with suppress(TimeoutError):
            async with asyncio.timeout(END_S):
                # asyncio notices the exit only when all output has been read
                while await process.stdout.read(READ):
                    pass
                await process.wait()


async def _read_up_to(stream: asyncio.StreamReader, limit: int) -> bytes:
    text = b""
    while len(text) < limit and (piece := await stream.read(READ)):
        text += piece
    return text


QUERY_S = 30.0
"""Seconds that a query may take, including the client reading the answer."""
MAX_OUTPUT = 256 << 20
"""Maximum bytes in the answer to a query."""
QUERIES_AT_ONCE = 4
READERS = 4
"""Threads that read files for clients; separate from those that start pods."""
_TEXT = "text/plain; charset=utf-8"


class NodeLogs(Component):
    """Serves the files of a log directory and, if enabled, queries."""

    root: str
    # whether to answer queries; if not, a query string is ignored.
    queries: bool
    # seconds after which a client that reads nothing is dropped; 0 for never.
    write_timeout: float

    def __post_init__(self) -> None:
        self._under_way = 0
        self._threads = PatientThreads(READERS)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Answer a request with a file, a listing or the result of a query."""
        path = request.match_info.get("path", "")
        try:
            query = (
                node_logs_query.read_query(list(request.query.items())) if self.queries else None
            )
        except node_logs_query.UnreadableQuery as error:
            raise web.HTTPBadRequest(text=f"{error}\n") from None
        except node_logs_query.InvalidQuery as error:
            raise web.HTTPNotAcceptable(text=f"{error}\n") from None
        if query is not None and path:
            raise web.HTTPNotAcceptable(text="path not allowed in query mode\n")
        if query is not None and query.services:
            return await self._query(request, query)
        return await self._show(request, query.file if query is not None else path)

    async def _show(self, request: web.Request, path: str) -> web.StreamResponse:
        entry = await self._open(path)
        try:
            if entry.is_directory:
                # links of the page are relative to the directory
                if not request.path.endswith("/"):
                    last = request.raw_path.partition("?")[0].rpartition("/")[2]
                    return web.Response(status=301, headers={"Location": f"./{last}/"})
                page = await self._threads.run(entry.listing)
                return web.Response(text=page, content_type="text/html")
            return await self._send(request, entry, path)
        finally:
            entry.close()

    async def _open(self, path: str) -> NodeLogFile:
        try:
            return await self._threads.run(open_entry, self.root, path)
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
            "Accept-Ranges": "bytes",
            "Content-Type": _content_type(path),
            "Last-Modified": formatdate(entry.modified, usegmt=True),
        }
        start, end, status = 0, entry.size, 200
        try:
            byte_range = request.http_range
        except ValueError:
            byte_range = slice(0)  # not a range of bytes: the complete file, as RFC 9110 requires
        if byte_range.start is not None:
            start, end, _ = byte_range.indices(entry.size)
            if start >= end:
                return web.Response(status=416, headers={"Content-Range": f"bytes */{entry.size}"})
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
        async with asyncio.timeout(self.write_timeout or None):
            await response.write(data)

    async def _query(
        self, request: web.Request, query: node_logs_query.LogQuery
    ) -> web.StreamResponse:
        if self._under_way >= QUERIES_AT_ONCE:
            raise web.HTTPTooManyRequests(
                text="too many log queries at once\n", headers={"Retry-After": "10"}
            )
        self._under_way += 1
        response = web.StreamResponse(headers={"Content-Type": _TEXT})
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

    async def _answer(self, response: web.StreamResponse, query: node_logs_query.LogQuery) -> None:
        known = await units(node_logs_query.UNITS_COMMAND)
        in_files = [name for name in query.services if not node_logs_query.in_journal(name, known)]
        if in_files and query.lines != node_logs_query.Range():
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
            async with aclosing(output(node_logs_query.journal_command(query), left)) as pieces:
                async for piece in pieces:
                    await response.write(piece)
                    left -= len(piece)
            if left <= 0:
                await response.write(b"\nerror: cut, the output is too long\n")
        except JournalMissing:
            await response.write(b"\nerror: journal output not available\n")

    async def _send_service_file(self, response: web.StreamResponse, service: str) -> None:
        for name in node_logs_query.file_names(service):
            try:
                entry = await self._threads.run(open_entry, self.root, name)
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


def _content_type(path: str) -> str:
    kind, packed = mimetypes.guess_type(path, strict=False)
    if packed is not None:
        return "application/octet-stream"
    # a file that a pod may have written must not run in a browser
    return "application/json" if kind == "application/json" else _TEXT
