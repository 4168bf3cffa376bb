"""Tables: names, versions, CSIDriver objects, requests, answers and error classes."""

from __future__ import annotations

import hashlib
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
from kubeletpy.volumes.claims.model import ExpansionProblem, FailureOutcome, VolumeStats
from kubeletpy.volumes.claims.resolve import attachment_name
from kubeletpy.volumes.csi import messages, objects
from kubeletpy.volumes.csi.host import CsiDrivers, connect_by
from kubeletpy.volumes.csi.messages import BadCsiAnswer, CsiVolume, NodeInfo, VolumeAccess
from kubeletpy.volumes.csi.objects import (
    ABSENT,
    CsiPaths,
    DriverObject,
    GroupPolicy,
    TokenRequest,
    Version,
    changed_storage_health,
    gives_to_group,
    highest_supported,
    inline_handle,
    lifecycle_problem,
)
from kubeletpy.volumes.csi.registration import StorageHealthMonitor
from kubeletpy.volumes.files.paths import UnsafePath
from tests.kit.clocks import SetClock
from tests.kit.costs import calls
from tests.kit.volumes import Cluster

PATHS = CsiPaths("/k")


def test_names() -> None:
    key = hashlib.sha256(b"h").hexdigest()
    assert attachment_name("h", "d", "n") == "csi-" + hashlib.sha256(b"hdn").hexdigest()
    assert inline_handle("u", "v") == "csi-" + hashlib.sha256(b"uv").hexdigest()
    assert PATHS.filesystem("u", "pv").target == "/k/pods/u/volumes/kubernetes.io~csi/pv/mount"
    assert (
        PATHS.filesystem("u", "pv").data == "/k/pods/u/volumes/kubernetes.io~csi/pv/vol_data.json"
    )
    assert PATHS.staging("d", "h").target == f"/k/plugins/kubernetes.io/csi/d/{key}/globalmount"
    assert PATHS.staging("d", "h").data == f"/k/plugins/kubernetes.io/csi/d/{key}/vol_data.json"
    block, top = PATHS.block("pv"), "/k/plugins/kubernetes.io/csi/volumeDevices"
    assert block.data == f"{top}/pv/data/vol_data.json"
    assert block.map("u") == f"{top}/pv/dev/u"
    assert block.staging == f"{top}/staging/pv"
    assert block.publish("u") == f"{top}/publish/pv/u"
    assert PATHS.block_link("u", "pv") == "/k/pods/u/volumeDevices/kubernetes.io~csi/pv"


@pytest.mark.parametrize("name", ["", "..", ".", "a\0b", "x" * 256])
def test_names_that_lead_elsewhere(name: str) -> None:
    with pytest.raises(UnsafePath):
        PATHS.staging(name, "h")
    with pytest.raises(UnsafePath):
        PATHS.filesystem("u", name)


def test_a_slash_in_a_name_makes_no_directory() -> None:
    assert PATHS.filesystem("u", "a/../b").directory.endswith("/a~..~b")


@pytest.mark.parametrize(
    ("versions", "highest"),
    [
        (["1.0.0"], (1, 0, 0)),
        (["0.3.0", "1.2.0", "1.10.0"], (1, 10, 0)),
        (["v1.1.0-rc1"], (1, 1, 0)),
        (["2.0.0", "1.0.0"], (1, 0, 0)),
        (["0.3.0"], None),
        (["2.0.0"], None),
        (["one", "", "1", "1." + "9" * 5000], None),
        ([], None),
    ],
)
def test_versions(versions: list[str], highest: Version | None) -> None:
    assert highest_supported(versions) == highest


READ_WRITE_ONCE = GroupPolicy.READ_WRITE_ONCE_WITH_FS_TYPE


