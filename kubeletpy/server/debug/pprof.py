"""/debug/pprof/: the profiles of Go's runtime that Python can offer.

A CPU profile in pprof's own format; tasks, threads and objects as text. There is no execution trace
and no block or mutex profile. Must never show a value of the program, only code locations.
"""

from __future__ import annotations

import asyncio
import gc
import resource
import signal
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from types import CodeType, FrameType
from typing import Any

from aiohttp import web

from kubeletpy.base.clock import Clock
from kubeletpy.metrics.trace.watched_loop import reading_frames
from kubeletpy.server.app import Handler
from kubeletpy.server.debug.profile_proto import CodeLocation, Stack, Weight, encode, folded

# Tasks, threads and objects as text: names of functions, files and lines only.

MAX_DUMP_DEPTH = 64
MAX_DUMP_STACKS = 500
MAX_NAMES = 8
MAX_TYPES = 60


def tasks_text() -> str:
    """Return the tasks of the running loop grouped by position, the largest group first."""
    found: dict[tuple[str, ...], list[str]] = defaultdict(list)
    tasks = asyncio.all_tasks()
    for task in tasks:
        found[tuple(_awaitable_lines(task.get_coro()))].append(task.get_name())
    lines = [f"tasks: total {len(tasks)}\n"]
    for stack, names in sorted(found.items(), key=lambda each: -len(each[1]))[:MAX_DUMP_STACKS]:
        listed = ", ".join(sorted(names)[:MAX_NAMES]) + (", ..." if len(names) > MAX_NAMES else "")
        lines.append(f"\n{len(names)} @ {listed}\n" + "".join(f"#\t{line}\n" for line in stack))
    return "".join(lines)


def threads_text() -> str:
    """Return the position of each thread."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    with reading_frames():
        stacks = {
            ident: list(_frame_lines(frame)) for ident, frame in sys._current_frames().items()
        }
    lines = [f"threads: total {len(stacks)}\n"]
    for ident, stack in stacks.items():
        lines.append(f"\n1 @ {names.get(ident, 'unnamed')}\n")
        lines += [f"#\t{line}\n" for line in stack]
    return "".join(lines)


def memory_text() -> str:
    """Return objects by type, the garbage collector's counts, and resident memory."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    objects = Counter(map(type, gc.get_objects()))
    lines = [
        f"objects: total {objects.total()}\n",
        f"allocated blocks: {sys.getallocatedblocks()}\n",
        f"largest resident set so far: {usage.ru_maxrss} kB\n",
        f"collections: {[each['collections'] for each in gc.get_stats()]}, "
        f"waiting: {list(gc.get_count())}\n\n",
    ]
    for kind, count in objects.most_common(MAX_TYPES):
        lines.append(f"{count}: {kind.__module__}.{kind.__qualname__}\n")
    return "".join(lines)


def _awaitable_lines(awaited: Any) -> Iterator[str]:
    """Yield the lines from the outermost coroutine to the object that it ultimately waits for."""
    for _ in range(MAX_DUMP_DEPTH):
        for kind in ("cr", "gi", "ag"):
            code: CodeType | None = getattr(awaited, f"{kind}_code", None)
            if code is not None:
                frame: FrameType | None = getattr(awaited, f"{kind}_frame", None)
                yield _line(code, frame.f_lineno if frame is not None else 0)
                inner = "gi_yieldfrom" if kind == "gi" else f"{kind}_await"
                awaited = getattr(awaited, inner, None)
                break
        else:
            if awaited is not None:
                yield f"waits for {type(awaited).__module__}.{type(awaited).__qualname__}"
            return


def _frame_lines(frame: FrameType | None) -> Iterator[str]:
    for _ in range(MAX_DUMP_DEPTH):
        if frame is None:
            return
        yield _line(frame.f_code, frame.f_lineno)
        frame = frame.f_back


def _line(code: CodeType, line: int) -> str:
    return f"{code.co_qualname} {code.co_filename}:{line}"


PERIOD_S = 0.01
MAX_STACKS = 20_000
MAX_DEPTH = 128


class SamplingBusy(Exception):
    """Raised if another sampling is under way."""


class Sampler:
    """Samples the event loop's thread by the kernel's profiling timer, in the main thread only.

    The timer runs only while CPU time is used, so an idle agent is not disturbed. Worker threads
    are not sampled: they only read files. Must never leave the timer running.
    """

    def __init__(self) -> None:
        self._running = False
        self._stacks: dict[Stack, Weight] = {}
        self._last = 0

    async def sample(self, seconds: float) -> dict[Stack, Weight]:
        """Return the stacks sampled over this many seconds.

        Raises:
            SamplingBusy: another sampling is under way.
            ValueError: this is not the main thread.
        """
        if self._running:
            raise SamplingBusy
        self._stacks, self._last = {}, time.thread_time_ns()
        signal.signal(signal.SIGPROF, self._tick)
        self._running = True
        try:
            # restart system calls of other threads after the signal
            signal.siginterrupt(signal.SIGPROF, False)
            signal.setitimer(signal.ITIMER_PROF, PERIOD_S, PERIOD_S)
            await asyncio.sleep(seconds)
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
            signal.signal(signal.SIGPROF, signal.SIG_IGN)
            self._running = False
        return self._stacks

    def _tick(self, _number: int, frame: FrameType | None) -> None:
        now = time.thread_time_ns()
        spent, self._last = now - self._last, now
        locations: list[CodeLocation] = []
        while frame is not None and len(locations) < MAX_DEPTH:
            code = frame.f_code
            locations.append(CodeLocation(code.co_qualname, code.co_filename, frame.f_lineno))
            frame = frame.f_back
        stack = tuple(locations)
        weight = self._stacks.get(stack)
        if weight is None:
            if len(self._stacks) >= MAX_STACKS:
                return
            weight = self._stacks[stack] = Weight()
        weight.samples += 1
        weight.nanoseconds += spent


DEFAULT_S = 30
MAX_S = 300
_TEXTS = {
    "goroutine": ("asyncio tasks, by where they wait", tasks_text),
    "heap": ("objects by type", memory_text),
    "threadcreate": ("threads, and where they are", threads_text),
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
    """Return the handler of ``/debug/pprof/{profile}``; it shows ``command_line`` as it is."""
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
    seconds = request.query.get("seconds", "") or str(DEFAULT_S)
    if not (seconds.isascii() and seconds.isdigit() and 0 < int(seconds[:6]) <= MAX_S):
        return _text(f"seconds: must be from 1 to {MAX_S}\n", 400)
    began = int(clock.now() * 1e9)
    try:
        stacks = await sampler.sample(int(seconds))
    except SamplingBusy:
        return web.Response(
            status=429, text="a profile is being taken\n", headers={"Retry-After": seconds}
        )
    except ValueError:
        return _text("only a process whose event loop is in the main thread has a profile\n", 501)
    if request.query.get("debug", "0") != "0":
        return _text(folded(stacks))
    body = await asyncio.to_thread(
        encode, stacks, began_ns=began, took_ns=int(seconds) * 10**9, period_ns=int(PERIOD_S * 1e9)
    )
    headers = {"Content-Disposition": 'attachment; filename="profile"'}
    return web.Response(body=body, content_type="application/octet-stream", headers=headers)


def _text(text: str, status: int = 200) -> web.Response:
    return web.Response(status=status, text=text)
