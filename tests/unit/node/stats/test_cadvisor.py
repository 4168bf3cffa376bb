"""A cgroup in the series of cAdvisor."""

from __future__ import annotations

import re
from typing import Any

import pytest

from kubeletpy.node.stats.cadvisor import MachineInfo, render
from kubeletpy.node.stats.usage import (
    CgroupUsage,
    DeviceIo,
    GroupKind,
    GroupStats,
    Network,
    NodeReading,
    PodReading,
    Psi,
    PsiLine,
    Reading,
    TreeUse,
)
from tests.kit.stats import ETH0, NOW, REF, SECOND, SPACE, container, machine_info, stats

MACHINE = machine_info(4, 2, 1, 4096, 512)
SAMPLE = re.compile(r"(?P<name>\w+)(?:{(?P<labels>.*)})? (?P<value>\S+)(?: (?P<at>\d+))?")


def of_node(group: CgroupUsage, **more: Any) -> Reading:
    return Reading(NOW, NodeReading(group, **more), ())


def reported(supplied: Reading, machine: MachineInfo = MACHINE) -> list[str]:
    """Each sample as ``name LABELS value +seconds``, without those that every group has."""
    found = []
    for line in render(supplied, machine, {(254, 0): "vda"}).decode().splitlines():
        if (sample := SAMPLE.fullmatch(line)) is None:
            continue
        labels = re.sub(r'^container=.*,pod="[^"]*"(,|$)', "", sample["labels"] or "")
        at = f"+{(int(sample['at']) - NOW // 10**6) / 1000:g}" if sample["at"] else ""
        parts = (sample["name"].removeprefix("container_"), labels, sample["value"], at)
        found.append(" ".join(filter(None, parts)).replace('"', ""))
    return found


def block(text: str) -> list[str]:
    return [line.strip() for line in text.strip().splitlines()]


MACHINE_SERIES = block(
    """
    machine_cpu_cores boot_id=boot,machine_id=id,system_uuid=uuid 4
    machine_cpu_physical_cores boot_id=boot,machine_id=id,system_uuid=uuid 2
    machine_cpu_sockets boot_id=boot,machine_id=id,system_uuid=uuid 1
    machine_memory_bytes boot_id=boot,machine_id=id,system_uuid=uuid 4096
    machine_swap_bytes boot_id=boot,machine_id=id,system_uuid=uuid 512
    machine_scrape_error 0
    cadvisor_version_info cadvisorRevision=,cadvisorVersion=,dockerVersion=,kernelVersion=6.1.0,osVersion=Debian 1
    """  # noqa: E501
)


def group_series(supplied: Reading) -> list[str]:
    found = reported(supplied)
    assert found[: len(MACHINE_SERIES)] == MACHINE_SERIES
    assert found[-1] == "scrape_error 0"
    return found[len(MACHINE_SERIES) : -1]


def test_unknown_facts_about_a_machine_are_left_out() -> None:
    bare = machine_info(4, 0, 0, 4096, 0)
    found = [line.split()[0] for line in reported(of_node(CgroupUsage(GroupKind.NODE, None)), bare)]
    assert "machine_cpu_physical_cores" not in found
    assert "machine_cpu_sockets" not in found
    assert "machine_swap_bytes" in found


def psi(some: int, full: int) -> Psi:
    return Psi(PsiLine(some * 10**6, 0, 0, 0), PsiLine(full * 10**6, 0, 0, 0))


FULL = """
    last_seen 1700000000 +0
    creation_time_seconds 1699999991
    start_time_seconds 1699999992
    cpu_usage_seconds_total cpu=total 4.0 +5
    cpu_user_seconds_total 3.000000001 +5
    cpu_system_seconds_total 2.0 +5
    spec_cpu_period 100000
    spec_cpu_shares 102
    spec_cpu_quota 50000
    cpu_cfs_periods_total 10 +5
    cpu_cfs_throttled_periods_total 2 +5
    cpu_cfs_throttled_seconds_total 0.5 +5
    memory_usage_bytes 900 +5
    memory_working_set_bytes 700 +5
    memory_rss 500 +5
    memory_cache 300 +5
    memory_mapped_file 20 +5
    memory_kernel_usage 30 +5
    memory_swap 8 +5
    memory_max_usage_bytes 950 +5
    memory_failcnt 1 +5
    memory_file_dirty_bytes 15 +5
    memory_file_writeback_bytes 16 +5
    memory_pgscan_total 17 +5
    memory_pgsteal_total 18 +5
    memory_workingset_refault_file_total 19 +5
    memory_workingset_refault_anon_total 20 +5
    memory_total_active_file_bytes 40 +5
    memory_total_inactive_file_bytes 200 +5
    memory_failures_total failure_type=pgfault,scope=container 50 +5
    memory_failures_total failure_type=pgmajfault,scope=container 5 +5
    memory_failures_total failure_type=pgfault,scope=hierarchy 60 +5
    memory_failures_total failure_type=pgmajfault,scope=hierarchy 6 +5
    memory_events_high_total 14 +5
    memory_events_max_total 1 +5
    oom_events_total 6 +5
    spec_memory_limit_bytes 1024
    spec_memory_reservation_limit_bytes 333
    spec_memory_swap_limit_bytes 1041
    processes 2 +5
    file_descriptors 11 +5
    threads 3 +5
    threads_max 99 +5
    fs_reads_bytes_total device=vda 10 +5
    fs_reads_bytes_total device= 11 +5
    fs_reads_total device=vda 1 +5
    fs_reads_total device= 3 +5
    fs_writes_bytes_total device=vda 20 +5
    fs_writes_bytes_total device= 21 +5
    fs_writes_total device=vda 2 +5
    fs_writes_total device= 4 +5
    blkio_device_usage_total device=vda,major=254,minor=0,operation=Read 10 +5
    blkio_device_usage_total device=vda,major=254,minor=0,operation=Write 20 +5
    blkio_device_usage_total device=,major=8,minor=1,operation=Read 11 +5
    blkio_device_usage_total device=,major=8,minor=1,operation=Write 21 +5
    pressure_cpu_stalled_seconds_total 72.0 +5
    pressure_cpu_waiting_seconds_total 71.0 +5
    pressure_memory_stalled_seconds_total 74.0 +5
    pressure_memory_waiting_seconds_total 73.0 +5
    pressure_io_stalled_seconds_total 76.0 +5
    pressure_io_waiting_seconds_total 75.0 +5
    fs_usage_bytes device=/dev/vda 70 +0
    fs_limit_bytes device=/dev/vda 1000 +0
    """


