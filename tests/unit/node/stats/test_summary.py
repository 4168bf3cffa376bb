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
    CriContainer,
    CriSandbox,
    CriStats,
    Disks,
    GroupKind,
    GroupStats,
    Interface,
    Layer,
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
    completed,
    mount_points,
)
from kubeletpy.volumes.claims.model import (
    MeasuredVolume,
    MountedVolume,
    PublishedOnDisk,
    VolumeStats,
)
from tests.kit.stats import ETH0, NOW, REF, SECOND, SPACE, container, disks, pod, reading, stats
from tools.rulebook.differences import allowed
from tools.rulebook.tables import rows

AT = "2023-11-14T22:13:20Z"
BARE_NODE: JSON = {"nodeName": "n", "systemContainers": [], "startTime": None}
BARE_POD: JSON = {
    "podRef": {"name": "web", "namespace": "shop", "uid": "u-1"},
    "startTime": None,
    "containers": [],
}
ROOM = {"availableBytes": 400, "capacityBytes": 1000, "inodesFree": 60, "inodes": 100}
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
        ({"limits": RlimitStats(NOW, None, 5)}, {"rlimit": {"time": AT, "curproc": 5}}),
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


# The summary document: every field of the table, sums, and omitted fields.

SHAPES = {
    "cpu": "<CPUStats>",
    "memory": "<MemoryStats>",
    "io": "<IOStats>",
    "swap": "<SwapStats>",
    "fs": "<FsStats>",
    "rootfs": "<FsStats>",
    "logs": "<FsStats>",
    "imageFs": "<FsStats>",
    "containerFs": "<FsStats>",
    "ephemeral-storage": "<FsStats>",
    "rlimit": "<RlimitStats>",
    "interfaces[]": "<InterfaceStats>",
}


def table() -> set[str]:
    return {row["path"] for row in rows("server.csv") if row["kind"] == "stats-field"}


def paths(value: object, path: str = "") -> set[str]:
    """Dotted paths of a document's leaves, in the notation of the table."""
    if isinstance(value, list):
        return {found for item in value for found in paths(item, f"{path}[]")}
    if not isinstance(value, dict):
        return {path}
    name = path.rpartition(".")[2]
    start = {path}
    if name in SHAPES:
        path = SHAPES[name]
    elif name == "network":
        return {path} | {
            found for each in value["interfaces"] for found in paths(each, "<InterfaceStats>")
        }
    return start | {
        found
        for key, item in value.items()
        for found in paths(item, f"{path}.{key}" if path else key)
    }


def whole() -> JSON:
    rates = Rates()
    rated(reading(pod(), at=NOW), rates)
    later = NOW + 2 * SECOND
    main = container(stats=stats(later, 5 * SECOND))
    group = replace(pod().group, stats=stats(later, 8 * SECOND))
    found, _ = rated(reading(pod(containers=(main,), group=group), at=later), rates)
    return summary(
        reading(pod(containers=(main,), group=group), at=later), found, disks(), "node-1"
    )


def test_every_field_of_the_table_is_there() -> None:
    expected = {
        path
        for path in table()
        if not allowed("server.csv", path, "not filled") and path != "<NetworkStats>."
    }
    assert expected - paths(whole()) == set()


def test_fields_listed_as_not_filled_are_absent() -> None:
    assert {p for p in paths(whole()) if allowed("server.csv", p, "not filled")} == set()


def test_no_field_is_there_that_the_table_does_not_have() -> None:
    above = {path.rpartition(".")[0] for path in table()} | {"", "pods[].containers[].cpu.psi"}
    allowed = table() | above
    found = {path for path in paths(whole()) if not any(path.endswith(f".{k}") for k in ("psi",))}
    assert {p for p in found if p not in allowed and p.rpartition(".")[0] not in allowed} == set()


