"""/metrics/cadvisor: the reading of every cgroup, under cAdvisor's names and labels. Pure.

A pod's network is a series of its sandbox, without a container name, as dashboards expect; so are
the numbers of the pod's own cgroup, with its path as ``id``.
"""

from __future__ import annotations

from collections.abc import Mapping

from kubeletpy.base.structs import Component, Struct
from kubeletpy.node.facts import MachineFacts
from kubeletpy.node.stats.scrapes import Scrape, labels
from kubeletpy.node.stats.summary import pod_stats
from kubeletpy.node.stats.usage import CgroupUsage, FsSpace, GroupStats, Network, Reading

# The series, with cAdvisor's names and types, as dashboards expect.
#
# Omitted is what a kubelet switches off or only cAdvisor can count: load averages and task
# states, per-device queue times, sockets, limits of the first process.

_COUNTERS = {
    "container_cpu_cfs_periods_total": "Periods in which the cpu quota was enforced.",
    "container_cpu_cfs_throttled_periods_total": "Periods in which the container was throttled.",
    "container_cpu_cfs_throttled_seconds_total": "Time for which the container was throttled.",
    "container_cpu_system_seconds_total": "Cpu time spent in the kernel, in seconds.",
    "container_cpu_usage_seconds_total": "Cpu time in seconds.",
    "container_cpu_user_seconds_total": "Cpu time spent in user space, in seconds.",
    "container_blkio_device_usage_total": "Bytes moved to and from a block device, by operation.",
    "container_fs_reads_bytes_total": "Bytes read from a block device.",
    "container_fs_reads_total": "Reads from a block device.",
    "container_fs_writes_bytes_total": "Bytes written to a block device.",
    "container_fs_writes_total": "Writes to a block device.",
    "container_memory_events_high_total": "Times that tasks were throttled above memory.high.",
    "container_memory_events_max_total": "Times that memory use was about to exceed memory.max.",
    "container_memory_failcnt": "Times that memory use hit the limit.",
    "container_memory_failures_total": "Page faults.",
    "container_memory_pgscan_total": "Pages that the kernel scanned to reclaim memory.",
    "container_memory_pgsteal_total": "Pages that the kernel reclaimed.",
    "container_memory_workingset_refault_anon_total": "Anonymous pages needed soon after eviction.",
    "container_memory_workingset_refault_file_total": "File pages needed soon after eviction.",
    "container_network_receive_bytes_total": "Bytes received.",
    "container_network_receive_errors_total": "Errors while receiving.",
    "container_network_receive_packets_dropped_total": "Packets dropped while receiving.",
    "container_network_receive_packets_total": "Packets received.",
    "container_network_transmit_bytes_total": "Bytes sent.",
    "container_network_transmit_errors_total": "Errors while sending.",
    "container_network_transmit_packets_dropped_total": "Packets dropped while sending.",
    "container_network_transmit_packets_total": "Packets sent.",
    "container_oom_events_total": "Processes killed because memory ran out.",
    "container_pressure_cpu_stalled_seconds_total": "Time that all tasks waited for cpu.",
    "container_pressure_cpu_waiting_seconds_total": "Time that some tasks waited for cpu.",
    "container_pressure_io_stalled_seconds_total": "Time that all tasks waited for I/O.",
    "container_pressure_io_waiting_seconds_total": "Time that some tasks waited for I/O.",
    "container_pressure_memory_stalled_seconds_total": "Time that all tasks waited for memory.",
    "container_pressure_memory_waiting_seconds_total": "Time that some tasks waited for memory.",
}
_GAUGES = {
    "cadvisor_version_info": "Always 1; the labels name the machine's kernel and system.",
    "container_creation_time_seconds": "Creation in Unix seconds.",
    "container_file_descriptors": "Open file descriptors.",
    "container_fs_inodes_free": "Inodes left on the file system.",
    "container_fs_inodes_total": "Inodes of the file system.",
    "container_fs_limit_bytes": "Bytes that the file system can hold.",
    "container_fs_usage_bytes": "Bytes used on the file system.",
    "container_last_seen": "When the container was last seen, in Unix seconds.",
    "container_memory_cache": "Page cache in bytes.",
    "container_memory_file_dirty_bytes": "Page cache that is not written to disk yet, in bytes.",
    "container_memory_file_writeback_bytes": "Page cache being written to disk, in bytes.",
    "container_memory_kernel_usage": "Kernel memory in bytes.",
    "container_memory_mapped_file": "Mapped files in bytes.",
    "container_memory_max_usage_bytes": "The most memory that was used, in bytes.",
    "container_memory_rss": "Anonymous memory in bytes.",
    "container_memory_swap": "Swap in bytes.",
    "container_memory_total_active_file_bytes": "Active file pages in bytes.",
    "container_memory_total_inactive_file_bytes": "Inactive file pages in bytes.",
    "container_memory_usage_bytes": "Memory in bytes, all of it.",
    "container_memory_working_set_bytes": "Memory without inactive file pages, in bytes.",
    "container_processes": "Processes.",
    "container_scrape_error": "1 if some containers could not be read, else 0.",
    "container_spec_cpu_period": "Period of the cpu quota in microseconds.",
    "container_spec_cpu_quota": "Cpu quota in microseconds per period.",
    "container_spec_cpu_shares": "Cpu shares.",
    "container_spec_memory_limit_bytes": "Memory limit in bytes, 0 for none.",
    "container_spec_memory_reservation_limit_bytes": "Memory reservation in bytes, 0 for none.",
    "container_spec_memory_swap_limit_bytes": "Limit of memory and swap in bytes, 0 for none.",
    "container_start_time_seconds": "Start in Unix seconds.",
    "container_threads": "Tasks.",
    "container_threads_max": "Tasks that there may be, 0 for any number.",
    "machine_cpu_cores": "Logical cpus.",
    "machine_cpu_physical_cores": "Physical cores.",
    "machine_cpu_sockets": "Cpu sockets.",
    "machine_memory_bytes": "Memory in bytes.",
    "machine_scrape_error": "1 if the machine could not be read, else 0.",
    "machine_swap_bytes": "Swap in bytes.",
}
FAMILIES = {
    **{name: ("counter", text) for name, text in _COUNTERS.items()},
    **{name: ("gauge", text) for name, text in _GAUGES.items()},
}

