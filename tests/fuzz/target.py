"""The functions that a fuzzer calls, the errors that they may raise, and their time limits."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

MAX_LEN = 16 << 10
BASE_S = 0.5
PER_BYTE_S = 50e-6
"""CPU seconds of an input: work is in proportion to size. Code is up to ten times slower while its
coverage is measured, and all work in C is done in one go."""

TARGETS: dict[str, Target] = {}


class TooSlow(Exception):
    """An input took more than its size allows."""


@dataclass(frozen=True, slots=True)
class Target:
    """One parser.

    Attributes:
        allowed: the errors that the parser's docstring names; anything else is a find.
        seeds: good inputs to begin with.
        words: parts of inputs, for the fuzzer to insert.
    """

    name: str
    run: Callable[[bytes], None]
    allowed: tuple[type[Exception], ...]
    seeds: tuple[bytes, ...]
    parts: tuple[bytes, ...]

    def __call__(self, data: bytes) -> None:
        """Try one input. Raises whatever is a find."""
        begun = time.thread_time()
        with contextlib.suppress(*self.allowed):
            self.run(data)
        took = time.thread_time() - begun
        if took > BASE_S + PER_BYTE_S * len(data):
            raise TooSlow(f"{len(data)} bytes took {took:.2f} s")


def target(
    *allowed: type[Exception], seeds: tuple[bytes, ...] = (), parts: tuple[bytes, ...] = ()
) -> Callable[[Callable[[bytes], None]], Callable[[bytes], None]]:
    """Make a function a target of its name."""

    def register(run: Callable[[bytes], None]) -> Callable[[bytes], None]:
        name = run.__name__
        assert name not in TARGETS
        TARGETS[name] = Target(name, run, allowed, seeds, parts)
        return run

    return register


def text(data: bytes) -> str:
    """The text of a file with these bytes."""
    return data.decode("utf-8", "replace")


def pieces(data: bytes) -> Iterator[bytes]:
    """All but the first two bytes, cut at positions that those bytes choose."""
    seed, data = int.from_bytes(data[:2], "little"), data[2:]
    at = 0
    while at < len(data):
        seed = (seed * 1103515245 + 12345) & 0x7FFFFFFF
        size = 1 + (seed >> 16) % 97
        yield data[at : at + size]
        at += size


JSON_WORDS = (b'{"', b'":', b'"', b"[", b"]", b"{", b"}", b",", b"null", b"true", b"-1", b"1e999")
YAML_WORDS = (b"- ", b": ", b"\n  ", b"---\n", b"&a ", b"*a", b"!!", b"|\n", b"? ", b"<<: ", b"#")