def test_numbers() -> None:
    document = whole()
    (reported,) = document["pods"]
    (main,) = reported["containers"]
    assert main["cpu"]["usageNanoCores"] == SECOND // 2
    assert reported["cpu"]["usageNanoCores"] == SECOND
    assert main["memory"]["availableBytes"] == 1024 - 700
    assert main["swap"] == {
        "time": "2023-11-14T22:13:22Z",
        "swapAvailableBytes": 8,
        "swapUsageBytes": 8,
    }
    assert main["startTime"] == "2023-11-14T22:13:11Z"
    assert main["rootfs"]["usedBytes"] == 70
    assert main["rootfs"]["capacityBytes"] == 1000
    assert main["cpu"]["psi"]["some"] == {
        "total": 5_000_000,
        "avg10": 1.5,
        "avg60": 0.5,
        "avg300": 0.25,
    }
    assert reported["ephemeral-storage"]["usedBytes"] == 70 + 20 + 40 + 3
    assert reported["ephemeral-storage"]["inodesUsed"] == 7 + 2 + 4 + 3
    assert reported["network"]["name"] == "eth0"
    node = document["node"]
    assert node["fs"]["usedBytes"] == 500
    assert node["fs"]["inodesUsed"] == 40
    assert node["rlimit"] == {"time": "2023-11-14T22:13:20Z", "maxpid": 4096, "curproc": 77}


def test_only_cpu_and_memory() -> None:
    document = summary(reading(pod()), {}, None, "n")
    assert set(document["node"]) == {
        "nodeName",
        "systemContainers",
        "startTime",
        "cpu",
        "memory",
        "swap",
    }
    (reported,) = document["pods"]
    assert set(reported) == {"podRef", "startTime", "containers", "cpu", "memory", "swap"}
    assert set(reported["containers"][0]) == {"name", "startTime", "cpu", "memory", "swap"}


def test_a_pod_without_cgroup_is_the_sum_of_its_containers() -> None:
    parts = (container("a"), container("b", stats=stats(NOW + 5, SECOND, swap=None)))
    lone = pod(group=replace(pod().group, stats=None, path=""), containers=parts)
    summed = pod_stats(lone)
    assert summed == GroupStats(
        at=NOW + 5,
        cpu_ns=5 * SECOND,
        memory=1800,
        working_set=1400,
        rss=1000,
        faults=120,
        major_faults=12,
        swap=8,
    )
    assert pod_stats(pod(group=lone.group, containers=())) is None


@pytest.mark.parametrize("missing", ["cpu_ns", "memory", "swap", "io_psi"])
def test_unknown_values_are_left_out(missing: str) -> None:
    removed: JSON = {missing: None}
    if missing == "memory":
        removed["working_set"] = None
    less = pod(containers=(container(stats=replace(stats(), **removed)),))
    (reported,) = summary(reading(less), {}, disks(), "n")["pods"]
    name = {"cpu_ns": "cpu", "io_psi": "io"}.get(missing, missing)
    assert name not in reported["containers"][0]


def test_no_limit_means_nothing_is_available() -> None:
    free = pod(containers=(container(stats=stats(limit=None, swap_limit=None)),))
    (reported,) = summary(reading(free), {}, None, "n")["pods"]
    assert "availableBytes" not in reported["containers"][0]["memory"]
    assert "swapAvailableBytes" not in reported["containers"][0]["swap"]


def test_keys_differ_from_container_to_container_and_restart_to_restart() -> None:
    groups = [container("a"), container("b"), container("a", id="new"), pod().group]
    assert len({rate_key(group) for group in groups}) == 4


def test_lower_bounds_stay_lower_bounds() -> None:
    disk = disks().pods["u-1"]
    more = replace(disk, others=(replace(disk.others[0], at_least=True),))
    assert ephemeral_storage(pod(), more, SPACE).at_least
    assert not ephemeral_storage(pod(), disk, SPACE).at_least


# Readings of a pod, completed with the runtime's reports.