@pytest.mark.parametrize(
    ("spec", "rules"),
    [
        (None, ABSENT),
        ({}, DriverObject(group_policy=None)),
        ({"attachRequired": False, "fsGroupPolicy": "None"},
         DriverObject(attach_required=False, group_policy=GroupPolicy.NONE)),
        ({"podInfoOnMount": True, "requiresRepublish": True, "seLinuxMount": True,
          "fsGroupPolicy": "File", "volumeLifecycleModes": ["Ephemeral", 3]},
         DriverObject(pod_info=True, republish=True, selinux_mount=True,
                      group_policy=GroupPolicy.FILE, lifecycles=frozenset({"Ephemeral"}))),
        ({"fsGroupPolicy": "ReadWriteOnceWithFSType", "serviceAccountTokenInSecrets": True,
          "tokenRequests": [{"audience": "a", "expirationSeconds": 700}, {}, "nonsense"]},
         DriverObject(tokens_in_secrets=True,
                      tokens=(TokenRequest("a", 700), TokenRequest("", 3600)))),
        ({"fsGroupPolicy": "ReadWriteOnceWithFSType", "nodeAllocatableUpdatePeriodSeconds": 3},
         DriverObject(allocatable_period=10.0)),
        ({"fsGroupPolicy": ["x"]}, DriverObject(group_policy=None)),
    ],
)  # fmt: skip
def test_driver_objects(spec: Any, rules: DriverObject) -> None:
    assert objects.read(None if spec is None else {"spec": spec}) == rules


@pytest.mark.parametrize(
    ("policy", "fs_type", "inline", "modes", "gives"),
    [
        (GroupPolicy.NONE, "ext4", False, ("ReadWriteOnce",), False),
        (GroupPolicy.FILE, "", False, ("ReadWriteMany",), True),
        (READ_WRITE_ONCE, "ext4", False, ("ReadWriteOnce",), True),
        (READ_WRITE_ONCE, "ext4", False, ("ReadWriteMany", "ReadWriteOncePod"), True),
        (READ_WRITE_ONCE, "ext4", False, ("ReadWriteMany",), False),
        (READ_WRITE_ONCE, "", False, ("ReadWriteOnce",), False),
        (READ_WRITE_ONCE, "ext4", True, (), True),
        (READ_WRITE_ONCE, "", True, (), False),
    ],
)
def test_volumes_whose_files_change_group(
    policy: GroupPolicy, fs_type: str, inline: bool, modes: tuple[str, ...], gives: bool
) -> None:
    assert gives_to_group(policy, fs_type=fs_type, inline=inline, access_modes=modes) is gives


def test_lifecycles() -> None:
    assert lifecycle_problem("d", ABSENT, inline=False) == ""
    assert "'Ephemeral' not supported by driver d" in lifecycle_problem("d", ABSENT, inline=True)
    both = DriverObject(lifecycles=frozenset({"Ephemeral"}))
    assert lifecycle_problem("d", both, inline=True) == ""
    assert "'Persistent' not supported" in lifecycle_problem("d", both, inline=False)


@pytest.mark.parametrize(
    ("mode", "single", "multi"),
    [
        ("ReadWriteOnce", "SINGLE_NODE_WRITER", "SINGLE_NODE_MULTI_WRITER"),
        ("ReadWriteOncePod", "SINGLE_NODE_WRITER", "SINGLE_NODE_SINGLE_WRITER"),
        ("ReadOnlyMany", "MULTI_NODE_READER_ONLY", "MULTI_NODE_READER_ONLY"),
        ("ReadWriteMany", "MULTI_NODE_MULTI_WRITER", "MULTI_NODE_MULTI_WRITER"),
    ],
)
def test_access_modes(mode: str, single: str, multi: str) -> None:
    names = csi.VolumeCapability.AccessMode.Mode.Name
    assert names(messages.access_mode(mode, multi_writer=False)) == single
    assert names(messages.access_mode(mode, multi_writer=True)) == multi
    with pytest.raises(ValueError, match="unknown"):
        messages.access_mode("Sometimes", multi_writer=False)


VOLUME = CsiVolume(
    "h",
    VolumeAccess("ReadWriteOnce", fs_type="xfs", flags=("noatime",), group=7),
    publish_context={"device": "x"},
    context={"a": "1"},
    secrets={"k": "s"},
)


