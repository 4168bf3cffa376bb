"""/checkpoint/{namespace}/{pod}/{container}: the runtime writes a container's state to a file.

The agent alone chooses the file's path: below the checkpoint directory, with a name built from
known names. It holds the container's memory, so nobody else may read the directory. Only the node's
owner removes archives, so what is kept is bounded. Source: docs/reference/behaviour.md, t4;
docs/reference/names.csv: {root}/checkpoints; KEP-2008.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
from datetime import UTC, datetime
from pathlib import Path

from aiohttp import web

from kubeletpy.base.clock import Clock
from kubeletpy.base.structs import Struct
from kubeletpy.remote.errors import Code, CRIError
from kubeletpy.server.app import Handler
from kubeletpy.server.node_view import NodeView, declared_container

log = logging.getLogger(__name__)

AT_ONCE = 2
"""Checkpoints that may be made at the same time."""
MAX_TIMEOUT_S = 3600
MAX_KEPT = 100
"""Maximum number of archives in the directory."""
MAX_SHARE = 10
"""Percent of the file system that all archives may take before another is made."""
MIN_FREE = 15
"""Percent of the file system that must be free: where image garbage collection begins."""
_NAME = re.compile(r"[a-zA-Z0-9]([-a-zA-Z0-9._]{0,251}[a-zA-Z0-9])?")
_TIMEOUT = re.compile(r"[0-9]{1,9}")


def file_name(namespace: str, pod: str, container: str, now: float) -> str:
    """Return the archive's name. ``now`` in Unix seconds.

    Raises:
        ValueError: a name is not a valid Kubernetes name, and could lead elsewhere.
    """
    for name in (namespace, pod, container):
        if not _NAME.fullmatch(name) or ".." in name:
            raise ValueError("not a name of a Kubernetes object")
    at = datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return f"checkpoint-{pod}_{namespace}-{container}-{at}.tar"


class Kept(Struct, frozen=True):
    """Contents of the archive directory, and size and free space of its file system, in bytes."""

    archives: int
    used: int
    capacity: int
    available: int


def exceeded_limit(kept: Kept) -> str | None:
    """Return the limit that another checkpoint would exceed, as text, or None."""
    if kept.archives >= MAX_KEPT:
        return f"there are {kept.archives} checkpoints, of {MAX_KEPT} that may be kept"
    if kept.used * 100 >= kept.capacity * MAX_SHARE:
        return (
            f"checkpoints take {kept.used >> 20} MiB, and may take {MAX_SHARE} percent of their "
            f"file system of {kept.capacity >> 20} MiB"
        )
    if kept.available * 100 < kept.capacity * MIN_FREE:
        return (
            f"{kept.available >> 20} MiB of {kept.capacity >> 20} MiB are free, and "
            f"{MIN_FREE} percent must be"
        )
    return None


def kept_archives(directory: Path) -> Kept:
    """Measure the directory, after creating it if it is missing. Blocks. Raises OSError."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    archives = used = 0
    with os.scandir(directory) as entries:
        for entry in entries:
            try:
                used += entry.stat(follow_symlinks=False).st_blocks * 512
            except FileNotFoundError:
                continue
            archives += 1
            if archives >= MAX_KEPT:
                break
    space = os.statvfs(directory)
    return Kept(archives, used, space.f_blocks * space.f_frsize, space.f_bavail * space.f_frsize)


def handler(view: NodeView, directory: Path, clock: Clock) -> Handler:
    """Return the handler; it puts archives into ``directory``."""
    under_way: set[str] = set()
    owners: dict[Path, str] = {}

    async def checkpoint(request: web.Request) -> web.StreamResponse:
        path = request.match_info
        namespace, name, container = path["namespace"], path["pod"], path["container"]
        pod = view.pod(namespace, name)
        if pod is None:
            raise web.HTTPNotFound(text="pod does not exist\n")
        if declared_container(pod, container) is None:
            raise web.HTTPNotFound(text=f"container {container} does not exist\n")
        timeout = (request.query.getall("timeout", []) or ["0"])[-1]
        if not _TIMEOUT.fullmatch(timeout):
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
            # the names of two containers may make the same name of a file
            if owners.setdefault(location, record.id) != record.id:
                raise FileExistsError(f"{location.name} exists; try again in a second")
            if len(owners) > MAX_KEPT:
                del owners[next(iter(owners))]
            why = exceeded_limit(await asyncio.to_thread(kept_archives, directory))
            if why is not None:
                log.warning(
                    "checkpoint refused: remove old ones",
                    extra={"container": what, "why": why, "directory": str(directory)},
                )
                raise web.HTTPInsufficientStorage(
                    text=f"checkpointing of {what} failed ({why}: remove old ones from "
                    f"{directory} on the node)\n"
                )
            try:
                await view.runtime.checkpoint_container(
                    record.id, str(location), min(int(timeout), MAX_TIMEOUT_S)
                )
            except CRIError:
                # the unfinished file is no checkpoint, and no client has its name
                await asyncio.to_thread(location.unlink, missing_ok=True)
                raise
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
