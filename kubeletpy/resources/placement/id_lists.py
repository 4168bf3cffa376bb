"""Sets of CPUs and of NUMA nodes as the kernel writes them: ``0-1,4``. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from kubeletpy.config.rules import parse_cpuset


def format_ids(ids: Iterable[int]) -> str:
    """The shortest list of all of them."""
    ranges: list[tuple[int, int]] = []
    for each in sorted(set(ids)):
        if ranges and ranges[-1][1] == each - 1:
            ranges[-1] = ranges[-1][0], each
        else:
            ranges.append((each, each))
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in ranges)


def parse_ids(text: str) -> frozenset[int]:
    """All ids in a list. Raises ValueError."""
    found = parse_cpuset(text.strip())
    if found is None:
        raise ValueError(f"{text[:80]!r} is not a list such as 0-1,4")
    return found
