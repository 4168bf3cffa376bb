"""Unknown values of node, pods, containers and disks are left out of the output."""

from __future__ import annotations

from typing import Any

import pytest

from kubeletpy.base.api.types import JSON
from kubeletpy.base.structs import replace
from kubeletpy.node.stats import scrapes
from kubeletpy.node.stats.summary import ephemeral_storage, pod_stats, rate_key, rated, summary
from kubeletpy.node.stats.usage import (
    CgroupUsage,
    Disks,
    GroupKind,
    GroupStats,
    Network,
    NodeReading,
    PodDisk,
    PodReading,
    Psi,
    PsiLine,
    Rates,
    Reading,
    RlimitStats,
    TreeUse,
    VolumeUse,
)
from kubeletpy.volumes.claims.model import (
    MeasuredVolume,
    MountedVolume,
    PublishedOnDisk,
    VolumeStats,
)
from tests.unit.node.stats.readings import ETH0, NOW, REF, SECOND, SPACE, stats

AT = "2023-11-14T22:13:20Z"
BARE_NODE: JSON = {"nodeName": "n", "systemContainers": [], "startTime": None}
BARE_POD: JSON = {
    "podRef": {"name": "web", "namespace": "shop", "uid": "u-1"},
    "startTime": None,
    "containers": [],
}
ROOM = {
    "availableBytes": 400,
    "capacityBytes": 1000,
    "inodesFree": 60,
    "inodes": 100,
}
NOTHING_USED = {"time": AT, **ROOM, "usedBytes": 0, "inodesUsed": 0}


def node(group_stats: GroupStats | None = None, **more: Any) -> NodeReading:
    return NodeReading(CgroupUsage(GroupKind.NODE, group_stats), **more)


def a_pod(
    *containers: CgroupUsage, group_stats: GroupStats | None = None, **more: Any
) -> PodReading:
    return PodReading(REF, CgroupUsage(GroupKind.POD, group_stats), None, containers, **more)


def a_container(group_stats: GroupStats | None = None, **more: Any) -> CgroupUsage:
    return CgroupUsage(GroupKind.CONTAINER, group_stats, name="main", **more)


def reported(of: NodeReading | PodReading, disks: Disks | None) -> JSON:
    """The entry of the node or the pod in the document."""
    if isinstance(of, PodReading):
        found = summary(Reading(NOW, node(), (of,)), {}, disks, "n")["pods"][0]
    else:
        found = summary(Reading(NOW, of, ()), {}, disks, "n")["node"]
    return found  # type: ignore[no-any-return]


@pytest.mark.parametrize("disks", [None, Disks()])
def test_a_machine_of_which_nothing_is_known(disks: Disks | None) -> None:
    assert reported(node(), disks) == BARE_NODE
    assert reported(a_pod(), disks) == BARE_POD
    container = {"name": "main", "startTime": None}
    assert reported(a_pod(a_container()), disks) == {**BARE_POD, "containers": [container]}


@pytest.mark.parametrize(
    ("known", "more"),
    [
        ({"network": Network(NOW, ())}, {"network": {"time": AT, "name": "", "interfaces": []}}),
        (
            {"limits": RlimitStats(NOW, None, 5)},
            {"rlimit": {"time": AT, "curproc": 5}},
        ),
    ],
)
def test_known_values_of_a_machine(known: dict[str, Any], more: JSON) -> None:
    assert reported(node(**known), None) == BARE_NODE
    assert reported(node(**known), Disks()) == {**BARE_NODE, **more}


@pytest.mark.parametrize(
    ("disks", "more"),
    [
        (Disks(SPACE), {"fs": {"time": AT, **ROOM, "usedBytes": 500, "inodesUsed": 40}}),
        (
            Disks(image=TreeUse(NOW, 5, None)),
            {"runtime": {"imageFs": {"time": AT, "usedBytes": 5}}},
        ),
        (
            Disks(containers=TreeUse(NOW, None, 6, SPACE)),
            {"runtime": {"containerFs": {"time": AT, **ROOM, "inodesUsed": 6}}},
        ),
    ],
)
def test_disks_of_a_machine(disks: Disks, more: JSON) -> None:
    assert reported(node(), disks) == {**BARE_NODE, **more}


