"""Rendered text for a node under pressure and for a pod's eviction."""

from __future__ import annotations

from typing import Any

import pytest

from kubeletpy.observe.explain import render
from kubeletpy.observe.explain.texts import amounts, sizes

NOW = 1000.0
KI, MI, GI = 1 << 10, 1 << 20, 1 << 30


def place(name: str, **changes: Any) -> dict[str, Any]:
    """A pod in the order of eviction candidates."""
    plain = {
        "namespace": "default", "name": name, "critical": False, "used": 5 * MI,
        "request": 2 * MI, "over": True, "priority": 3,
    }  # fmt: skip
    return {**plain, **changes}


def eviction_row(outcome: str, at: float = NOW - 5, **changes: Any) -> dict[str, Any]:
    plain = {
        "at": at, "signal": "memory.available", "available": 50 * MI, "threshold": 100 * MI,
        "grace": None, "outcome": outcome, "reclaimed": ["images", "containers"],
        "pod": place("web"), "ranking": [], "next": None,
    }  # fmt: skip
    return {**plain, **changes}


def level(field: str, **changes: Any) -> dict[str, Any]:
    plain = {
        "field": field, "signal": field.partition(".")[2], "available": 3 * MI,
        "capacity": 9 * MI, "threshold": 2 * MI, "grace": None, "crossed_since": None,
    }  # fmt: skip
    return {**plain, **changes}


QUIET = {"at": NOW, "conditions": [], "levels": [], "doubts": [], "evictions": [], "helps": []}


def test_a_node() -> None:
    view = {
        "at": NOW,
        "conditions": [
            {"condition": "MemoryPressure", "since": NOW - 30, "ends_at": None},
            {"condition": "DiskPressure", "since": NOW - 90, "ends_at": NOW + 60},
        ],
        "levels": [
            level("evictionHard.memory.available", crossed_since=NOW - 4),
            level("evictionSoft.memory.available", grace=90.0),
        ],
        "doubts": [["pid.available", "no such file"]],
        "evictions": [
            eviction_row("reclaimed", NOW - 20),
            eviction_row("too little", NOW - 10, grace=60.0),
            eviction_row("evicted", reclaimed=[]),
        ],
        "helps": [
            {"signal": "memory.available", "remedy": "end processes", "amount": 7},
            {"signal": None, "remedy": "wait", "amount": 0},
        ],
    }
    assert render.node(view) == (
        "The node has been under MemoryPressure for 30s.\n"
        "The node has been under DiskPressure for 1m30s; enough again, ends in 1m.\n"
        "\n"
        "Thresholds\n"
        "  evictionHard.memory.available: 3.0 MiB left of 9.0 MiB, acted on below 2.0 MiB, "
        "crossed for 4s\n"
        "  evictionSoft.memory.available: 3.0 MiB left of 9.0 MiB, acted on below 2.0 MiB "
        "for 1m30s\n"
        "\n"
        "Implausible numbers, ignored\n"
        "  pid.available: no such file\n"
        "\n"
        "Actions taken, newest first\n"
        "  5s ago: evicted default/web (used 5.0 MiB, more than its request of 2.0 MiB, priority "
        "3): memory.available was 50.0 MiB, below 100.0 MiB\n"
        "  10s ago: removed unused images and containers, which was not enough: "
        "memory.available was 50.0 MiB, below 100.0 MiB for more than 1m\n"
        "  20s ago: removed unused images and containers, which was enough: "
        "memory.available was 50.0 MiB, below 100.0 MiB\n"
        "\n"
        "Remedies\n"
        "  memory.available: 7 process numbers have to be free more: end processes, or set "
        "podPidsLimit\n"
        "  nothing: there is enough again, and the conditions end when they have been held for "
        "evictionPressureTransitionPeriod\n"
    )


def test_a_node_without_troubles() -> None:
    assert render.node(QUIET) == "The node is under no pressure.\n"
    assert "not watched" in render.node(None)


