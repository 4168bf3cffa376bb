"""What the kernel is told about the memory of pods and containers."""

from __future__ import annotations

import pytest

from kubeletpy.pods.memory_qos import (
    MemoryQoS,
    Protection,
    container_files,
    of_request,
    throttled_from,
)
from kubeletpy.pods.qos import QoSClass

GI = 1 << 30
TIERED, NONE = MemoryQoS(tiered=True, allocatable=8 * GI), MemoryQoS(allocatable=8 * GI)


@pytest.mark.parametrize(
    ("qos", "quality", "request_", "wanted"),
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
def test_pods(qos: MemoryQoS | None, quality: QoSClass, request_: int, wanted: Protection) -> None:
    assert of_request(qos, quality, request_) == wanted


@pytest.mark.parametrize(
    ("factor", "allocatable", "request_", "limit", "high"),
    [
        # request + factor * (limit - request), in whole pages
        (0.9, 0, GI, 2 * GI, 2040107008),
        (0.5, 0, 4096, 12288 + 4095, 8192),
        (1.0, 0, 0, GI, GI),
        # no limit: what pods may have on the node
        (0.9, 10 * GI, 0, 0, 0),
        (0.9, 10 * GI, GI, 0, 9771048960),
        (0.9, 0, GI, 0, 0),
        # the request is the limit, or there is no room above it
        (0.9, 10 * GI, GI, GI, 0),
        (0.9, GI, 2 * GI, 0, 0),
        (0.001, 0, GI, GI + 4096, 0),
    ],
)
def test_throttling(factor: float, allocatable: int, request_: int, limit: int, high: int) -> None:
    qos = MemoryQoS(throttling_factor=factor, allocatable=allocatable)
    assert throttled_from(qos, request_, limit) == high


@pytest.mark.parametrize(
    ("qos", "quality", "request_", "limit", "files"),
    [
        (None, QoSClass.BURSTABLE, GI, 2 * GI, {}),
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
        (TIERED, QoSClass.BURSTABLE, 0, 0, {"memory.min": "0", "memory.low": "0"}),
        (NONE, QoSClass.GUARANTEED, GI, GI, {"memory.min": "0", "memory.low": "0"}),
    ],
)
def test_containers(
    qos: MemoryQoS | None, quality: QoSClass, request_: int, limit: int, files: dict[str, str]
) -> None:
    assert container_files(qos, quality, request_, limit) == files
