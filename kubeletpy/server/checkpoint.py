"""/checkpoint/{namespace}/{pod}/{container}: the runtime writes a container's state to a file.

The file's place is ours alone: below the checkpoint directory, under a name made of names that are
known. It holds the memory of the container, so nobody else may read the directory. Source:
docs/reference/behaviour.md, t4; docs/reference/names.csv: {root}/checkpoints; KEP-2008.
"""

from __future__ import annotations

import asyncio
import logging
import re
from datetime import UTC, datetime
from pathlib import Path

from aiohttp import web

from kubeletpy.clock import Clock
from kubeletpy.remote.errors import Code, CRIError
from kubeletpy.server.app import Handler
from kubeletpy.server.node_view import NodeView, declared_container

log = logging.getLogger(__name__)

AT_ONCE = 2
MAX_TIMEOUT_S = 3600
_NAME = re.compile(r"[a-zA-Z0-9]([-a-zA-Z0-9._]{0,251}[a-zA-Z0-9])?")
_TIMEOUT = re.compile(r"[0-9]{1,9}")


def file_name(namespace: str, pod: str, container: str, now: float) -> str:
    """The archive's name. ``now`` in Unix seconds.

    Raises:
        ValueError: a name that is no Kubernetes name, and could lead elsewhere.
    """
    for name in (namespace, pod, container):
        if not _NAME.fullmatch(name) or ".." in name:
            raise ValueError("not a name of a Kubernetes object")
    at = datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return f"checkpoint-{pod}_{namespace}-{container}-{at}.tar"


def handler(view: NodeView, directory: Path, clock: Clock) -> Handler:
    """The handler; archives go into ``directory``."""
    under_way: set[str] = set()

    async def checkpoint(request: web.Request) -> web.StreamResponse:
        place = request.match_info
        namespace, name, container = place["namespace"], place["pod"], place["container"]
        pod = view.pod(namespace, name)
        if pod is None:
            raise web.HTTPNotFound(text="pod does not exist\n")
        if declared_container(pod, container) is None:
            raise web.HTTPNotFound(text=f"container {container} does not exist\n")
        given = (request.query.getall("timeout", []) or ["0"])[-1]
        if not _TIMEOUT.fullmatch(given):
            raise web.HTTPNotFound(text="cannot parse value of timeout parameter\n")
        what = f"{namespace}/{name}/{container}"
        record = view.container(pod, container)
        if record is None or not record.running:
            raise web.HTTPInternalServerError(
                text=f"checkpointing of {what} failed (container {container} does not run)\n"
            )
        if len(under_way) >= AT_ONCE or record.id in under_way:
            raise web.HTTPTooManyRequests(
                text="a checkpoint is being made\n", headers={"Retry-After": "10"}
            )
        under_way.add(record.id)
        try:
            location = directory / file_name(namespace, name, container, clock.now())
            await asyncio.to_thread(directory.mkdir, mode=0o700, parents=True, exist_ok=True)
            await view.runtime.checkpoint_container(
                record.id, str(location), min(int(given), MAX_TIMEOUT_S)
            )
        except (CRIError, OSError, ValueError) as error:
            raise web.HTTPInternalServerError(text=_failure(what, error)) from None
        finally:
            under_way.discard(record.id)
        log.info("a container has been checkpointed", extra={"container": what})
        return web.json_response({"items": [str(location)]})

    return checkpoint


def _failure(what: str, error: Exception) -> str:
    if isinstance(error, CRIError) and error.code is Code.UNIMPLEMENTED:
        why = "the container runtime can't make checkpoints"
    else:
        why = str(error)
    return f"checkpointing of {what} failed ({why})\n"