def test_requests() -> None:
    desired = csi.VolumeCapability(
        mount=csi.VolumeCapability.MountVolume(
            fs_type="xfs", mount_flags=["noatime"], volume_mount_group="7"
        ),
        access_mode=csi.VolumeCapability.AccessMode(mode="SINGLE_NODE_WRITER"),
    )
    both = {
        "volume_id": "h",
        "publish_context": {"device": "x"},
        "volume_capability": desired,
        "secrets": {"k": "s"},
        "volume_context": {"a": "1"},
        "staging_target_path": "/stage",
    }
    assert messages.stage(VOLUME, "/stage", multi_writer=False) == csi.NodeStageVolumeRequest(
        **both  # type: ignore[arg-type]
    )
    assert messages.publish(
        VOLUME, "/stage", "/target", read_only=True, multi_writer=False
    ) == csi.NodePublishVolumeRequest(**both, target_path="/target", readonly=True)  # type: ignore[arg-type]
    assert messages.expand(
        VOLUME, "/target", "/stage", 9, multi_writer=False
    ) == csi.NodeExpandVolumeRequest(
        volume_id="h",
        volume_path="/target",
        staging_target_path="/stage",
        capacity_range=csi.CapacityRange(required_bytes=9),
        volume_capability=desired,
        secrets={"k": "s"},
    )


def test_a_device_has_no_file_system() -> None:
    made = messages.capability(
        VolumeAccess("ReadWriteMany", block=True, fs_type="x"), multi_writer=True
    )
    assert made.WhichOneof("access_type") == "block"


@pytest.mark.parametrize(("group", "stated"), [(None, ""), (0, "0"), (7, "7")])
def test_a_driver_gets_the_group_of_a_mount(group: int | None, stated: str) -> None:
    made = messages.capability(VolumeAccess("ReadWriteMany", group=group), multi_writer=True)
    assert made.mount.volume_mount_group == stated


UNCERTAIN = {"CANCELLED", "DEADLINE_EXCEEDED", "UNAVAILABLE", "RESOURCE_EXHAUSTED", "ABORTED"}


@pytest.mark.parametrize("code", list(Code))
def test_error_classes(code: Code) -> None:
    expected = FailureOutcome.UNCERTAIN if code.value in UNCERTAIN else FailureOutcome.FINAL
    assert messages.outcome_of(code, answered=True) is expected
    assert messages.outcome_of(code, answered=False) is FailureOutcome.UNCERTAIN
    infeasible = code.value in {"INVALID_ARGUMENT", "OUT_OF_RANGE", "NOT_FOUND"}
    problem = (
        ExpansionProblem.REFUSED if expected is FailureOutcome.FINAL else ExpansionProblem.OTHER
    )
    if infeasible:
        problem = ExpansionProblem.INFEASIBLE
    if code is Code.FAILED_PRECONDITION:
        problem = ExpansionProblem.IN_USE
    assert messages.expansion_problem(code, answered=True) is problem
    assert messages.expansion_problem(code, answered=False) is ExpansionProblem.OTHER


@pytest.mark.parametrize(
    ("notified", "read"),
    [
        ({"node_id": "n"}, NodeInfo("n")),
        ({"node_id": "n", "max_volumes_per_node": 1}, NodeInfo("n", 1)),
        ({"node_id": "n", "max_volumes_per_node": 3}, NodeInfo("n", 3)),
        (
            {"node_id": "n", "max_volumes_per_node": 1 << 40},
            NodeInfo(
                "n",
                2**31 - 1,
                odd="max_volumes_per_node is 1099511627776: 2147483647 is reported, the largest "
                "possible",
            ),
        ),
        (
            {"node_id": "n", "max_volumes_per_node": -5},
            NodeInfo(
                "n",
                odd="max_volumes_per_node is -5, below zero: it is reported as no limit, so that "
                "more volumes may be scheduled to this node than the driver can attach",
            ),
        ),
        (
            {"node_id": "n", "accessible_topology": csi.Topology(segments={"a.b/c": ""})},
            NodeInfo("n", topology={"a.b/c": ""}),
        ),
        (
            {"node_id": "n", "accessible_topology": csi.Topology(segments={"z": "1"})},
            NodeInfo("n", topology={"z": "1"}),
        ),
    ],
)
def test_node_info(notified: dict[str, Any], read: NodeInfo) -> None:
    assert messages.node_info(csi.NodeGetInfoResponse(**notified)) == read


