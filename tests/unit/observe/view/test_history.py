"""CPU and memory over time: rates of counters, bounded, for running containers only."""

from __future__ import annotations

import pytest

from kubeletpy.observe.view.feed import GAP_S, MAX_SAMPLES, History
from tests.kit.view import used


@pytest.mark.parametrize(
    ("first", "second", "samples"),
    [
        (used(1.0, 10.0), used(3.0, 10.5), [[1.0, None, 1024], [3.0, 0.25, 1024]]),
        (used(1.0, 10.0), used(3.0, 10.0), [[1.0, None, 1024], [3.0, 0.0, 1024]]),
        (used(1.0, 10.0), used(3.0, 0.1), [[1.0, None, 1024], [3.0, None, 1024]]),  # restarted
        (used(1.0, 10.0), used(1.0, 11.0), [[1.0, None, 1024]]),  # the same reading again
        (used(2.0, 10.0), used(1.0, 11.0), [[2.0, None, 1024]]),  # the clock was set back
        (used(1.0, None), used(2.0, 1.0), [[1.0, None, 1024], [2.0, None, 1024]]),
        (used(1.0, 1.0), used(2.0, None, None), [[1.0, None, 1024], [2.0, None, None]]),
        (used(1.0, 1.0), used(1.0 + GAP_S, 1.0), [[1.0, None, 1024], [1.0 + GAP_S, 0.0, 1024]]),
        (used(1.0, 1.0), used(2.0 + GAP_S, 1.0), [[2.0 + GAP_S, None, 1024]]),
        (used(1.0, 1.0), {"pods": []}, None),
        ({}, used(1.0, 1.0), [[1.0, None, 1024]]),
    ],
)
def test_samples(first: object, second: object, samples: object) -> None:
    history = History()
    for answer in (first, second):
        history.add(answer)  # type: ignore[arg-type]
    found = [each["samples"] for each in history.containers("uid-web")]
    assert found == ([] if samples is None else [samples])


def test_limits_are_the_latest() -> None:
    history = History()
    history.add(used(1.0, 1.0, memory_limit=32))
    history.add(used(1.0, 1.0, memory_limit=64))
    (found,) = history.containers("uid-web")
    assert (found["name"], found["memory_limit"]) == ("main", 64)
    assert history.containers("other") == []


def test_a_container_without_numbers_has_no_sample() -> None:
    history = History()
    answer = used(1.0, 1.0)
    answer["pods"][0]["containers"][0].update(at=None, cpu=None, memory=None)
    history.add(answer)
    assert history.containers("uid-web")[0]["samples"] == []
    assert history.now() == {"uid-web": (None, None)}


def test_a_pod_is_the_sum_of_its_containers() -> None:
    history = History()
    for at, cpu in ((1.0, 0.0), (2.0, 0.25)):
        answer = used(at, cpu)
        containers = answer["pods"][0]["containers"]
        containers += [{**containers[0], "name": "b"}, {**containers[0], "name": "c", "cpu": None}]
        history.add(answer)
    assert history.now() == {"uid-web": (0.5, 3 * 1024)}


def test_it_is_bounded() -> None:
    history = History()
    for second in range(MAX_SAMPLES + 9):
        history.add(used(float(second), float(second)))
    samples = history.containers("uid-web")[0]["samples"]
    assert (len(samples), samples[0][0]) == (MAX_SAMPLES, 9.0)