_NANO = 1e9
_MICRO = 1e6


class MachineInfo(Struct, frozen=True):
    """Facts that do not change while the machine runs; 0 cores or sockets: not known."""

    facts: MachineFacts
    cores: int
    sockets: int


def render(reading: Reading, machine: MachineInfo, devices: Mapping[tuple[int, int], str]) -> bytes:
    """A scrape. ``devices``: (major, minor) -> ``/dev/NAME``."""
    scrape = Scrape(FAMILIES)
    _machine(scrape, machine)
    reported = _Reported(scrape, devices, reading.at)
    node = reading.node
    reported.group(node.group, network=node.network, space=node.root)
    # daemons may share a cgroup, and a series may appear only once
    paths = {group.path: group for group in (*node.groups, *node.system) if group.path}
    for group in paths.values():
        reported.group(group)
    for pod in reading.pods:
        if pod.group.path:
            reported.group(pod.group)
        if pod.sandbox is not None:
            reported.group(pod.sandbox, network=pod.network)
        for group in pod.containers:
            reported.group(group)
        if not pod.group.path and (stats := pod_stats(pod)) is not None:
            reported.group(CgroupUsage(pod.group.kind, stats, pod=pod.ref))
    scrape.add("container_scrape_error", "", 1 if reading.problem else 0)
    return scrape.render()


def _machine(scrape: Scrape, machine: MachineInfo) -> None:
    facts = machine.facts
    named = labels(
        {"boot_id": facts.boot_id, "machine_id": facts.machine_id, "system_uuid": facts.system_uuid}
    )
    scrape.add("machine_cpu_cores", named, facts.cpu_count)
    scrape.add("machine_cpu_physical_cores", named, machine.cores or None)
    scrape.add("machine_cpu_sockets", named, machine.sockets or None)
    scrape.add("machine_memory_bytes", named, facts.memory_bytes)
    scrape.add("machine_swap_bytes", named, facts.swap_bytes)
    scrape.add("machine_scrape_error", "", 0)
    about = {
        "cadvisorRevision": "",
        "cadvisorVersion": "",
        "dockerVersion": "",
        "kernelVersion": facts.kernel_version,
        "osVersion": facts.os_image,
    }
    scrape.add("cadvisor_version_info", labels(about), 1)


