"""Lists the process's tasks, threads and objects as text.

Names of functions, files and lines only: never a variable's value, which may be a secret.
"""

from __future__ import annotations

import asyncio
import gc
import resource
import sys
import threading
from collections import Counter, defaultdict
from collections.abc import Iterator
from types import CodeType, FrameType
from typing import Any

from kubeletpy.metrics.trace.watched_loop import reading_frames

MAX_DEPTH = 64
MAX_STACKS = 500
MAX_NAMES = 8
MAX_TYPES = 60


def tasks_text() -> str:
    """Tasks of the running loop grouped by where they are, the largest group first."""
    found: dict[tuple[str, ...], list[str]] = defaultdict(list)
    tasks = asyncio.all_tasks()
    for task in tasks:
        found[tuple(_of_awaitable(task.get_coro()))].append(task.get_name())
    lines = [f"tasks: total {len(tasks)}\n"]
    for stack, names in sorted(found.items(), key=lambda each: -len(each[1]))[:MAX_STACKS]:
        shown = ", ".join(sorted(names)[:MAX_NAMES]) + (", ..." if len(names) > MAX_NAMES else "")
        lines.append(f"\n{len(names)} @ {shown}\n" + "".join(f"#\t{line}\n" for line in stack))
    return "".join(lines)


def threads_text() -> str:
    """Where each thread is."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    with reading_frames():
        stacks = {ident: list(_of_frame(frame)) for ident, frame in sys._current_frames().items()}
    lines = [f"threads: total {len(stacks)}\n"]
    for ident, stack in stacks.items():
        lines.append(f"\n1 @ {names.get(ident, 'unnamed')}\n")
        lines += [f"#\t{line}\n" for line in stack]
    return "".join(lines)


def memory_text() -> str:
    """Objects by type, the garbage collector's counts, resident memory in kilobytes."""
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


def _of_awaitable(awaited: Any) -> Iterator[str]:
    """From the outermost coroutine to what it ultimately waits for."""
    for _ in range(MAX_DEPTH):
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


def _of_frame(frame: FrameType | None) -> Iterator[str]:
    for _ in range(MAX_DEPTH):
        if frame is None:
            return
        yield _line(frame.f_code, frame.f_lineno)
        frame = frame.f_back


def _line(code: CodeType, line: int) -> str:
    return f"{code.co_qualname} {code.co_filename}:{line}"