def claimed(stats_at: float = NOW / SECOND, **more: Any) -> MeasuredVolume:
    left = PublishedOnDisk("kubernetes.io/csi", "u", REF.uid, "pv", "/v")
    values: dict[str, Any] = {"claim": None, **more}
    volume = MountedVolume(REF.uid, "claimed", values["claim"], "d", left)
    nothing = VolumeStats(None, None, None, None, None, None, abnormal=values.get("abnormal"))
    return MeasuredVolume(volume, nothing, stats_at)


@pytest.mark.parametrize(
    ("supplied", "disks", "more"),
    [
        ({"processes": 0}, Disks(), {"process_stats": {"process_count": 0}}),
        (
            {"network": Network(NOW, (replace(ETH0, name="x"), ETH0))},
            Disks(),
            {
                "network": {
                    **{"time": AT, "name": "eth0"},
                    **{"rxBytes": 1, "rxErrors": 2, "txBytes": 3, "txErrors": 4},
                    "interfaces": [
                        {"name": name, "rxBytes": 1, "rxErrors": 2, "txBytes": 3, "txErrors": 4}
                        for name in ("x", "eth0")
                    ],
                }
            },
        ),
        ({}, Disks(SPACE), {"ephemeral-storage": NOTHING_USED}),
        (
            {},
            Disks(pods={REF.uid: PodDisk((VolumeUse("v", TreeUse(NOW, 1, 2), True),))}),
            {"volume": [{"time": AT, "usedBytes": 1, "inodesUsed": 2, "name": "v"}]},
        ),
        (
            {},
            Disks(claimed={REF.uid: [claimed(abnormal=True)]}),
            {"volume": [{"time": AT, "name": "claimed", "volumeHealthStats": {"abnormal": True}}]},
        ),
        (
            {},
            Disks(claimed={REF.uid: [claimed(1.0, claim=("ns", "data"))]}),
            {
                "volume": [
                    {
                        "time": "1970-01-01T00:00:01Z",
                        "name": "claimed",
                        "pvcRef": {"name": "data", "namespace": "ns"},
                    }
                ]
            },
        ),
    ],
)
def test_known_values_of_a_pod(supplied: dict[str, Any], disks: Disks, more: JSON) -> None:
    assert reported(a_pod(**supplied), disks) == {**BARE_POD, **more}
    assert reported(a_pod(**supplied), None) == BARE_POD


LOGS = TreeUse(NOW, 1, 2, replace(SPACE, capacity=7))


@pytest.mark.parametrize(
    ("layer", "logs", "root", "more"),
    [
        (None, None, SPACE, {}),
        (TreeUse(NOW, 0, 0), None, None, {"rootfs": {"time": AT, "usedBytes": 0, "inodesUsed": 0}}),
        (None, LOGS, SPACE, {"logs": {"time": AT, **ROOM, "usedBytes": 1, "inodesUsed": 2}}),
        (
            None,
            LOGS,
            None,
            {"logs": {"time": AT, **ROOM, "capacityBytes": 7, "usedBytes": 1, "inodesUsed": 2}},
        ),
    ],
)
def test_disks_of_a_container(
    layer: TreeUse | None, logs: TreeUse | None, root: Any, more: JSON
) -> None:
    disk = PodDisk(logs={"main": logs} if logs else {})
    found = reported(a_pod(a_container(layer=layer)), Disks(root, pods={REF.uid: disk}))
    assert found["containers"] == [{"name": "main", "startTime": None, **more}]
    assert reported(a_pod(a_container(layer=layer)), None)["containers"][0].keys() == {
        "name",
        "startTime",
    }


LINE = PsiLine(1, 2, 3, 4)
PSI = {"total": 1, "avg10": 2, "avg60": 3, "avg300": 4}
STALLS = {"full": PSI, "some": PSI}