class _Reported(Component):
    """Adds groups to a scrape."""

    scrape: Scrape
    devices: Mapping[tuple[int, int], str]
    seen_at: int

    def __post_init__(self) -> None:
        self._add = self.scrape.add

    def group(
        self, group: CgroupUsage, *, network: Network | None = None, space: FsSpace | None = None
    ) -> None:
        """Everything about one group."""
        named = labels(
            {
                "container": group.name if group.kind == "container" else "",
                "id": group.path,
                "image": group.image,
                "name": group.id,
                "namespace": group.pod.namespace if group.pod else "",
                "pod": group.pod.name if group.pod else "",
            }
        )
        add, at = self._add, self.seen_at
        add("container_last_seen", named, at // 1_000_000_000, at)
        if group.created_at > 0:
            add("container_creation_time_seconds", named, group.created_at // 1_000_000_000)
        if group.started_at > 0:
            add("container_start_time_seconds", named, group.started_at // 1_000_000_000)
        if network is not None:
            self._network(named, network)
        if (stats := group.stats) is not None:
            self._cpu(named, stats)
            self._memory(named, stats)
            self._tasks(named, group, stats)
            self._devices_of(named, stats)
            self._pressure(named, stats)
        if group.layer is not None and group.layer.space is not None:
            self._space(named, group.layer.space, group.layer.used)
        elif space is not None:
            self._space(named, space, space.capacity - space.free)
            extra = f"{named},{labels({'device': space.device})}"
            self._add("container_fs_inodes_free", extra, space.inodes_free, space.at)
            self._add("container_fs_inodes_total", extra, space.inodes, space.at)

    def _cpu(self, named: str, stats: GroupStats) -> None:
        add, at = self._add, stats.at
        total = f'{named},cpu="total"'
        add("container_cpu_usage_seconds_total", total, _seconds(stats.cpu_ns), at)
        add("container_cpu_user_seconds_total", named, _seconds(stats.user_ns), at)
        add("container_cpu_system_seconds_total", named, _seconds(stats.system_ns), at)
        add("container_spec_cpu_period", named, stats.period_us)
        add("container_spec_cpu_shares", named, stats.shares)
        if stats.quota_us is None:
            return
        add("container_spec_cpu_quota", named, stats.quota_us)
        add("container_cpu_cfs_periods_total", named, stats.periods, at)
        add("container_cpu_cfs_throttled_periods_total", named, stats.throttled_periods, at)
        add("container_cpu_cfs_throttled_seconds_total", named, _seconds(stats.throttled_ns), at)

    def _memory(self, named: str, stats: GroupStats) -> None:
        add, at = self._add, stats.at
        add("container_memory_usage_bytes", named, stats.memory, at)
        add("container_memory_working_set_bytes", named, stats.working_set, at)
        add("container_memory_rss", named, stats.rss, at)
        add("container_memory_cache", named, stats.cache, at)
        add("container_memory_mapped_file", named, stats.mapped_file, at)
        add("container_memory_kernel_usage", named, stats.kernel, at)
        add("container_memory_swap", named, stats.swap, at)
        add("container_memory_max_usage_bytes", named, stats.max_memory, at)
        add("container_memory_failcnt", named, stats.failures, at)
        add("container_memory_file_dirty_bytes", named, stats.dirty, at)
        add("container_memory_file_writeback_bytes", named, stats.writeback, at)
        add("container_memory_pgscan_total", named, stats.scanned_pages, at)
        add("container_memory_pgsteal_total", named, stats.reclaimed_pages, at)
        add("container_memory_workingset_refault_file_total", named, stats.file_refaults, at)
        add("container_memory_workingset_refault_anon_total", named, stats.anon_refaults, at)
        add("container_memory_total_active_file_bytes", named, stats.active_file, at)
        add("container_memory_total_inactive_file_bytes", named, stats.inactive_file, at)
        for kind, scope, value in (
            ("pgfault", "container", stats.own_faults),
            ("pgmajfault", "container", stats.own_major_faults),
            ("pgfault", "hierarchy", stats.faults),
            ("pgmajfault", "hierarchy", stats.major_faults),
        ):
            extra = f'{named},failure_type="{kind}",scope="{scope}"'
            add("container_memory_failures_total", extra, value, at)
        add("container_memory_events_high_total", named, stats.throttled_at_high, at)
        if stats.throttled_at_high is not None:
            add("container_memory_events_max_total", named, stats.failures, at)
        add("container_oom_events_total", named, stats.oom_kills, at)
        if stats.memory is None:
            return
        both = None if stats.swap_limit is None else (stats.limit or 0) + stats.swap_limit
        add("container_spec_memory_limit_bytes", named, stats.limit or 0)
        add("container_spec_memory_reservation_limit_bytes", named, stats.reservation or 0)
        add("container_spec_memory_swap_limit_bytes", named, both or 0)

    def _tasks(self, named: str, group: CgroupUsage, stats: GroupStats) -> None:
        add, at = self._add, stats.at
        add("container_processes", named, group.processes, at)
        add("container_file_descriptors", named, group.descriptors, at)
        add("container_threads", named, stats.pids, at)
        if stats.pids is not None:
            add("container_threads_max", named, stats.pids_max or 0, at)

    def _devices_of(self, named: str, stats: GroupStats) -> None:
        add, at = self._add, stats.at
        for each in stats.devices:
            device = self.devices.get((each.major, each.minor), "")
            extra = f'{named},device="{device}"'
            add("container_fs_reads_bytes_total", extra, each.read_bytes, at)
            add("container_fs_reads_total", extra, each.reads, at)
            add("container_fs_writes_bytes_total", extra, each.write_bytes, at)
            add("container_fs_writes_total", extra, each.writes, at)
            for operation, value in (("Read", each.read_bytes), ("Write", each.write_bytes)):
                which = f'major="{each.major}",minor="{each.minor}",operation="{operation}"'
                add("container_blkio_device_usage_total", f"{extra},{which}", value, at)

    def _pressure(self, named: str, stats: GroupStats) -> None:
        for name, psi in (
            ("cpu", stats.cpu_psi),
            ("memory", stats.memory_psi),
            ("io", stats.io_psi),
        ):
            if psi is not None:
                start = f"container_pressure_{name}"
                full, some = psi.full.total / _MICRO, psi.some.total / _MICRO
                self._add(f"{start}_stalled_seconds_total", named, full, stats.at)
                self._add(f"{start}_waiting_seconds_total", named, some, stats.at)

    def _space(self, named: str, space: FsSpace, used: int | None) -> None:
        extra = f"{named},{labels({'device': space.device})}"
        self._add("container_fs_usage_bytes", extra, used, space.at)
        self._add("container_fs_limit_bytes", extra, space.capacity, space.at)

    def _network(self, named: str, network: Network) -> None:
        add, at, start = self._add, network.at, "container_network"
        for each in network.interfaces:
            extra = f"{named},{labels({'interface': each.name})}"
            add(f"{start}_receive_bytes_total", extra, each.rx_bytes, at)
            add(f"{start}_receive_packets_total", extra, each.rx_packets, at)
            add(f"{start}_receive_errors_total", extra, each.rx_errors, at)
            add(f"{start}_receive_packets_dropped_total", extra, each.rx_dropped, at)
            add(f"{start}_transmit_bytes_total", extra, each.tx_bytes, at)
            add(f"{start}_transmit_packets_total", extra, each.tx_packets, at)
            add(f"{start}_transmit_errors_total", extra, each.tx_errors, at)
            add(f"{start}_transmit_packets_dropped_total", extra, each.tx_dropped, at)


def _seconds(nanoseconds: int | None) -> float | None:
    return None if nanoseconds is None else nanoseconds / _NANO
