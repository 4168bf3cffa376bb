"""The health of drivers' storage: accepted answers, and writes of the CSINode."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from kubeletpy.kubeapi.errors import Forbidden
from kubeletpy.kubeapi.protocol import CSINODES
from kubeletpy.metrics.registry import Metrics
from kubeletpy.remote.errors import Code
from kubeletpy.remote.generated import csi_pb2 as csi
from kubeletpy.remote.plugin_calls import PluginCallFailed
from kubeletpy.resources.plugins.model import CSI, PluginInfo
from kubeletpy.volumes.csi import messages
from kubeletpy.volumes.csi.host import CsiDrivers, connect_by
from kubeletpy.volumes.csi.objects import changed_storage_health
from kubeletpy.volumes.csi.registration import StorageHealthMonitor
from tests.unit.kubeletpy_up.helpers import SetClock
from tests.unit.volumes.csi.cluster import Cluster

TYPE = csi.StorageHealthErrorType
MODE = csi.VolumeCapability.AccessMode
RPC = csi.NodeServiceCapability.RPC
MOUNT = csi.VolumeCapability.MountVolume()
BLOCK = csi.VolumeCapability.BlockVolume()

Response = csi.NodeGetStorageHealthResponse


def backend(status: Any, reason: str, message: str = "", **capability: Any) -> Any:
    made = Response.StorageBackendHealth(status=status, reason=reason, message=message)
    if capability:
        mode = capability.pop("mode", MODE.SINGLE_NODE_WRITER)
        access = csi.VolumeCapability(access_mode=MODE(mode=mode), **capability)
        made.volume_capability.CopyFrom(access)
    return made


def condition(status: str, reason: str, **more: str) -> Any:
    return {"status": status, "reason": reason, **more}


@pytest.mark.parametrize(
    ("supplied", "expected"),
    [
        ([], []),
        (
            [backend(TYPE.STORAGE_DEGRADED, "Slow", "m"), backend(TYPE.STORAGE_UNREACHABLE, "No")],
            [
                condition("StorageDegraded", "Slow", message="m"),
                condition("StorageUnreachable", "No"),
            ],
        ),
        ([backend(TYPE.UNKNOWN_STORAGE_HEALTH_ERROR_TYPE, "not a reason!"), backend(99, "A")], []),
        (
            [backend(TYPE.STORAGE_DEGRADED, "A", "1"), backend(TYPE.STORAGE_DEGRADED, "A", "2")],
            [condition("StorageDegraded", "A", message="1")],
        ),
        (
            [backend(TYPE.STORAGE_DEGRADED, "A"), backend(TYPE.STORAGE_DEGRADED, "A", mount=MOUNT)],
            [
                condition("StorageDegraded", "A"),
                condition(
                    "StorageDegraded", "A", accessMode="ReadWriteOnce", volumeMode="Filesystem"
                ),
            ],
        ),
    ],
)
def test_conditions_of_an_answer(supplied: Any, expected: Any) -> None:
    assert messages.storage_health(Response(backend_health=supplied)) == expected


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        (MODE.SINGLE_NODE_WRITER, "ReadWriteOnce"),
        (MODE.SINGLE_NODE_READER_ONLY, "ReadWriteOnce"),
        (MODE.SINGLE_NODE_MULTI_WRITER, "ReadWriteOnce"),
        (MODE.SINGLE_NODE_SINGLE_WRITER, "ReadWriteOncePod"),
        (MODE.MULTI_NODE_READER_ONLY, "ReadOnlyMany"),
        (MODE.MULTI_NODE_SINGLE_WRITER, "ReadWriteMany"),
        (MODE.MULTI_NODE_MULTI_WRITER, "ReadWriteMany"),
    ],
)
def test_access_modes(mode: Any, expected: str) -> None:
    supplied = backend(TYPE.STORAGE_DEGRADED, "A", block=BLOCK, mode=mode)
    (found,) = messages.storage_health(Response(backend_health=[supplied]))
    assert (found["accessMode"], found["volumeMode"]) == (expected, "Block")


@pytest.mark.parametrize(
    ("supplied", "text"),
    [
        ([backend(TYPE.STORAGE_DEGRADED, f"r{n}") for n in range(17)], "17 conditions, and 16"),
        ([backend(TYPE.STORAGE_DEGRADED, "")], "'' as the reason of StorageDegraded"),
        ([backend(TYPE.STORAGE_DEGRADED, "no reason!")], "'no reason!' as the reason"),
        ([backend(TYPE.STORAGE_DEGRADED, "x" * 257)], "as the reason"),
        ([backend(TYPE.STORAGE_DEGRADED, "A", mode=MODE.SINGLE_NODE_WRITER)], "an access_type"),
        (
            [backend(TYPE.STORAGE_DEGRADED, "A", mount=MOUNT, mode=MODE.UNKNOWN)],
            "an access_mode that is known",
        ),
    ],
)
def test_answers_that_the_api_refuses_cannot_be_used(supplied: Any, text: str) -> None:
    with pytest.raises(messages.BadCsiAnswer, match=text):
        messages.storage_health(Response(backend_health=supplied))


def test_messages_are_cut() -> None:
    supplied = Response(backend_health=[backend(TYPE.STORAGE_DEGRADED, "A", "é" * 10_000)])
    assert len(messages.storage_health(supplied)[0]["message"].encode()) <= 1024


def timed(at: str, *conditions: Any) -> Any:
    return [{**each, "lastTransitionTime": at} for each in conditions]


def entry(name: str, *conditions: Any) -> Any:
    return {"name": name, "healthConditions": list(conditions)}


SLOW, CUT = condition("StorageDegraded", "Slow"), condition("StorageUnreachable", "NoPath")
OF_BLOCKS = {**SLOW, "accessMode": "ReadWriteOnce", "volumeMode": "Block"}
WAS = entry("d", *timed("1", SLOW))


@pytest.mark.parametrize(
    ("old", "reported", "expected"),
    [
        ([], {}, None),
        ([], {"d": []}, None),
        ([entry("d")], {"d": []}, None),
        ([], {"d": [SLOW]}, [entry("d", *timed("2", SLOW))]),
        ([WAS], {}, None),
        ([WAS], {"d": [SLOW]}, None),
        ([WAS], {"d": [{**SLOW, "message": "another"}]}, None),
        ([WAS], {"d": []}, []),
        ([WAS], {"d": [CUT]}, [entry("d", *timed("2", CUT))]),
        ([WAS], {"d": [CUT, SLOW]}, [entry("d", *timed("2", CUT), *timed("1", SLOW))]),
        ([WAS], {"d": [OF_BLOCKS]}, [entry("d", *timed("2", OF_BLOCKS))]),
        ([WAS], {"e": [CUT]}, [WAS, entry("e", *timed("2", CUT))]),
        ([WAS, entry("e", CUT)], {"e": []}, [WAS]),
        ([entry("d", SLOW)], {"d": [SLOW]}, None),
        ([entry("d", SLOW)], {"d": [SLOW, CUT]}, [entry("d", *timed("2", SLOW, CUT))]),
        (
            [entry("d", {**SLOW, "lastTransitionTime": None})],
            {"d": [SLOW, CUT]},
            [entry("d", *timed("2", SLOW, CUT))],
        ),
    ],
)
def test_only_another_set_of_conditions_is_written(old: Any, reported: Any, expected: Any) -> None:
    assert changed_storage_health(old, reported, "2") == expected


class DriverCalls:
    """A driver's answers."""

    def __init__(self, *, reports: bool) -> None:
        self.reports = reports
        self.answer = Response()
        self.error: PluginCallFailed | None = None

    async def call(
        self, method: str, request: Any, answer: Any, within: float, *, secrets: Any = ()
    ) -> Any:
        if method == "NodeGetCapabilities":
            kinds = [RPC.GET_VOLUME_STATS, *([RPC.GET_STORAGE_HEALTH] if self.reports else ())]
            capabilities = [{"rpc": {"type": each}} for each in kinds]
            return csi.NodeGetCapabilitiesResponse(capabilities=capabilities)
        assert (method, request) == ("NodeGetStorageHealth", csi.NodeGetStorageHealthRequest())
        if self.error is not None:
            raise self.error
        return self.answer

    async def close(self) -> None:
        """Nothing to close."""


