"""/stats/summary: what was read, in the shape of the kubelet's Summary API. Pure.

Field for field as docs/reference/server.csv: stats-field; what the machine does not report is
omitted. A pod without a cgroup of its own is the sum of its containers.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import asdict

from kubeletpy.base.api.times import format_time
from kubeletpy.base.api.types import JSON
from kubeletpy.base.structs import replace
from kubeletpy.node.stats import usage
from kubeletpy.node.stats.disk_plan import ephemeral_parts
from kubeletpy.volumes.claims.model import MeasuredVolume

_SUMMED = ("cpu_ns", "memory", "working_set", "rss", "faults", "major_faults", "swap")


def rated(reading: usage.Reading, rates: usage.Rates) -> tuple[dict[str, int], bool]:
    """Add a reading's cpu times as samples. Keys not in the reading are forgotten.

    Returns:
        key of :func:`rate_key` -> billionths of a core; and whether a reading WINDOW_MIN_NS later
        would show more of them.
    """
    groups = [(each, 0) for each in (reading.node.group, *reading.node.system)]
    for pod in reading.pods:
        # the sum of the containers of a pod without a cgroup did not begin with 0 at its start
        own = pod.group.stats is not None and pod.group.stats.cpu_ns is not None
        since = pod.group.created_at if own else 0
        groups.append((replace(pod.group, stats=pod_stats(pod)), since))
        groups += [(each, each.started_at) for each in pod.containers]
    found: dict[str, int] = {}
    seen: set[str] = set()
    for group, since in groups:
        if group.stats is None or group.stats.cpu_ns is None:
            continue
        key = rate_key(group)
        seen.add(key)
        rate = rates.nano_cores(key, group.stats.at, group.stats.cpu_ns, since)
        if rate is not None:
            found[key] = rate
    rates.forget_others(seen)
    return found, rates.lacks(seen, reading.at)


def rate_key(group: usage.CgroupUsage) -> str:
    """Identifies the cgroup in the records of CPU time."""
    return f"{group.kind}/{group.pod.uid if group.pod else ''}/{group.id}/{group.name}"


def pod_stats(pod: usage.PodReading) -> usage.GroupStats | None:
    """A pod's own numbers, or the sums over its containers."""
    if pod.group.stats is not None and pod.group.stats.cpu_ns is not None:
        return pod.group.stats
    parts = [group.stats for group in pod.containers if group.stats is not None]
    if not parts:
        return pod.group.stats
    sums: dict[str, int] = {}
    for name in _SUMMED:
        values = [value for part in parts if (value := getattr(part, name)) is not None]
        if values:
            sums[name] = sum(values)
    return usage.GroupStats(at=max(part.at for part in parts), **sums)  # type: ignore[arg-type]


def summary(
    reading: usage.Reading, rates: Mapping[str, int], disks: usage.Disks | None, node_name: str
) -> JSON:
    """The whole document; ``disks`` None: cpu and memory only."""
    return {
        "node": _node(reading.node, rates, disks, node_name),
        "pods": [_pod(pod, rates, disks) for pod in reading.pods],
    }


def _node(
    node: usage.NodeReading, rates: Mapping[str, int], disks: usage.Disks | None, name: str
) -> JSON:
    found: JSON = {"nodeName": name, "systemContainers": []}
    for group in node.system:
        reported = {"name": group.name, "startTime": _time(group.started_at)}
        found["systemContainers"].append(
            {**reported, **_usage(group, rates, whole=disks is not None)}
        )
    found["startTime"] = _time(node.group.started_at)
    found |= _usage(node.group, rates, whole=disks is not None)
    if disks is None:
        return found
    if node.network is not None:
        found["network"] = _network(node.network)
    if disks.root is not None:
        used = disks.root.capacity - disks.root.free
        inodes = disks.root.inodes - disks.root.inodes_free
        found["fs"] = _fs(usage.TreeUse(disks.root.at, used, inodes, disks.root))
    runtime = {
        key: _fs(use)
        for key, use in (("imageFs", disks.image), ("containerFs", disks.containers))
        if use is not None
    }
    if runtime:
        found["runtime"] = runtime
    if (limits := node.limits) is not None:
        found["rlimit"] = _present(
            time=_time(limits.at), maxpid=limits.max_pids, curproc=limits.tasks
        )
    return found


def _pod(pod: usage.PodReading, rates: Mapping[str, int], disks: usage.Disks | None) -> JSON:
    ref, disk = pod.ref, disks.pods.get(pod.ref.uid) if disks is not None else None
    disk = disk or usage.PodDisk()
    group = replace(pod.group, stats=pod_stats(pod))
    found: JSON = {
        "podRef": {"name": ref.name, "namespace": ref.namespace, "uid": ref.uid},
        "startTime": _time(pod.group.created_at),
        "containers": [_container(each, rates, disks, disk) for each in pod.containers],
        **_usage(group, rates, whole=disks is not None),
    }
    if disks is None:
        return found
    if pod.network is not None:
        found["network"] = _network(pod.network)
    claimed = disks.claimed.get(ref.uid, ())
    if disk.volumes or claimed:
        own = [{**_fs(each.use), "name": each.name} for each in disk.volumes]
        found["volume"] = [*own, *(_claimed(each) for each in claimed)]
    if disks.root is not None:
        found["ephemeral-storage"] = _fs(ephemeral_storage(pod, disk, disks.root))
    if pod.processes is not None:
        found["process_stats"] = {"process_count": pod.processes}
    return found


