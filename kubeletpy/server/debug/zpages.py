"""/flagz, /statusz and /debug/flags/v: the agent's flags, version, start time, and verbosity.

The pages are text for people, JSON for programs whose Accept header requests a version of it.
Source: KEP-4827, KEP-4828; docs/reference/server.csv: /flagz, /statusz. Must never show a flag
value that may hold a
credential: the caller masks these.
"""

from __future__ import annotations

import logging
import platform
import re
from collections.abc import Iterable, Mapping
from typing import Any

from aiohttp import web

from kubeletpy.base.api.times import format_time
from kubeletpy.base.clock import Clock
from kubeletpy.server.app import Handler
from kubeletpy.server.routes import Route
from kubeletpy.server.settings import RunningProgram, sinks

log = logging.getLogger(__name__)

_COMPONENT = "kubelet"
_HEAD = (
    "\n{name} {page}\nWarning: This endpoint is not meant to be machine parseable, has no "
    "formatting compatibility guarantees and is for debugging purposes only.\n"
)
_VERSIONS = ("v1beta1", "v1alpha1")
_OLD = '299 - "This version of the {page} endpoint is deprecated. Please use a newer version."'


def folders(routes: Iterable[Route]) -> list[str]:
    """Return the first segments of the served paths."""
    return sorted({"/" + path.split("/")[1] for route in routes for path in route.paths})


def flagz(program: RunningProgram) -> Handler:
    """Return the handler of ``/flagz``."""

    async def handle(request: web.Request) -> web.StreamResponse:
        flags = program.flags()
        lines = (f"{name}={value}\n" for name, value in sorted(flags.items()))
        return _answer(request, "flagz", "".join(lines), {"flags": dict(flags)})

    return handle


def statusz(program: RunningProgram, paths: list[str], clock: Clock) -> Handler:
    """Return the handler of ``/statusz``; ``paths`` are those that it lists."""

    async def handle(request: web.Request) -> web.StreamResponse:
        up = max(0, int(clock.now() - program.started_at))
        binary = program.version.removeprefix("v")
        emulated = ".".join(binary.split(".")[:2])
        running_on = f"{platform.python_implementation()} {platform.python_version()}"
        text = (
            f"\nStarted: {format_time(program.started_at)}\n"
            f"Up: {up // 3600} hr {up // 60 % 60:02d} min {up % 60:02d} sec\n"
            f"Python version: {running_on}\nBinary version: {binary}\n"
            f"Emulation version: {emulated}\nPaths: {' '.join(paths)}\n"
        )
        fields: dict[str, Any] = {
            "startTime": format_time(program.started_at),
            "uptimeSeconds": up,
            "goVersion": running_on,
            "binaryVersion": binary,
            "emulationVersion": emulated,
            "paths": paths,
        }
        return _answer(request, "statusz", text, fields)

    return handle


def _answer(
    request: web.Request, page: str, text: str, fields: Mapping[str, Any]
) -> web.StreamResponse:
    """Return the page in the first available form of the Accept header."""
    accept = ",".join(request.headers.getall("Accept", [])) or "*/*"
    for form in accept.split(","):
        kind, *parameters = (part.strip() for part in form.split(";"))
        if kind in ("text/plain", "text/*", "*/*"):
            return web.Response(text=_HEAD.format(name=_COMPONENT, page=page) + text)
        options = dict(part.split("=", 1) for part in parameters if "=" in part)
        version = options.get("v", "")
        if (
            kind in ("application/json", "application/*")
            and (options.get("as"), options.get("g")) == (page.capitalize(), "config.k8s.io")
            and version in _VERSIONS
        ):
            body = {
                "kind": page.capitalize(),
                "apiVersion": f"config.k8s.io/{version}",
                "metadata": {"name": _COMPONENT},
                **fields,
            }
            old = {"Warning": _OLD.format(page=page)} if version != _VERSIONS[0] else {}
            return web.json_response(body, headers=old)
    versions = ", ".join(
        f"application/json;as={page.capitalize()};v={version};g=config.k8s.io"
        for version in _VERSIONS
    )
    return web.Response(status=406, text=f"only text/plain and {versions} are there\n")


_LEVEL = re.compile(r"[+-]?[0-9]{1,9}")


async def set_verbosity(request: web.Request) -> web.StreamResponse:
    """Handle a PUT of ``/debug/flags/v``: the body is the new verbosity of the logs."""
    text = (await request.text()).strip()
    if not _LEVEL.fullmatch(text):
        value = text[:40].encode("ascii", "backslashreplace").decode()
        why = f'failed set klog.logging.verbosity {value}: parsing "{value}": invalid syntax'
        return web.Response(status=400, text=f"{why}\n")
    for sink in sinks():
        sink.set_verbosity(int(text))
    log.info("the verbosity of logs has been set", extra={"verbosity": int(text)})
    return web.Response(text=f"successfully set klog.logging.verbosity to {text}\n")
