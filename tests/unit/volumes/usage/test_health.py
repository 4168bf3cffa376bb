"""The health of CSI volumes: stored answers, and when the status of a pod changes."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kubeletpy.metrics.registry import Metrics
from kubeletpy.remote.generated import csi_pb2 as csi
from kubeletpy.status.generate import reported_volume_health
from kubeletpy.volumes.claims.model import (
    FailureOutcome,
    MountedVolume,
    OperationFailed,
    PublishedOnDisk,
)
from kubeletpy.volumes.csi import messages
from kubeletpy.volumes.csi.client import NodeClient
from kubeletpy.volumes.usage import VolumeHealthMonitor
from tests.unit.kubeletpy_up.helpers import SetClock

TYPE = csi.VolumeHealthErrorType


def answer(*entries: tuple[Any, str, str]) -> csi.NodeGetVolumeHealthResponse:
    made = csi.NodeGetVolumeHealthResponse()
    for status, reason, message in entries:
        made.volume_health.health_statuses.add(status=status, reason=reason, message=message)
    return made


def condition(status: str, reason: str, message: str = "") -> Any:
    return {"status": status, "reason": reason, "message": message}


@pytest.mark.parametrize(
    ("supplied", "expected"),
    [
        (answer(), []),
        (
            answer((TYPE.DEGRADED, "Slow", "m"), (TYPE.DATA_LOSS, "Gone", "")),
            [condition("Degraded", "Slow", "m"), condition("DataLoss", "Gone")],
        ),
        (answer((TYPE.INACCESSIBLE, "", "m")), [condition("Inaccessible", "", "m")]),
        (answer((TYPE.UNKNOWN_VOLUME_HEALTH_TYPE, "a", "")), []),
        (answer((99, "a", "")), []),
        (
            answer((TYPE.DEGRADED, "a", "1"), (TYPE.DEGRADED, "a", "2")),
            [condition("Degraded", "a", "1")],
        ),
        (answer((TYPE.DEGRADED, "no reason!", "m")), [condition("Degraded", "", "m")]),
        (answer((TYPE.DEGRADED, "x" * 257, "m")), [condition("Degraded", "", "m")]),
        (answer((TYPE.DEGRADED, "a\n", "m")), [condition("Degraded", "", "m")]),
    ],
)
def test_the_conditions_of_an_answer(supplied: Any, expected: Any) -> None:
    assert messages.volume_health(supplied) == expected


def test_an_answer_without_bounds_is_cut() -> None:
    many = answer(*((TYPE.DEGRADED, f"r{number}", "é" * 10_000) for number in range(1000)))
    found = messages.volume_health(many)
    assert len(found) == 16
    assert all(len(each["message"].encode()) <= 1024 for each in found)


def entry(name: str, at: str, *conditions: Any) -> Any:
    return {"name": name, "healthConditions": list(conditions), "lastTransitionTime": at}


SICK = condition("Degraded", "Slow", "first")


@pytest.mark.parametrize(
    ("old", "reported", "expected"),
    [
        ([], [], []),
        ([], [entry("v", "2")], []),
        ([], [entry("v", "2", SICK)], [entry("v", "2", SICK)]),
        ([entry("v", "1", SICK)], [], [entry("v", "1", SICK)]),
        ([entry("v", "1", SICK)], [entry("v", "2", SICK)], [entry("v", "1", SICK)]),
        (
            [entry("v", "1", SICK)],
            [entry("v", "2", {**SICK, "message": "other"})],
            [entry("v", "1", SICK)],
        ),
        ([entry("v", "1", SICK)], [entry("v", "2")], [entry("v", "2")]),
        (
            [entry("v", "1", SICK), entry("w", "1", SICK)],
            [entry("w", "2", condition("DataLoss", "Slow"))],
            [entry("v", "1", SICK), entry("w", "2", condition("DataLoss", "Slow"))],
        ),
    ],
)
def test_only_another_set_of_conditions_changes_a_status(
    old: Any, reported: Any, expected: Any
) -> None:
    assert reported_volume_health(old, reported) == expected


class Drivers:
    """Volumes, and the next answer of their drivers."""

    def __init__(self) -> None:
        left = PublishedOnDisk("kubernetes.io/csi", "u", "uid", "pv", "/p", driver="d", handle="h")
        self.volumes = [MountedVolume("uid", "v", None, "d", left)]
        self.answer: Any = [SICK]
        self.notified: list[str] = []
        self.clock = SetClock()
        self.monitor = VolumeHealthMonitor(
            lambda: self.volumes, self.health, self.notified.append, self.clock, period=0
        )

    async def health(self, left: PublishedOnDisk) -> Any:
        await asyncio.sleep(0)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


async def test_pods_are_notified_of_changed_answers_only() -> None:
    node = Drivers()
    await node.monitor.round()
    assert node.notified == ["uid"]
    (reported,) = node.monitor.of_pod("uid")
    assert (reported["name"], reported["healthConditions"]) == ("v", [SICK])
    node.clock.time += 60
    await node.monitor.round()
    node.answer = OperationFailed(FailureOutcome.TRANSIENT, "no answer")
    await node.monitor.round()
    assert node.notified == ["uid"]
    assert node.monitor.of_pod("uid") == [reported], "a failed call changes nothing"
    node.answer = []
    await node.monitor.round()
    assert node.notified == ["uid", "uid"]
    assert node.monitor.of_pod("uid")[0]["healthConditions"] == []
    node.volumes = []
    await node.monitor.round()
    assert node.monitor.of_pod("uid") == []


async def test_a_driver_without_the_capability_reports_nothing() -> None:
    node = Drivers()
    node.answer = None
    await node.monitor.round()
    assert (node.notified, node.monitor.of_pod("uid")) == ([], [])


class Calls:
    """A driver with some capabilities, and the requests that it got."""

    def __init__(self, *capabilities: Any) -> None:
        self.capabilities = capabilities
        self.requested: list[Any] = []

    async def call(
        self, method: str, request: Any, answer: Any, within: float, *, secrets: Any = ()
    ) -> Any:
        if method == "NodeGetCapabilities":
            return csi.NodeGetCapabilitiesResponse(
                capabilities=[{"rpc": {"type": each}} for each in self.capabilities]
            )
        self.requested.append(request)
        return answer_of_driver()

    async def close(self) -> None:
        """Nothing to close."""


def answer_of_driver() -> csi.NodeGetVolumeHealthResponse:
    return answer((TYPE.DEGRADED, "Slow", "first"))


RPC = csi.NodeServiceCapability.RPC


@pytest.mark.parametrize(
    ("capabilities", "staging", "found"),
    [
        ((RPC.GET_VOLUME_STATS,), None, None),
        ((RPC.GET_VOLUME_HEALTH,), "", [SICK]),
        ((RPC.GET_VOLUME_HEALTH, RPC.STAGE_UNSTAGE_VOLUME), "/s", [SICK]),
    ],
)
async def test_a_driver_is_called_according_to_its_capabilities(
    capabilities: tuple[Any, ...], staging: str | None, found: Any
) -> None:
    calls = Calls(*capabilities)
    client = NodeClient("d", "/x.sock", Metrics().csi, calls)
    assert await client.health("h", "/p", "/s") == found
    desired = csi.NodeGetVolumeHealthRequest(
        volume_id="h", volume_publish_path="/p", staging_target_path=staging or ""
    )
    assert calls.requested == ([] if staging is None else [desired])