def ephemeral_storage(
    pod: usage.PodReading, disk: usage.PodDisk, root: usage.FsSpace
) -> usage.TreeUse:
    """The pod's usage of ephemeral storage, on the node's file system."""
    layers = [group.layer for group in pod.containers if group.layer is not None]
    parts = [*layers, *ephemeral_parts(disk)]
    return usage.TreeUse(
        max([root.at, *(part.at for part in parts)]),
        sum(part.used or 0 for part in parts),
        sum(part.inodes or 0 for part in parts),
        root,
        any(part.at_least for part in parts),
    )


def _container(
    group: usage.CgroupUsage,
    rates: Mapping[str, int],
    disks: usage.Disks | None,
    disk: usage.PodDisk,
) -> JSON:
    found: JSON = {
        "name": group.name,
        "startTime": _time(group.created_at),
        **_usage(group, rates, whole=disks is not None),
    }
    if disks is None:
        return found
    if group.layer is not None:
        found["rootfs"] = _fs(group.layer)
    if (logs := disk.logs.get(group.name)) is not None:
        found["logs"] = _fs(replace(logs, space=disks.root or logs.space))
    return found


def _usage(group: usage.CgroupUsage, rates: Mapping[str, int], *, whole: bool) -> JSON:
    """cpu, memory and swap; with ``whole`` io too."""
    stats = group.stats
    if stats is None:
        return {}
    at, found = _time(stats.at), {}
    if stats.cpu_ns is not None:
        found["cpu"] = _present(
            time=at,
            usageNanoCores=rates.get(rate_key(group)),
            usageCoreNanoSeconds=stats.cpu_ns,
            psi=_psi(stats.cpu_psi),
        )
    if stats.memory is not None or stats.working_set is not None:
        found["memory"] = _present(
            time=at,
            availableBytes=stats.memory_available,
            usageBytes=stats.memory,
            workingSetBytes=stats.working_set,
            rssBytes=stats.rss,
            pageFaults=stats.faults,
            majorPageFaults=stats.major_faults,
            psi=_psi(stats.memory_psi),
        )
    if whole and stats.io_psi is not None:
        found["io"] = {"time": at, "psi": _psi(stats.io_psi)}
    if stats.swap is not None:
        found["swap"] = _present(
            time=at, swapAvailableBytes=stats.swap_available, swapUsageBytes=stats.swap
        )
    return found


def _fs(use: usage.TreeUse) -> JSON:
    space = use.space
    return _present(
        time=_time(use.at),
        availableBytes=space and space.available,
        capacityBytes=space and space.capacity,
        usedBytes=use.used,
        inodesFree=space and space.inodes_free,
        inodes=space and space.inodes,
        inodesUsed=use.inodes,
    )


def _claimed(found: MeasuredVolume) -> JSON:
    """A volume of a claim, a driver or a disk."""
    stats, claim, abnormal = found.stats, found.volume.claim, found.stats.abnormal
    return _present(
        time=_time(round(found.at * 1e9)),
        availableBytes=stats.available_bytes,
        capacityBytes=stats.capacity_bytes,
        usedBytes=stats.used_bytes,
        inodesFree=stats.inodes_free,
        inodes=stats.inodes,
        inodesUsed=stats.inodes_used,
        name=found.volume.name,
        pvcRef=None if claim is None else {"name": claim[1], "namespace": claim[0]},
        volumeHealthStats=None if abnormal is None else {"abnormal": abnormal},
    )


def _network(network: usage.Network) -> JSON:
    each = [_interface(interface) for interface in network.interfaces]
    default = next((one for one in each if one["name"] == network.default), {"name": ""})
    return {"time": _time(network.at), **default, "interfaces": each}


def _interface(interface: usage.Interface) -> JSON:
    return {
        "name": interface.name,
        "rxBytes": interface.rx_bytes,
        "rxErrors": interface.rx_errors,
        "txBytes": interface.tx_bytes,
        "txErrors": interface.tx_errors,
    }


def _psi(psi: usage.Psi | None) -> JSON | None:
    return None if psi is None else {"full": asdict(psi.full), "some": asdict(psi.some)}


def _present(**values: object) -> JSON:
    return {name: value for name, value in values.items() if value is not None}


def _time(nanoseconds: int) -> str | None:
    """RFC 3339 in whole seconds; null when unknown, as Go writes a zero time."""
    return format_time(nanoseconds / 1e9) if nanoseconds > 0 else None
