"""Quantities, times, durations, lists of numbers, variables."""

from __future__ import annotations

from kubeletpy.base.api import quantity, times
from kubeletpy.pods.environment import ExpansionTooLong, expand
from kubeletpy.resources.placement.model import parse_ids
from kubeletpy.volumes.containers.environment import parse_env_file
from kubeletpy_up.schema import formats
from tests.fuzz.target import target, text


@target(
    ValueError,
    seeds=(b"1", b"100m", b"1.5Gi", b"1e3", b"-12E", b"0.000000001"),
    parts=(b"Ki", b"Mi", b"Gi", b"Ei", b"n", b"u", b"m", b"e", b"E", b"e-9", b"E+18", b"."),
)
def quantity_both(data: bytes) -> None:
    """A quantity that the embedded API accepts has the agent's value, and one spelling."""
    supplied = text(data)
    try:
        canonical = formats.canonical(supplied)
    except ValueError:
        quantity.value(supplied)
        return
    assert formats.canonical(canonical) == canonical
    quantity.value(canonical), quantity.milli_value(canonical)


@target(ValueError, seeds=(b"2024-01-02T03:04:05Z", b"2024-01-02T03:04:05.678+01:00"))
def time_text(data: bytes) -> None:
    """A time of the API."""
    times.format_time(times.parse_time(text(data)))


@target(ValueError, seeds=(b"1h2m3s", b"1.5ms", b"-4us"), parts=(b"ns", b"us", b"ms", b"h"))
def duration(data: bytes) -> None:
    """A duration as Go writes it; written again it is the same."""
    seconds = times.parse_duration(text(data))
    times.parse_duration(times.format_duration(seconds))


@target(ValueError, seeds=(b"0-3,8", b"1", b""))
def id_list(data: bytes) -> None:
    """Numbers of CPUs or memory nodes."""
    parse_ids(text(data))


@target(seeds=(b"A='b'\n# c\nD='e\nf'\n",), parts=(b"='", b"'\n", b"\r\n", b"#", b"\n", b"export "))
def env_file(data: bytes) -> None:
    """An env file, as a container wrote it."""
    found = parse_env_file(text(data))
    assert all("=" not in name and "\n" not in name for name in found.values)


@target(ExpansionTooLong, seeds=(b"$(A) $$(A) $(B", b"$(A)$(A)"), parts=(b"$(", b"$$", b")"))
def expansion(data: bytes) -> None:
    """References to variables in commands and values."""
    expand(text(data), lambda name: name * 8 if len(name) % 2 else None)
