"""Which connection takes a stream, and what a server may send."""

from __future__ import annotations

import pytest

from kubeletpy.kubeapi import http2_limits as limits
from kubeletpy.kubeapi.http2_limits import FloodGuard, Load, Otherwise, place, watch_capacity
from kubeletpy.kubeapi.watch_state import MAX_WATCHES

CONNECT, WAIT = Otherwise.CONNECT, Otherwise.WAIT
ENDED = Load(False, 50, 100)


def load(streams: int, allowed: int = 100) -> Load:
    return Load(True, streams, allowed)


PLACES = [
    # loads, a request's connection, a watch's
    ([], CONNECT, CONNECT),
    ([load(0)], 0, 0),
    ([load(74)], 0, 0),
    ([load(75)], 0, CONNECT),
    ([load(99)], 0, CONNECT),
    ([load(100)], CONNECT, CONNECT),
    ([load(219, 250)], 0, 0),
    ([load(220, 250)], 0, CONNECT),
    # streams reserved for requests need not be on one connection, nor on each
    ([load(100), load(69)], 1, 1),
    ([load(100), load(70)], 1, CONNECT),
    # a server may allow fewer streams than are open
    ([load(102), load(69)], 1, 1),
    ([load(85), load(84)], 0, 0),
    ([load(85), load(85)], 0, CONNECT),
    ([ENDED], CONNECT, CONNECT),
    ([ENDED, load(3)], 1, 1),
    ([load(80), load(3)], 0, 0),
    ([load(1), load(0)], 0, 0),
    ([load(2, 2)] * 3, CONNECT, CONNECT),
    ([load(0, 0)], CONNECT, CONNECT),
    ([load(1, 1)] * 15, CONNECT, CONNECT),
    ([load(1, 1)] * 16, WAIT, WAIT),
    ([load(99)] * 16, 0, 0),
    ([load(99)] * 15 + [ENDED] * 3, 0, CONNECT),
    ([load(100)] * 16 + [ENDED], WAIT, WAIT),
]


@pytest.mark.parametrize(("loads", "request_", "watch"), PLACES)
def test_connections_of_requests_and_watches(
    loads: list[Load], request_: int | Otherwise, watch: int | Otherwise
) -> None:
    assert place(loads, lasting=False) == request_
    assert place(loads, lasting=True) == watch


@pytest.mark.parametrize(
    ("allowed", "watches"),
    [
        (100, 1538),  # kube-apiserver: 500 pods with three objects each
        (250, 3938),
        (1000, 15938),
        (10, 98),
        (2, 0),
        (0, 0),
    ],
)
def test_the_number_of_watches_per_connection(allowed: int, watches: int) -> None:
    assert watch_capacity(allowed) == watches


def test_the_guaranteed_watches_leave_streams_for_requests() -> None:
    reserved, loads = limits.RESERVED_WATCHES, list[Load]()
    for _ in range(MAX_WATCHES + reserved):
        where = place(loads, lasting=True)
        if where is CONNECT:
            loads.append(load(1))
        else:
            assert isinstance(where, int)
            loads[where] = load(loads[where].streams + 1)
    assert len(loads) == limits.MAX_CONNECTIONS
    assert sum(100 - load.streams for load in loads) >= limits.RESERVED_STREAMS


def test_control_frames_are_a_bucket() -> None:
    guard = FloodGuard(0.0)
    assert not guard.exceeded(limits.CONTROL_BURST, 0.0)
    assert guard.exceeded(1, 0.0)
    guard = FloodGuard(0.0)
    assert not guard.exceeded(limits.CONTROL_BURST, 0.0)
    assert not guard.exceeded(0, 0.0)
    assert not guard.exceeded(int(limits.CONTROL_PER_S), 1.0)
    assert guard.exceeded(1, 1.0)
    guard = FloodGuard(0.0)
    assert not guard.exceeded(limits.CONTROL_BURST, 3600.0), "time adds no more than the burst"
    assert guard.exceeded(1, 3600.0)
    guard = FloodGuard(0.0)
    guard.opened()
    assert not guard.exceeded(limits.CONTROL_BURST + limits.CONTROL_PER_STREAM, 0.0)
    assert guard.exceeded(1, 0.0)