def test_the_newest_ten_evictions() -> None:
    evictions = [eviction_row("reclaimed", NOW - n) for n in range(20, 0, -1)]
    rows = render.node({**QUIET, "evictions": evictions}).split("\n")
    reported = [row.split()[0] for row in rows if " ago: " in row]
    assert reported == [f"{n}s" for n in range(1, 11)]


def test_an_eviction() -> None:
    found = eviction_row(
        "evicted",
        ranking=[
            place("web"),
            place("api", over=False, priority=0),
            place("dns", critical=True),
            place("new", used=None),
        ],
        next=place("api"),
    )
    assert render.eviction(found, NOW) == (
        "Evicted because the node ran short\n"
        "  5s ago: memory.available was 50.0 MiB, below 100.0 MiB\n"
        "  used 5.0 MiB, more than its request of 2.0 MiB, priority 3\n"
        "  the order then:\n"
        "    1. default/web: used 5.0 MiB, more than its request of 2.0 MiB, priority 3\n"
        "    2. default/api: used 5.0 MiB, within its request of 2.0 MiB, priority 0\n"
        "    3. default/dns: critical or static: stays\n"
        "    4. default/new: nothing of it ran, priority 3\n"
        "  next would have been default/api"
    )
    alone = eviction_row("evicted", signal="pid.available", pod=place("web", used=7))
    assert render.eviction(alone, NOW) == (
        "Evicted because the node ran short\n"
        "  5s ago: pid.available was 52428800, below 104857600\n"
        "  7 tasks, priority 3"
    )


def test_a_limit_of_its_own() -> None:
    def limited(name: str, of: str, used: int) -> dict[str, Any]:
        share = {"of": of, "used": used, "limit": 4 * MI}
        return {"namespace": "default", "name": name, "share": share}

    found = {
        "at": NOW - 5,
        "pod": limited("web", "emptyDir cache", 5 * MI),
        "ranking": [limited("api", "container main", 3 * MI)],
    }
    assert render.by_limit(found, NOW) == (
        "Evicted because it exceeded a limit of its local storage\n"
        "  5s ago: emptyDir cache used 5.0 MiB of 4.0 MiB\n"
        "  the nearest to a limit then, which would be next:\n"
        "    1. default/api: container main used 3.0 MiB of 4.0 MiB"
    )
    alone = {**found, "pod": limited("web", "all of the pod", 1 << 64), "ranking": []}
    assert render.by_limit(alone, NOW) == (
        "Evicted because it exceeded a limit of its local storage\n"
        "  5s ago: all of the pod used more than can be counted of 4.0 MiB"
    )


# Amounts as people read them: one unit per line, counts as plain numbers.


@pytest.mark.parametrize(
    ("values", "texts"),
    [
        ((72885240 * KI, 264212084 * KI, 27055317804), ["69.5 GiB", "252.0 GiB", "25.2 GiB"]),
        ((70 * GI, 252 * GI, 100 * MI), ["70.0 GiB", "252.0 GiB", "100.0 MiB"]),
        ((99 * MI, 252 * GI, 100 * MI), ["99.0 MiB", "252.0 GiB", "100.0 MiB"]),
        ((512 * MI, 2 * GI), ["0.50 GiB", "2.0 GiB"]),
        ((25 * GI + 1, 252 * GI, 25 * GI + 30 * MI), ["25.00 GiB", "252.00 GiB", "25.03 GiB"]),
        ((5 * MI, 2 * MI), ["5.0 MiB", "2.0 MiB"]),
        ((6 * GI, 0), ["6.0 GiB", "0 GiB"]),
        ((0,), ["0 B"]),
        ((1023,), ["1023 B"]),
        ((1024,), ["1.0 KiB"]),
        ((KI, MI), ["1.0 KiB", "1.0 MiB"]),
        ((KI, 2 * MI, GI), ["1.0 KiB", "2.0 MiB", "1.0 GiB"]),
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