def test_a_container_of_which_everything_is_known() -> None:
    known = stats(
        NOW + 5 * SECOND,
        user_ns=3 * SECOND + 1,
        system_ns=2 * SECOND,
        swap_limit=17,
        reservation=333,
        oom_kills=6,
        devices=(DeviceIo(254, 0, 10, 20, 1, 2), DeviceIo(8, 1, 11, 21, 3, 4)),
        cpu_psi=psi(71, 72),
        memory_psi=psi(73, 74),
        io_psi=psi(75, 76),
    )
    assert group_series(of_node(container(stats=known), root=SPACE)) == block(FULL)


def test_a_sandbox_has_the_network_and_a_machine_its_disk() -> None:
    sandbox = CgroupUsage(GroupKind.SANDBOX, None, "/x", started_at=1)
    supplied = of_node(sandbox, network=Network(NOW + SECOND, (ETH0,)), root=SPACE)
    assert group_series(supplied) == block(
        """
        last_seen 1700000000 +0
        start_time_seconds 0
        network_receive_bytes_total interface=eth0 1 +1
        network_receive_packets_total interface=eth0 5 +1
        network_receive_errors_total interface=eth0 2 +1
        network_receive_packets_dropped_total interface=eth0 6 +1
        network_transmit_bytes_total interface=eth0 3 +1
        network_transmit_packets_total interface=eth0 7 +1
        network_transmit_errors_total interface=eth0 4 +1
        network_transmit_packets_dropped_total interface=eth0 8 +1
        fs_usage_bytes device=/dev/vda 500 +0
        fs_limit_bytes device=/dev/vda 1000 +0
        fs_inodes_free device=/dev/vda 60 +0
        fs_inodes_total device=/dev/vda 100 +0
        """
    )


MEMORY_OF = """
    memory_usage_bytes 0 +0
    spec_memory_limit_bytes {}
    spec_memory_reservation_limit_bytes {}
    spec_memory_swap_limit_bytes {}
    """


@pytest.mark.parametrize(
    ("known", "more"),
    [
        ({}, ""),
        ({"cpu_ns": 0}, "cpu_usage_seconds_total cpu=total 0.0 +0"),
        ({"quota_us": 0}, "spec_cpu_quota 0"),
        ({"pids": 0}, "threads 0 +0\nthreads_max 0 +0"),
        ({"pids": 0, "pids_max": 1}, "threads 0 +0\nthreads_max 1 +0"),
        ({"pids_max": 9, "limit": 5, "reservation": 6}, ""),
        ({"memory": 0, "limit": 5, "reservation": 6}, MEMORY_OF.format(5, 6, 0)),
        ({"memory": 0, "limit": 5, "swap_limit": 7}, MEMORY_OF.format(5, 0, 12)),
        ({"memory": 0, "swap_limit": 7}, MEMORY_OF.format(0, 0, 7)),
        ({"memory": 0, "swap_limit": 0}, MEMORY_OF.format(0, 0, 0)),
    ],
)
def test_unknown_values_are_left_out(known: dict[str, Any], more: str) -> None:
    """An absent limit is 0, as in cAdvisor."""
    found = group_series(of_node(CgroupUsage(GroupKind.NODE, GroupStats(NOW, **known), "/")))
    assert found == ["last_seen 1700000000 +0", *block(more)]


def test_a_layer_on_a_disk_that_is_not_known_is_not_shown() -> None:
    group = container(stats=None, layer=TreeUse(NOW, 70, 7))
    assert group_series(of_node(group)) == block(
        """
        last_seen 1700000000 +0
        creation_time_seconds 1699999991
        start_time_seconds 1699999992
        """
    )


def test_each_cgroup_is_shown_once() -> None:
    def group(kind: GroupKind, path: str, **more: Any) -> CgroupUsage:
        return CgroupUsage(kind, None, path, **more)

    def name(line: str) -> str:
        found = re.search(r'container="(.*?)",id="(.*?)"', line)
        return ":".join(found.groups()) if found else ""

    supplied = Reading(
        NOW,
        NodeReading(
            group(GroupKind.NODE, "/"),
            system=(group(GroupKind.SYSTEM, "/d", name="d1"), group(GroupKind.SYSTEM, "")),
            groups=(group(GroupKind.PODS, "/pods"), group(GroupKind.SYSTEM, "/d", name="d2")),
        ),
        (
            PodReading(
                REF,
                group(GroupKind.POD, "/pods/1"),
                group(GroupKind.SANDBOX, "/pods/1/s"),
                (group(GroupKind.CONTAINER, "/pods/1/c", name="main"),),
            ),
            PodReading(REF, group(GroupKind.POD, ""), None, (), processes=1),
        ),
    )
    text = render(supplied, MACHINE, {}).decode()
    seen = [name(line) for line in text.splitlines() if line.startswith("container_last_seen")]
    assert seen == [":/", ":/pods", ":/d", ":/pods/1", ":/pods/1/s", "main:/pods/1/c"]
