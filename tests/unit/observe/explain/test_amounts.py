"""Amounts as people read them: one unit per line, counts as plain numbers."""

from __future__ import annotations

from typing import Any

import pytest

from kubeletpy.observe.explain import render
from kubeletpy.observe.explain.texts import amounts, sizes

KI, MI, GI = 1 << 10, 1 << 20, 1 << 30


@pytest.mark.parametrize(
    ("values", "texts"),
    [
        ((72885240 * KI, 264212084 * KI, 27055317804), ["69.5 GiB", "252.0 GiB", "25.2 GiB"]),
        ((70 * GI, 252 * GI, 100 * MI), ["70.0 GiB", "252.0 GiB", "0.098 GiB"]),
        ((99 * MI, 252 * GI, 100 * MI), ["0.097 GiB", "252.0 GiB", "0.098 GiB"]),
        ((25 * GI + 1, 252 * GI, 25 * GI + 30 * MI), ["25.00 GiB", "252.00 GiB", "25.03 GiB"]),
        ((5 * MI, 2 * MI), ["5.0 MiB", "2.0 MiB"]),
        ((6 * GI, 0), ["6.0 GiB", "0 GiB"]),
        ((0,), ["0 B"]),
        ((1023,), ["1023 B"]),
        ((1024,), ["1.0 KiB"]),
        ((KI, MI), ["1.0 KiB", "1024.0 KiB"]),
        ((KI, 2 * MI, GI), ["1.0 KiB", "2048.0 KiB", "1048576.0 KiB"]),
        ((-3 * GI, GI), ["-3.0 GiB", "1.0 GiB"]),
        ((2 * GI, 2 * GI), ["2.0 GiB", "2.0 GiB"]),
        ((2 * GI, 2 * GI + 1), ["2.0 GiB", "2.0 GiB"]),
        ((1 << 70,), ["1024.0 EiB"]),
        ((), []),
    ],
)
def test_sizes(values: tuple[int, ...], texts: list[str]) -> None:
    assert sizes(*values) == texts


@pytest.mark.parametrize(
    ("signal", "texts"),
    [
        ("pid.available", ["364789", "393216"]),
        ("nodefs.inodesFree", ["364789", "393216"]),
        ("imagefs.inodesFree", ["364789", "393216"]),
        ("nodefs.available", ["356.2 KiB", "384.0 KiB"]),
        ("memory.available", ["356.2 KiB", "384.0 KiB"]),
    ],
)
def test_counts_are_plain_numbers(signal: str, texts: list[str]) -> None:
    assert amounts(signal, 364789, 384 * KI) == texts


@pytest.mark.parametrize(
    ("signal", "numbers", "line"),
    [
        (
            "memory.available",
            (72885240 * KI, 264212084 * KI, 27055317804),
            "  f: 69.5 GiB left of 252.0 GiB, acted on below 25.2 GiB",
        ),
        ("pid.available", (364789, 393216, 99), "  f: 364789 left of 393216, acted on below 99"),
        ("nodefs.inodesFree", (4096, 65536, 99), "  f: 4096 left of 65536, acted on below 99"),
    ],
)
def test_a_threshold_has_one_unit(signal: str, numbers: tuple[int, int, int], line: str) -> None:
    names = ("available", "capacity", "threshold")
    level: dict[str, Any] = dict(zip(names, numbers, strict=True))
    level |= {"field": "f", "signal": signal, "grace": None, "crossed_since": None}
    view = {
        "at": 1.0,
        "conditions": [],
        "levels": [level],
        "doubts": [],
        "evictions": [],
        "helps": [],
    }
    assert line in render.node(view).splitlines()


@pytest.mark.parametrize(
    ("remedy", "amount", "stated"),
    [
        ("free memory", 3 * GI, "3.0 GiB of memory have to be free more"),
        ("free space", 1536 * MI, "1.5 GiB of space have to be free more"),
        ("remove files", 2048, "2048 inodes have to be free more"),
        ("end processes", 1024, "1024 process numbers have to be free more"),
    ],
)
def test_remedies_have_a_unit(remedy: str, amount: int, stated: str) -> None:
    helps = [{"signal": "x", "remedy": remedy, "amount": amount}]
    view = {
        "at": 1.0,
        "conditions": [],
        "levels": [],
        "doubts": [],
        "evictions": [],
        "helps": helps,
    }
    assert f"x: {stated}" in render.node(view)
