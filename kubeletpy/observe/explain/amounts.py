"""Amounts of memory, disk, inodes and processes, as people read them. Pure.

The amounts of one line have the same unit, so that they can be compared at a glance.
"""

from __future__ import annotations

from math import floor, log10

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
_STEP = 1024
MAX_RATIO = 1000
"""The smallest amount is at least this part of the unit: ``0.098 GiB``, never ``0.00001 GiB``."""
MAX_DECIMALS = 6


def amounts(signal: str, *values: int) -> list[str]:
    """Amounts of an eviction signal: sizes, or plain counts of inodes and processes."""
    return list(map(str, values)) if is_count(signal) else sizes(*values)


def is_count(signal: str) -> bool:
    """Whether an eviction signal counts things instead of bytes."""
    return signal == "pid.available" or signal.endswith("inodesFree")


def sizes(*values: int) -> list[str]:
    """Sizes in bytes with one unit for all: ``["69.5 GiB", "252.0 GiB"]``.

    The unit is that of the largest, unless the smallest would vanish in it. Sizes that differ have
    different texts, as far as six decimals show the difference.
    """
    power = _power(values)
    unit = _STEP**power
    if power == 0:
        return [f"{value} B" for value in values]
    for decimals in range(1, MAX_DECIMALS + 1):
        texts = [f"{_number(value / unit, decimals)} {_UNITS[power]}" for value in values]
        if len(set(texts)) == len(set(values)):
            return texts
    return [f"{_number(value / unit, 1)} {_UNITS[power]}" for value in values]


def _power(values: tuple[int, ...]) -> int:
    largest = max(map(abs, values), default=0)
    smallest = min((abs(value) for value in values if value), default=0)
    power = min(max(largest.bit_length() - 1, 0) // 10, len(_UNITS) - 1)  # units are of 2**10
    while power and smallest * MAX_RATIO < _STEP**power:
        power -= 1
    return power


def _number(value: float, decimals: int) -> str:
    """Two significant digits at least of what is smaller than one unit."""
    if not value:
        return "0"
    if 0 < abs(value) < 1:
        decimals = max(decimals, 1 - floor(log10(abs(value))))
    return f"{value:.{decimals}f}"
