"""/containerLogs/{namespace}/{pod}/{container}: a request to a stream of text."""

from __future__ import annotations

import asyncio
import logging

from aiohttp import web

from kubeletpy.base.clock import Clock
from kubeletpy.remote.errors import CRIError
from kubeletpy.server.app import Handler
from kubeletpy.server.logs.choice import (
    InvalidOptions,
    LogOptions,
    NoLog,
    UnreadableOptions,
    container_id,
    read_options,
)
from kubeletpy.server.logs.files import LogFile
from kubeletpy.server.logs.follow import LogStreams
from kubeletpy.server.node_view import NodeView, declared_container

log = logging.getLogger(__name__)


def handler(
    view: NodeView,
    streams: LogStreams,
    clock: Clock,
    *,
    write_timeout: float,
    split_streams: bool = False,
) -> Handler:
    """The handler; drops a client that reads nothing for ``write_timeout`` seconds (0: never).

    ``split_streams``: stdout or stderr can be requested alone (gate PodLogsQuerySplitStreams).
    """

    async def container_logs(request: web.Request) -> web.StreamResponse:
        try:
            options = read_options(request.query, clock.now(), split_streams=split_streams)
        except UnreadableOptions as error:
            raise web.HTTPBadRequest(text=f"{error}\n") from None
        except InvalidOptions as error:
            raise web.HTTPUnprocessableEntity(text=f"{error}\n") from None
        uid, found, opened = await _find(view, streams, request, options)
        response = web.StreamResponse(headers={"Content-Type": "text/plain"})
        response.enable_chunked_encoding()

        async def write(data: bytes) -> None:
            async with asyncio.timeout(write_timeout or None):
                await response.write(data)

        try:
            await response.prepare(request)
            await streams.send(opened, uid, found, options, write)
        except (OSError, TimeoutError) as error:
            # the head is sent: breaking the connection is the only way left to report it
            log.debug("a log stream failed", extra={"path": opened.path, "why": str(error)})
            if request.transport is not None:
                request.transport.abort()
        finally:
            opened.close()
        return response

    return container_logs


async def _find(
    view: NodeView, streams: LogStreams, request: web.Request, options: LogOptions
) -> tuple[str, str, LogFile]:
    place = request.match_info
    name, container = place["pod"], place["container"]
    pod = view.pod(place["namespace"], name)
    if pod is None:
        raise web.HTTPNotFound(text=f'pod "{name}" does not exist\n')
    if declared_container(pod, container) is None:
        raise web.HTTPNotFound(text=f'container "{container}" not found in pod "{name}"\n')
    try:
        found = container_id(name, container, view.status(pod), previous=options.previous)
        path = await _log_path(view, pod.uid, found)
        return pod.uid, found, await streams.open(path, found)
    except NoLog as error:
        raise web.HTTPBadRequest(text=str(error)) from None
    except CRIError as error:
        raise web.HTTPBadRequest(text=f"the log of {container} is not known: {error}") from None
    except OSError as error:
        why = error.strerror or str(error)
        raise web.HTTPBadRequest(
            text=f'the log of container "{container}" can\'t be read: {why}'
        ) from None


async def _log_path(view: NodeView, uid: str, found: str) -> str:
    status = view.cache.status(uid)
    record = status.by_id(found) if status is not None else None
    if record is not None and record.log_path:
        return record.log_path
    answer = await view.runtime.container_status(found)
    return answer.status.log_path
