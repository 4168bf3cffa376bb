"""``kubeletpy logs``: the log of a container of this node, from its files alone.

Works without an agent, a runtime or an API server. Any pod that mounts podLogsDir from the host can
write there: no link is followed, and nothing is read outside.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import stat
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from kubeletpy.base.api.times import parse_duration
from kubeletpy.base.host.files import open_folder
from kubeletpy.base.structs import Component
from kubeletpy.cli.explain import names
from kubeletpy.observe.explain.texts import one_line
from kubeletpy.server.logs.follow import LogStreams
from kubeletpy.server.logs.records import LogOptions

DEFAULT_ROOT = Path("/var/log/pods")
MAX_NAME = 300
_RUN = re.compile(r"(0|[1-9][0-9]{0,8})\.log")


class NoLogFiles(Exception):
    """There is nothing to show; the text contains the reason and what to do."""


def main(arguments: Sequence[str]) -> int:
    """Run a command line; returns the exit code: 1 when there is no such log."""
    parsed = parser().parse_args(arguments)
    try:
        asyncio.run(show(parsed))
    except (NoLogFiles, OSError) as error:
        if isinstance(error, BrokenPipeError):
            raise
        print(f"kubeletpy logs: {one_line(str(error), 2000)}", file=sys.stderr)
        return 1
    return 0


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    made = argparse.ArgumentParser(
        prog="kubeletpy logs",
        description="Show the log of a container of this node, also its rotated and compressed "
        "files. The files alone are read: neither the agent nor the API server need run.",
    )
    made.add_argument("pod", metavar="POD", help="NAME, NAMESPACE/NAME or UID")
    made.add_argument("-n", "--namespace", default="default")
    made.add_argument("-c", "--container", help="its name; needed if the pod has several")
    made.add_argument("-p", "--previous", action="store_true", help="of the run before the last")
    made.add_argument("-f", "--follow", action="store_true", help="until the container restarts")
    made.add_argument("--tail", type=_lines, metavar="N", help="the last N lines (all)")
    made.add_argument("--since", type=_seconds, metavar="DURATION", help="such as 90s, 5m or 2h")
    made.add_argument("--timestamps", action="store_true", help="begin each line with its time")
    made.add_argument(
        "--pod-logs-dir",
        type=Path,
        default=DEFAULT_ROOT,
        metavar="DIR",
        help="podLogsDir of the agent (/var/log/pods)",
    )
    return made


def _lines(text: str) -> int | None:
    try:
        return None if int(text) < 0 else int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text} is not a number of lines") from None


def _seconds(text: str) -> float:
    try:
        return parse_duration(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


async def show(parsed: argparse.Namespace) -> None:
    """Write the requested part of a log to standard output. Raises NoLogFiles, OSError."""
    root = str(parsed.pod_logs_dir)
    folder = newest_pod(root, *names(parsed))
    container = choose_container(root, folder, parsed.container)
    runs = Runs(root, (folder, container))
    number = runs.number(previous=parsed.previous)
    since = None if parsed.since is None else time.time() - parsed.since
    options = LogOptions(
        follow=parsed.follow,
        previous=parsed.previous,
        timestamps=parsed.timestamps,
        since=since,
        tail=parsed.tail,
    )
    runs.shown = number
    streams = LogStreams(root, runs)
    try:
        log = await streams.open(f"{root}/{folder}/{container}/{number}.log", "")
        await streams.send(log, "", "", options, _write)
    finally:
        streams.close()


async def _write(data: bytes) -> None:
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


class Runs(Component):
    """The runs of a container, each with a log ``{n}.log``. Implements follow.Containers."""

    root: str
    # the pod's directory and the container's in it.
    parts: tuple[str, str]

    def __post_init__(self) -> None:
        self.shown = 0

    def number(self, *, previous: bool) -> int:
        """Return the number of the last run, or of the one before. Raises NoLogFiles, OSError."""
        found = self._numbers()
        if len(found) > previous:
            return found[-1 - previous]
        what = "an earlier run" if previous else "a run"
        raise NoLogFiles(f"there is no log of {what} in {'/'.join((self.root, *self.parts))}")

    def subscribe(self, changed: Callable[[str], None]) -> None:
        """Do nothing: the directory of the log is watched."""

    def runs(self, uid: str, container_id: str) -> bool:
        """Return whether no other run has begun, as far as the files show."""
        try:
            return self._numbers()[-1:] == [self.shown]
        except OSError:
            return False

    def _numbers(self) -> list[int]:
        matches = [_RUN.fullmatch(each) for each in entries(self.root, self.parts, stat.S_ISREG)]
        return sorted(int(match[1]) for match in matches if match)


def newest_pod(root: str, namespace: str, name: str) -> str:
    """Return the name of the newest directory of a pod. Raises NoLogFiles, OSError."""
    try:
        found = entries(root, (), stat.S_ISDIR)
    except PermissionError:
        raise NoLogFiles(f"{root} can't be read; run this as root") from None
    except FileNotFoundError:
        raise NoLogFiles(f"there is no {root}; use --pod-logs-dir with the agent's") from None
    ours = [each for each in found if each.startswith(f"{namespace}_{name}_")]
    ours = ours or [each for each in found if each.endswith(f"_{name}")]
    if not ours:
        others = {each.split("_")[0] for each in found if f"_{name}_" in each}
        hint = f"; use -n {' or -n '.join(sorted(others))}" if others else ""
        raise NoLogFiles(f"{root} has no log of a pod {namespace}/{name}{hint}")
    return max(ours, key=lambda each: found[each])


def choose_container(root: str, folder: str, requested: str | None) -> str:
    """Return the directory of the container. Raises NoLogFiles, OSError."""
    found = sorted(entries(root, (folder,), stat.S_ISDIR))
    if requested in found or (requested is None and len(found) == 1):
        return requested or found[0]
    if not found:
        raise NoLogFiles(f"no container of {folder} has a log")
    why = "it has several containers" if requested is None else f"it has no log of {requested}"
    raise NoLogFiles(f"{folder}: {why}; use -c with one of {', '.join(found)}")


def entries(root: str, parts: Sequence[str], kind: Callable[[int], bool]) -> dict[str, float]:
    """Return the names of one kind in a directory below ``root``, and when each was last changed.

    Raises OSError.
    """
    folder, found = open_folder(root, parts), {}
    try:
        for name in os.listdir(folder):  # noqa: PTH208 - a folder by its descriptor
            try:
                entry = os.stat(name, dir_fd=folder, follow_symlinks=False)
            except FileNotFoundError:
                continue
            if kind(entry.st_mode) and len(name) <= MAX_NAME:
                found[name] = entry.st_mtime
    finally:
        os.close(folder)
    return found
