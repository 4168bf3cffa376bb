"""The summary document: every field of the table, sums, and omitted fields."""

from __future__ import annotations

import pytest

from kubeletpy.base.api.types import JSON
from kubeletpy.base.structs import replace
from kubeletpy.node.stats.summary import ephemeral_storage, pod_stats, rate_key, rated, summary
from kubeletpy.node.stats.usage import GroupStats, Rates
from tests.unit.node.stats.readings import NOW, SECOND, SPACE, container, disks, pod, reading, stats
from tools.rulebook.differences import allowed
from tools.rulebook.tables import rows

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
