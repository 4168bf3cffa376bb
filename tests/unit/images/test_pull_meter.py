"""The time left of a pull: contents of layers, arrivals, unpacking; recorded pulls."""

from __future__ import annotations

import gzip
import io
import json
import random
import tarfile
from itertools import takewhile
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from kubeletpy.images.pull_meter import (
    HEAD,
    PIECE,
    UNKNOWN,
    Contents,
    Layer,
    PendingLayer,
    PullMeter,
    UnpackTimes,
    pace,
    read_contents,
    time_left,
)

RECORDED = Path(__file__).with_name("pulls.jsonl")
STORED, UNPACKED = -2, -3
"""States of a layer in a recording; -1: nothing of it has arrived."""
NOISE = random.Random(1).randbytes(2 * HEAD)


def archive(*files: bytes) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as opened:
        for number, content in enumerate(files):
            entry = tarfile.TarInfo(f"{number}")
            entry.size = len(content)
            opened.addfile(entry, io.BytesIO(content))
    return packed.getvalue()


SMALL_FILES = archive(*(NOISE[900 * n : 900 * n + 900] for n in range(1500)))


@pytest.mark.parametrize(
    ("layer", "work", "written"),
    [
        (archive(NOISE), 1.05, 1.0),
        (gzip.compress(archive(NOISE), 0), 1.05, 1.0),
        (gzip.compress(archive(bytes(HEAD // 4) + NOISE[: HEAD // 4])), 10.3, 2.0),
        (gzip.compress(SMALL_FILES, 1), 31.0, 0.8),
        (gzip.compress(archive(NOISE[:HEAD])) + gzip.compress(NOISE), 1.05, 1.0),
    ],
    ids=["plain", "not compressible", "half zeros", "small files", "two members"],
)
def test_contents_of_a_layer(layer: bytes, work: float, written: float) -> None:
    contents = read_contents(layer[:HEAD])
    assert contents.work == pytest.approx(work, rel=0.2)
    assert contents.written == pytest.approx(written, rel=0.2)


@pytest.mark.parametrize(
    "head",
    [b"", b"\x28\xb5\x2f\xfd" + NOISE[:1000], NOISE, gzip.compress(NOISE), gzip.compress(b"")],
    ids=["nothing", "zstd", "noise", "no archive", "empty"],
)
def test_contents_that_are_not_known(head: bytes) -> None:
    assert read_contents(head) == UNKNOWN


def test_a_layer_that_expands_without_end_is_cut() -> None:
    bomb = gzip.compress(archive(bytes(64 * HEAD)))
    assert 100 < read_contents(bomb).written < 1100
    members = gzip.compress(SMALL_FILES[:1024]) + gzip.compress(b"") * 40_000
    assert read_contents(members).work > 1


@pytest.mark.parametrize(
    ("layers", "expected"),
    [
        ([(10, 1)], 11),
        ([(10, 1), (0, 3)], 14),
        ([(0, 3), (10, 1)], 11),
        ([(0, 15), (10, 1)], 16),
        # two at half the rate: the first arrives after 8 s, the second after 12 s
        ([(4, 5), (8, 1)], 14),
        ([(8, 1), (4, 5)], 18),
        # the fourth waits for a slot
        ([(2, 0), (2, 0), (2, 0), (4, 1)], 11),
        ([(4, 1, False), (2, 0), (2, 0), (2, 0)], 11),
        ([(0, 0), (0, 0)], 0),
    ],
)
def test_the_time_left(layers: list[tuple[float, ...]], expected: float) -> None:
    pending = [PendingLayer(layer[0], layer[1], not layer[2:]) for layer in layers]
    assert time_left(pending, 1.0) == pytest.approx(expected)


def test_many_layers_cost_little() -> None:
    layers = [PendingLayer(1 + n % 7, 1) for n in range(1024)]
    assert time_left(layers, 1.0) > sum(layer.missing for layer in layers)


def test_times_are_learned() -> None:
    times = UnpackTimes()
    assert times.seconds(100e6) == pytest.approx(0.3)
    for _ in range(40):
        times.add(100e6, 2.05, 0.0)
    assert times.seconds(200e6) == pytest.approx(4.05, rel=0.02)


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [(0.1, 0.3), (0.5, 0.3), (1.0, 0.75), (0.02, 0.27)],
    ids=["shorter", "longer", "much longer", "much shorter"],
)
def test_a_layer_between_two_measurements_teaches_only_its_bounds(
    seconds: float, expected: float
) -> None:
    times = UnpackTimes()
    for _ in range(100):
        times.add(100e6, seconds, 0.25)
    assert times.seconds(100e6) == pytest.approx(expected, rel=0.02)


def test_a_layer_that_was_not_read_is_like_those_that_were() -> None:
    """The second layer has not begun; 4 s for 100 MB are learned, so that it takes as long."""
    layers = (Layer("1", 100 * 10**6), Layer("2", 100 * 10**6))
    times = UnpackTimes()
    for _ in range(100):
        times.add(1e9, 4.05, 0.0)
    meter = PullMeter(layers, times)
    meter.describe("1", Contents(10.0, 1.0))
    for second in range(3):
        found = meter.measure({"1": (90 + second) * 10**6}, [], float(second))
    assert found.left is not None
    assert found.left == pytest.approx(8 + 100 + 4.05, rel=0.02)
    meter.describe("1", Contents(40.0, 1.0))
    found = meter.measure({"1": 93 * 10**6}, [], 3.0)
    assert found.left is not None
    assert found.left == pytest.approx(7 + 100 + 16.05, rel=0.02)


def test_the_rate_counts_what_arrives_before_it_is_seen() -> None:
    """Three layers at 2 MB/s: containerd stores each only when 1 MiB of it is there."""
    layers = tuple(Layer(str(n), 20 << 20) for n in range(4))
    meter = PullMeter(layers, UnpackTimes())
    rates = []
    for half in range(12):
        arrived = max(half - 1, 0) * 10**6 // 3 // PIECE * PIECE
        ingests = {str(n): arrived for n in range(3)} | {"3": 0}
        rates.append(meter.measure(ingests, [], half / 2).rate)
    known = [rate for rate in rates if rate]
    assert len(known) >= 7
    assert max(known) < 2.5e6, known


def test_the_pace_is_that_of_the_part_that_is_done() -> None:
    times = UnpackTimes()
    assert times.part(100e6, 50e6) == pytest.approx(0.5)
    assert times.part(0, 1e9) < 1
    for _ in range(40):  # the runtime writes more than was expected
        times.add_written(100e6, 200e6)
    assert times.part(100e6, 50e6) == pytest.approx(0.25, rel=0.01)
    assert pace(10, 0, 0) == pytest.approx(10)
    assert pace(10, 30, 0.9) > 25


def replay(pull: dict[str, Any], times: UnpackTimes, *, known: bool = True) -> list[bool]:
    """Return for each time left of a recorded pull whether it was within 25 % of the truth."""
    layers = tuple(Layer(str(n), size) for n, (size, *_) in enumerate(pull["layers"]))
    meter, right = PullMeter(layers, times), []
    for at, states, written in pull["points"]:
        ingests = {str(n): state for n, state in enumerate(states) if state >= 0}
        stored = [str(n) for n, state in enumerate(states) if state <= STORED]
        meter.unpacked = len(list(takewhile(UNPACKED.__eq__, states)))
        for digest in meter.unknown(ingests, stored) if known else ():
            meter.describe(digest, Contents(*pull["layers"][int(digest)][1:]))
        found = meter.measure(ingests, stored, at, written if known else None)
        left = pull["seconds"] - at
        if at >= 0.1 * pull["seconds"] and found.left is not None:
            right.append(abs(found.left - left) <= 0.25 * left)
    return right


def test_recorded_pulls() -> None:
    """Pulls by containerd 2.1 from a slow registry, which differ in what their layers contain.

    The first were recorded on a machine that unpacked five times slower than with the others. A
    line: layers (size, and the contents by their first bytes) and points (seconds, the bytes of
    each layer or a state below zero, bytes unpacked since the point before).
    """
    pulls = [json.loads(line) for line in RECORDED.read_text().splitlines()]
    slow, fast = ([each for each in pulls if (each["load"] > 6) is busy] for busy in (True, False))

    def part(pulls: list[dict[str, Any]], *, known: bool = True) -> float:
        times = UnpackTimes()
        return fmean(each for pull in pulls for each in replay(pull, times, known=known))

    assert part(slow) >= 0.8
    assert part(fast) >= 0.9
    assert part(slow + fast) >= 0.75  # it learns that the machine is faster now
    # what the layers contain makes the difference
    assert part(slow, known=False) <= 0.6
    assert part(fast, known=False) <= 0.6
