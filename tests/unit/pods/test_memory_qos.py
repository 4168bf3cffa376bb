"""Memory settings in the cgroups of pods and containers."""

from __future__ import annotations

import pytest

from kubeletpy.pods.resources import (
    MemoryQoS,
    Protection,
    QoSClass,
    container_files,
    livelock_risk,
    memory_protection,
    throttled_from,
)

GI = 1 << 30
TIERED, NONE = MemoryQoS(tiered=True, allocatable=8 * GI), MemoryQoS(allocatable=8 * GI)


@pytest.mark.parametrize(
    ("qos", "quality", "request_", "desired"),
    [
        (TIERED, QoSClass.GUARANTEED, GI, Protection(minimum=GI)),
        (TIERED, QoSClass.BURSTABLE, GI, Protection(low=GI)),
        (TIERED, QoSClass.BURSTABLE, 0, Protection()),
        (TIERED, QoSClass.BURSTABLE, 1, Protection(low=1)),
        (TIERED, QoSClass.BEST_EFFORT, 0, Protection()),
        (NONE, QoSClass.GUARANTEED, GI, Protection()),
        (None, QoSClass.GUARANTEED, GI, Protection()),
    ],
)
def test_pods(qos: MemoryQoS | None, quality: QoSClass, request_: int, desired: Protection) -> None:
    assert memory_protection(qos, quality, request_) == desired


@pytest.mark.parametrize(
    ("factor", "allocatable", "request_", "limit", "high"),
    [
        # request + factor * (limit - request), in whole pages
        (0.9, 0, GI, 2 * GI, 2040107008),
        (0.5, 0, 4096, 12288 + 4095, 8192),
        (1.0, 0, 0, GI, GI),
        # no limit: what pods may have on the node
        (0.9, 10 * GI, 0, 0, 9663676416),
        (0.9, 10 * GI, GI, 0, 9771048960),
        (0.9, 0, GI, 0, 0),
        # no factor
        (None, 10 * GI, GI, 2 * GI, 0),
        # the request is the limit, or there is nothing between them
        (0.9, 10 * GI, GI, GI, 0),
        (0.9, GI, 2 * GI, 0, 0),
        (0.001, 0, GI, GI + 4096, 0),
    ],
)
def test_throttling(
    factor: float | None, allocatable: int, request_: int, limit: int, high: int
) -> None:
    qos = MemoryQoS(throttling_factor=factor, allocatable=allocatable)
    files = container_files(qos, QoSClass.BURSTABLE, request_, limit)
    assert files.get("memory.high", "0") == str(high)
    assert throttled_from(qos, request_, limit or allocatable) == high


def test_the_pod_throttles_containers_without_a_limit_of_their_own() -> None:
    def high(limit: int, pod_limit: int) -> str | None:
        files = container_files(NONE, QoSClass.BURSTABLE, GI, limit, pod_limit=pod_limit)
        return files.get("memory.high")

    assert (high(0, GI), high(0, 0)) == (None, "7838314496")
    assert high(2 * GI, 4 * GI) == high(2 * GI, 0) == "2040107008"


@pytest.mark.parametrize(
    ("factor", "kernel", "risky"),
    [
        (0.9, "5.8.18-1-amd64", True),
        (0.9, "4.19.0", True),
        (0.9, "5.9.0", False),
        (0.9, "6.1.0-13-amd64", False),
        (0.9, "", False),
        (None, "5.4.0", False),
    ],
)
def test_kernels_that_may_hang_at_the_threshold(
    factor: float | None, kernel: str, *, risky: bool
) -> None:
    assert livelock_risk(MemoryQoS(throttling_factor=factor), kernel) is risky
    assert not livelock_risk(None, kernel)


@pytest.mark.parametrize(
    ("qos", "quality", "request_", "limit", "files"),
    [
        (None, QoSClass.BURSTABLE, GI, 2 * GI, {"memory.high": "max"}),
        (TIERED, QoSClass.GUARANTEED, GI, GI, {"memory.min": str(GI)}),
        (
            TIERED,
            QoSClass.BURSTABLE,
            GI,
            2 * GI,
            {"memory.low": str(GI), "memory.high": "2040107008"},
        ),
        (
            NONE,
            QoSClass.BURSTABLE,
            GI,
            2 * GI,
            {"memory.min": "0", "memory.low": "0", "memory.high": "2040107008"},
        ),
        *(
            (
                TIERED,
                quality,
                0,
                0,
                {"memory.min": "0", "memory.low": "0", "memory.high": "7730937856"},
            )
            for quality in (QoSClass.BURSTABLE, QoSClass.BEST_EFFORT)
        ),
        (NONE, QoSClass.GUARANTEED, GI, GI, {"memory.min": "0", "memory.low": "0"}),
    ],
)
def test_containers(
    qos: MemoryQoS | None, quality: QoSClass, request_: int, limit: int, files: dict[str, str]
) -> None:
    assert container_files(qos, quality, request_, limit) == files