@pytest.mark.parametrize(
    "notified",
    [
        {},
        {"node_id": "x" * 257},
        *(
            {"node_id": "n", "accessible_topology": csi.Topology(segments={key: value})}
            for key, value in (
                ("", "x"),
                ("-a", "x"),
                ("a b", "x"),
                ("/a", "x"),
                ("A/b", "x"),
                ("a/b/c", "x"),
                (f"{'x' * 254}/a", "x"),
                ("x" * 64, "x"),
                ("a", "x" * 64),
                ("a", "x y"),
                ("a", "é"),
                ("a", "x\n"),
            )
        ),
        {"node_id": "a\nb"},
        {
            "node_id": "n",
            "accessible_topology": csi.Topology(segments={str(n): "" for n in range(65)}),
        },
    ],
)
def test_node_info_that_cannot_be_used(notified: dict[str, Any]) -> None:
    with pytest.raises(BadCsiAnswer):
        messages.node_info(csi.NodeGetInfoResponse(**notified))


def test_a_segment_that_cannot_be_a_label_is_named() -> None:
    segments = csi.Topology(segments={"topology.x/zone": "a b"})
    with pytest.raises(BadCsiAnswer, match=r"has 'a b' for 'topology\.x/zone'.*cannot be labeled"):
        messages.node_info(csi.NodeGetInfoResponse(node_id="n", accessible_topology=segments))


def test_very_long_lists_are_read_no_further_than_they_matter() -> None:
    """A megabyte of entries would block the event loop for 0.2 s."""
    rpc = csi.NodeServiceCapability.RPC
    stage = csi.NodeServiceCapability(rpc=rpc(type=rpc.STAGE_UNSTAGE_VOLUME))
    late = csi.NodeServiceCapability(rpc=rpc(type=rpc.EXPAND_VOLUME))
    many = csi.NodeGetCapabilitiesResponse(capabilities=[stage] * 256 + [late] * 150_000)
    usage = csi.NodeGetVolumeStatsResponse(usage=[BYTES] * 16 + [INODES] * 150_000)
    assert messages.capabilities(many) == {rpc.STAGE_UNSTAGE_VOLUME}
    assert messages.volume_stats(usage, condition=False) == VolumeStats(10, 4, 6)
    assert calls(lambda: messages.capabilities(many)) < 620
    assert calls(lambda: messages.volume_stats(usage, condition=False)) < 620


BYTES = csi.VolumeUsage(unit="BYTES", total=10, used=4, available=6)
INODES = csi.VolumeUsage(unit="INODES", total=5, used=2, available=3)
SICK = csi.VolumeCondition(abnormal=True, message="sick")


def test_stats() -> None:
    both = csi.NodeGetVolumeStatsResponse(
        usage=[BYTES, INODES, csi.VolumeUsage()], volume_condition=SICK
    )
    numbers = (10, 4, 6, 5, 2, 3)
    assert messages.volume_stats(both, condition=False) == VolumeStats(*numbers)
    assert messages.volume_stats(both, condition=True) == VolumeStats(*numbers, True, "sick")
    sick = csi.NodeGetVolumeStatsResponse(volume_condition=SICK)
    assert messages.volume_stats(sick, condition=True).message == "sick"
    silent = csi.NodeGetVolumeStatsResponse(usage=[BYTES])
    assert messages.volume_stats(silent, condition=True) == VolumeStats(10, 4, 6)
    wordy = csi.VolumeCondition(abnormal=True, message="x" * 1024 + "y")
    long = csi.NodeGetVolumeStatsResponse(volume_condition=wordy)
    assert messages.volume_stats(long, condition=True).message == "x" * 1024
    with pytest.raises(BadCsiAnswer, match="no usage"):
        messages.volume_stats(sick, condition=False)
    odd = csi.NodeGetVolumeStatsResponse(usage=[csi.VolumeUsage(unit="BYTES", used=-1)])
    with pytest.raises(BadCsiAnswer, match=r"below zero \(used -1\)"):
        messages.volume_stats(odd, condition=False)


def test_capabilities_of_another_kind_are_passed_over() -> None:
    rpc = csi.NodeServiceCapability.RPC
    answer = csi.NodeGetCapabilitiesResponse(
        capabilities=[
            csi.NodeServiceCapability(),
            csi.NodeServiceCapability(rpc=rpc(type=rpc.EXPAND_VOLUME)),
        ]
    )
    assert messages.capabilities(answer) == {rpc.EXPAND_VOLUME}


# The health of drivers' storage: accepted answers, and writes of the CSINode.

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
def test_storage_health_access_modes(mode: Any, expected: str) -> None:
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
