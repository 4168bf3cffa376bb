"""The short form of CPU and memory usage."""

from __future__ import annotations

from typing import Any

import pytest

from kubeletpy.node.stats.scrapes import brief
from kubeletpy.node.stats.usage import (
    CgroupUsage,
    GroupKind,
    GroupStats,
    NodeReading,
    PodReading,
    PodRef,
    Reading,
)

NODE = NodeReading(CgroupUsage(GroupKind.NODE, None))
POD = CgroupUsage(GroupKind.POD, None)
REF = PodRef("uid", "web", "default")


def container(stats: GroupStats | None) -> Any:
    groups = (CgroupUsage(GroupKind.CONTAINER, stats, name="main"),)
    reading = Reading(5_000_000_000, NODE, (PodReading(REF, POD, None, groups),), "why")
    stated = brief(reading)
    assert (stated["at"], stated["problem"], [pod["uid"] for pod in stated["pods"]]) == (
        *(5.0, "why"),
        ["uid"],
    )
    (found,) = stated["pods"][0]["containers"]
    return found


def test_everything() -> None:
    stats = GroupStats(
        at=4_000_000_000, cpu_ns=1_500_000_000, memory=20, working_set=15, limit=64,
    )  # fmt: skip
    assert container(stats) == {
        "name": "main",
        "at": 4.0,
        "cpu": 1.5,
        "memory": 15,
        "memory_limit": 64,
    }


@pytest.mark.parametrize(
    ("stats", "field", "value"),
    [
        (GroupStats(memory=20), "memory", 20),
        (GroupStats(memory=20, working_set=0), "memory", 0),
        (GroupStats(memory=20), "memory_limit", None),
        (GroupStats(memory=20), "at", None),
        (GroupStats(memory=20), "cpu", None),
        (GroupStats(cpu_ns=0), "cpu", 0.0),
        (None, "cpu", None),
        (None, "name", "main"),
    ],
)
def test_unknown_values_are_null(stats: GroupStats | None, field: str, value: object) -> None:
    assert container(stats)[field] == value