class Node:
    """Drivers on a node, its CSINode and its metrics."""

    def __init__(self) -> None:
        self.api = Cluster()
        owner = {"kind": "Node", "name": "n", "uid": "node-uid"}
        self.api.put(CSINODES, "n", metadata={"uid": "c", "ownerReferences": [owner]}, spec={})
        self.metrics = Metrics()
        self.calls: dict[str, DriverCalls] = {}
        self.drivers = CsiDrivers(connect_by(self.metrics.csi, lambda name, _: self.calls[name]))
        self.clock = SetClock()
        self.monitor = StorageHealthMonitor(
            "n",
            lambda: "node-uid",
            self.drivers,
            self.api,
            self.metrics.csi,
            clock=self.clock,
            period=0,
        )

    def register(self, name: str, *, reports: bool = True) -> DriverCalls:
        self.calls[name] = DriverCalls(reports=reports)
        self.drivers.add(self.info(name), (1, 0, 0))
        return self.calls[name]

    def info(self, name: str) -> PluginInfo:
        return PluginInfo(CSI, name, f"/{name}.sock", ("1.0.0",), f"/reg-{name}.sock", (1, 1))

    async def writes(self) -> list[str]:
        """Writes of one round to the API."""
        self.api.calls.clear()
        await self.monitor.round()
        return [call for call in self.api.calls if not call.startswith("get")]

    def reported(self) -> Any:
        return (self.api.get_now(CSINODES, "n").get("status") or {}).get("storageHealth")

    def series(self) -> set[tuple[str, ...]]:
        names = ("driver_name", "status", "reason")
        return {
            tuple(sample.labels[name] for name in names)
            for metric in self.metrics.csi.storage_health.collect()
            for sample in metric.samples
            if sample.value == 1
        }