READ, REPORTED = GroupStats(1, cpu_ns=10, rss=30), GroupStats(2, cpu_ns=11, memory=40)
OURS, THEIRS = Network(1, (Interface("eth0", 1),)), Network(2, (Interface("eth0", 2),))
EITHER = GroupStats(1, cpu_ns=10, rss=30, memory=40), GroupStats(2, cpu_ns=11, rss=30, memory=40)


def read(sandbox: bool = True, **more: Any) -> PodReading:
    bare = container(stats=READ, layer=None)
    supplied = pod(containers=(bare,), **more)
    group = replace(supplied.group, stats=READ)
    return replace(supplied, group=group, sandbox=supplied.sandbox if sandbox else None)


def reported_stats(layer: Layer | None = None, **sandbox: Any) -> CriStats:
    values: dict[str, Any] = {"network": None, "processes": None, **sandbox}
    return CriStats(
        {"id-main": CriContainer(REPORTED, layer)}, {"sb": CriSandbox(REPORTED, **values)}
    )


@pytest.mark.parametrize("prefer_runtime", [False, True])
def test_the_preferred_source_of_stats(prefer_runtime: bool) -> None:
    done = completed(read(), reported_stats(), {}, prefer_runtime=prefer_runtime)
    expected = EITHER[prefer_runtime]
    assert (done.group.stats, done.containers[0].stats) == (expected, expected)


@pytest.mark.parametrize(
    ("ours", "theirs", "prefer_runtime", "expected"),
    [
        (OURS, THEIRS, False, OURS),
        (OURS, THEIRS, True, THEIRS),
        (None, THEIRS, False, THEIRS),
        (OURS, None, True, OURS),
        (None, None, True, None),
        (None, None, False, None),
    ],
)
def test_the_source_of_network_stats(
    ours: Network | None, theirs: Network | None, prefer_runtime: bool, expected: Network | None
) -> None:
    reported = reported_stats(network=theirs)
    done = completed(read(network=ours), reported, {}, prefer_runtime=prefer_runtime)
    assert done.network == expected


@pytest.mark.parametrize(("ours", "expected"), [(None, 7), (0, 0), (3, 3)])
def test_processes_are_counted_here_if_they_can_be(ours: int | None, expected: int) -> None:
    done = completed(read(processes=ours), reported_stats(processes=7), {}, prefer_runtime=True)
    assert done.processes == expected


@pytest.mark.parametrize("sandbox", [True, False])
def test_without_a_report_of_the_sandbox_the_pod_stays(sandbox: bool) -> None:
    supplied = read(sandbox)
    of_containers = CriStats(reported_stats().containers, {})
    done = completed(supplied, of_containers, {}, prefer_runtime=True)
    assert done.containers[0].stats == EITHER[True]
    assert replace(done, containers=supplied.containers) == supplied
    assert completed(supplied, CriStats({}, {}), {}, prefer_runtime=True) == supplied


LAYER = Layer(NOW, 5, 6, "/var/lib/x", uncounted=True)


@pytest.mark.parametrize(
    ("layer", "expected"),
    [
        (None, None),
        (LAYER, TreeUse(NOW, 5, 6, SPACE, uncounted=True)),
        (replace(LAYER, uncounted=False), TreeUse(NOW, 5, 6, SPACE)),
        (replace(LAYER, mountpoint="/other"), TreeUse(NOW, 5, 6, None, uncounted=True)),
    ],
)
def test_layers_are_the_runtimes(layer: Layer | None, expected: TreeUse | None) -> None:
    done = completed(read(), reported_stats(layer), {"/var/lib/x": SPACE}, prefer_runtime=False)
    (group,) = done.containers
    assert group.layer == expected


def test_mount_points_that_are_named() -> None:
    layers = (None, LAYER, LAYER, replace(LAYER, mountpoint="/y"), replace(LAYER, mountpoint=""))
    of = {str(i): CriContainer(REPORTED, layer) for i, layer in enumerate(layers)}
    assert mount_points(CriStats(of, {})) == {"/var/lib/x", "/y"}
