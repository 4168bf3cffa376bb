"""/debug/pprof/: what Python can offer of what Go's runtime serves there.

A CPU profile in pprof's own format; tasks, threads and objects as text. There is no execution trace
and no block or mutex profile. Must never show a value of the program, only code locations.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from aiohttp import web

from kubeletpy.base.clock import Clock
from kubeletpy.server.app import Handler
from kubeletpy.server.debug import dumps
from kubeletpy.server.debug.profile_proto import encode, folded
from kubeletpy.server.debug.sampling import PERIOD_S, Sampler, SamplingBusy

DEFAULT_S = 30
MAX_S = 300
_TEXTS = {
    "goroutine": ("asyncio tasks, by where they wait", dumps.tasks_text),
    "heap": ("objects by type", dumps.memory_text),
    "threadcreate": ("threads, and where they are", dumps.threads_text),
}
_INDEX = "".join(
    f'<a href="{name}">{name}</a>: {about}\n'
    for name, about in [
        ("cmdline", "the command line"),
        *((name, about) for name, (about, _) in _TEXTS.items()),
        (
            "profile",
            f"CPU time of the event loop's thread for ?seconds={DEFAULT_S}, for go tool pprof; "
            "with debug=1 as text",
        ),
    ]
)


def handler(command_line: Sequence[str], clock: Clock) -> Handler:
    """The handler of ``/debug/pprof/{profile}``; ``command_line`` is shown as it is."""
    sampler = Sampler()

    async def pprof(request: web.Request) -> web.StreamResponse:
        name = request.match_info["profile"]
        if name == "":
            text = f"<!doctype html>\n<pre>\n{_INDEX}</pre>\n"
            return web.Response(text=text, content_type="text/html")
        if name == "cmdline":
            return _text("\0".join(command_line))
        if name == "profile":
            return await _profile(sampler, clock, request)
        if name in _TEXTS:
            return _text(_TEXTS[name][1]())
        if name in ("symbol", "trace", "allocs", "block", "mutex"):
            return _text(f"there is no {name} profile of a Python process\n", 501)
        return _text("Unknown profile\n", 404)

    return pprof


async def _profile(sampler: Sampler, clock: Clock, request: web.Request) -> web.StreamResponse:
    given = request.query.get("seconds", "") or str(DEFAULT_S)
    if not (given.isascii() and given.isdigit() and 0 < int(given[:6]) <= MAX_S):
        return _text(f"seconds: must be from 1 to {MAX_S}\n", 400)
    began = int(clock.now() * 1e9)
    try:
        stacks = await sampler.sample(int(given))
    except SamplingBusy:
        return web.Response(
            status=429, text="a profile is being taken\n", headers={"Retry-After": given}
        )
    except ValueError:
        return _text("only a process whose event loop is in the main thread has a profile\n", 501)
    if request.query.get("debug", "0") != "0":
        return _text(folded(stacks))
    body = await asyncio.to_thread(
        encode,
        stacks,
        began_ns=began,
        took_ns=int(given) * 10**9,
        period_ns=int(PERIOD_S * 1e9),
    )
    headers = {"Content-Disposition": 'attachment; filename="profile"'}
    return web.Response(body=body, content_type="application/octet-stream", headers=headers)


def _text(text: str, status: int = 200) -> web.Response:
    return web.Response(status=status, text=text, headers={"X-Content-Type-Options": "nosniff"})