async def test_the_csi_node_follows_the_answers() -> None:
    node = Node()
    first, second = node.register("d"), node.register("e")
    node.register("silent", reports=False)
    assert await node.writes() == []
    first.answer = Response(backend_health=[backend(TYPE.STORAGE_DEGRADED, "Slow")])
    second.answer = Response(backend_health=[backend(TYPE.STORAGE_UNREACHABLE, "NoPath")])
    assert len(await node.writes()) == 1, "one write for all drivers"
    before = node.reported()
    assert [each["name"] for each in before] == ["d", "e"]
    both = {("d", "StorageDegraded", "Slow"), ("e", "StorageUnreachable", "NoPath")}
    assert node.series() == both
    node.clock.time += 60
    assert await node.writes() == []
    first.error = PluginCallFailed(Code.UNAVAILABLE, "NodeGetStorageHealth", "down")
    second.answer = Response()
    assert len(await node.writes()) == 1
    assert node.reported() == before[:1], "a failed call changes nothing, an empty answer does"
    assert node.series() == {("d", "StorageDegraded", "Slow")}


async def test_a_driver_that_is_unregistered_keeps_its_entry_and_loses_its_series() -> None:
    node = Node()
    calls = node.register("d")
    calls.answer = Response(backend_health=[backend(TYPE.STORAGE_DEGRADED, "Slow")])
    await node.monitor.round()
    before = node.reported()
    node.drivers.remove(node.info("d"))
    assert await node.writes() == []
    assert (node.reported(), node.series()) == (before, set())


async def test_nothing_is_written_to_the_csi_node_of_another_node() -> None:
    node = Node()
    node.api.get_now(CSINODES, "n")["metadata"]["ownerReferences"][0]["uid"] = "before"
    calls = node.register("d")
    calls.answer = Response(backend_health=[backend(TYPE.STORAGE_DEGRADED, "Slow")])
    assert await node.writes() == []


async def test_each_problem_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    node = Node()
    calls = node.register("d")
    calls.answer = Response(backend_health=[backend(TYPE.STORAGE_DEGRADED, "")])
    with caplog.at_level(logging.WARNING):
        await node.monitor.round()
        await node.monitor.round()
        assert len(caplog.records) == 1
        calls.answer = Response(backend_health=[backend(TYPE.STORAGE_DEGRADED, "Slow")])
        node.api.down = Forbidden("csinodes/status", code=403)
        await node.monitor.round()
        await node.monitor.round()
        assert len(caplog.records) == 2
    node.api.down = None
    assert len(await node.writes()) == 1, "a failed write is repeated"
