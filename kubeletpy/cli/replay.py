"""``kubeletpy replay``: re-runs recorded decisions and shows the differences.

Touches nothing but the given file.
"""

from __future__ import annotations

import argparse
import gzip
import sys
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path

MOST = 256 << 20
"""Bytes of a recording, unpacked; the rest of a longer one is not read."""


def main(arguments: Sequence[str]) -> int:
    """Run a command line; returns the exit code.

    1 for a difference; 2 for what can't be read, also a line that is no line of a recording.
    """
    parsed = parser().parse_args(arguments)
    from kubeletpy.base.version import VERSION
    from kubeletpy.observe.explain.texts import one_line
    from kubeletpy.observe.recorder import replay as render
    from kubeletpy.observe.recorder.replay import replay

    try:
        found = replay(_lines(parsed.file))
    except (OSError, EOFError, zlib.error) as error:
        print(f"kubeletpy replay: {parsed.file}: {error}", file=sys.stderr)
        return 2
    if not found.versions:
        print(f"kubeletpy replay: {parsed.file} is no recording", file=sys.stderr)
        return 2
    if parsed.pod is None:
        sys.stdout.write(render.overview(found, VERSION) + render.differences(found))
    else:
        desired = parsed.pod if "/" in parsed.pod else f"default/{parsed.pod}"
        uids = [
            uid for uid in found.stories if desired == found.names.get(uid) or uid == parsed.pod
        ]
        if not uids:
            print(f"kubeletpy replay: no pod {desired} is in {parsed.file}", file=sys.stderr)
            return 2
        sys.stdout.write("".join(render.story(found, uid) for uid in uids))
        for problem, first in found.first.items():
            print(f"kubeletpy replay: line {first}: {one_line(problem)}", file=sys.stderr)
    return 1 if found.differences else 2 * bool(found.refused)


def _lines(path: Path) -> Iterator[bytes]:
    from kubeletpy.observe.recorder.files import MAX_LINE

    with path.open("rb") as opened:
        packed = opened.read(2) == b"\x1f\x8b"
    left = MOST
    with gzip.open(path) if packed else path.open("rb") as lines:
        while left > 0 and (line := lines.readline(MAX_LINE)):
            left -= len(line)
            yield line


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    made = argparse.ArgumentParser(
        prog="kubeletpy replay",
        description="Give what was recorded to this version's decisions again: each pod's story, "
        "and where this version decides differently. Runs anywhere, without an agent.",
    )
    made.add_argument("file", type=Path, help="of kubeletpy record")
    made.add_argument("pod", nargs="?", help="NAME, NAMESPACE/NAME or UID: its whole story")
    return made