@pytest.mark.parametrize(
    ("known", "more"),
    [
        ({"cpu_ns": 0}, {"cpu": {"time": AT, "usageCoreNanoSeconds": 0}}),
        (
            {"cpu_ns": 0, "cpu_psi": Psi(LINE, LINE)},
            {"cpu": {"time": AT, "usageCoreNanoSeconds": 0, "psi": STALLS}},
        ),
        ({"memory": 5}, {"memory": {"time": AT, "usageBytes": 5}}),
        ({"working_set": 5}, {"memory": {"time": AT, "workingSetBytes": 5}}),
        ({"rss": 5, "faults": 6}, {}),
        ({"swap": 5}, {"swap": {"time": AT, "swapUsageBytes": 5}}),
        ({"swap_limit": 5}, {}),
        ({"io_psi": Psi(LINE, LINE)}, {"io": {"time": AT, "psi": STALLS}}),
    ],
)
def test_known_values_of_a_group(known: dict[str, Any], more: JSON) -> None:
    group_stats = GroupStats(NOW, **known)
    assert reported(node(group_stats), Disks()) == {**BARE_NODE, **more}
    without = {key: value for key, value in more.items() if key != "io"}
    assert reported(node(group_stats), None) == {**BARE_NODE, **without}


@pytest.mark.parametrize(
    ("at", "text"), [(-1, None), (0, None), (1, "1970-01-01T00:00:00Z"), (NOW, AT)]
)
def test_when_a_container_was_made(at: int, text: str | None) -> None:
    found = reported(a_pod(a_container(created_at=at)), None)
    assert found["containers"][0]["startTime"] == text


def test_ephemeral_storage_is_as_new_as_its_newest_part() -> None:
    disk = PodDisk(logs={"main": TreeUse(NOW + 2, None, 3)}, others=(TreeUse(NOW + 1, 5, None),))
    supplied = a_pod(a_container(layer=TreeUse(NOW - 1, 0, 0, at_least=True)), a_container())
    found = ephemeral_storage(supplied, disk, SPACE)
    assert found == TreeUse(NOW + 2, 5, 3, SPACE, at_least=True)
    assert ephemeral_storage(a_pod(), PodDisk(), SPACE) == TreeUse(NOW, 0, 0, SPACE)


def test_a_pod_is_the_sum_of_what_is_known_of_its_containers() -> None:
    one, two = GroupStats(5, cpu_ns=1, memory=2), GroupStats(7, cpu_ns=10, rss=3)
    containers = (a_container(one), a_container(), a_container(two))
    whole = GroupStats(7, cpu_ns=11, memory=2, rss=3)
    assert pod_stats(a_pod(*containers)) == whole
    without_cpu = GroupStats(9, memory=100)
    assert pod_stats(a_pod(*containers, group_stats=without_cpu)) == whole
    assert pod_stats(a_pod(a_container(), group_stats=without_cpu)) == without_cpu
    assert pod_stats(a_pod(a_container())) is None
    own = GroupStats(9, cpu_ns=0)
    assert pod_stats(a_pod(*containers, group_stats=own)) == own


def test_rates_are_of_those_whose_cpu_time_is_known() -> None:
    rates = Rates()

    def read(*of: GroupStats | None) -> dict[str, int]:
        known = tuple(replace(a_container(each), id=str(number)) for number, each in enumerate(of))
        return rated(Reading(NOW, node(GroupStats(NOW)), (a_pod(*known),)), rates)[0]

    def at(seconds: int, cpu_ns: int) -> GroupStats:
        return stats(NOW + seconds * SECOND, cpu_ns)

    assert read(None, GroupStats(NOW), at(0, 0)) == {}
    later = read(None, GroupStats(NOW), at(10, 5 * SECOND))
    key = rate_key(replace(a_container(), id="2"))
    assert key == "container//2/main"
    assert later == {key: SECOND // 2, "pod///": SECOND // 2}


def test_resource_metrics_of_what_is_known() -> None:
    def samples(*pods: PodReading, of: NodeReading | None = None) -> list[str]:
        text = scrapes.render_resource_metrics(Reading(NOW, of or node(), pods)).decode()
        return [line for line in text.splitlines() if not line.startswith("#")]

    error = "resource_scrape_error 0"
    assert samples() == samples(a_pod(a_container())) == [error]
    named = 'container="main",namespace="shop",pod="web"'
    started = a_container(GroupStats(), started_at=SECOND)
    assert samples(a_pod(started)) == [f"container_start_time_seconds{{{named}}} 1.0", error]
    assert samples(a_pod(a_container(GroupStats()))) == [error]
    first = samples(a_pod(a_container(GroupStats(), started_at=1)))[0]
    assert first.endswith("} 1e-09")
    assert samples(of=node(GroupStats(NOW, working_set=5))) == [
        f"node_memory_working_set_bytes 5 {NOW // 10**6}",
        error,
    ]
