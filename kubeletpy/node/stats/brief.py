"""CPU and memory of each running container in few words, for `kubeletpy view`. Pure."""

from __future__ import annotations

from kubeletpy.base.api.types import JSON
from kubeletpy.node.stats.usage import CgroupUsage, GroupStats, Reading


def brief(reading: Reading) -> JSON:
    """``{"at", "problem", "pods": [{"uid", "containers": [...]}]}``.

    A container has ``name``, ``at`` (Unix seconds), ``cpu`` (seconds of CPU time since it began),
    ``memory`` (its working set) and ``memory_limit`` in bytes; None: unknown or unlimited.
    """
    return {
        "at": reading.at / 1e9,
        "problem": reading.problem,
        "pods": [
            {"uid": pod.ref.uid, "containers": [_container(group) for group in pod.containers]}
            for pod in reading.pods
        ],
    }


def _container(group: CgroupUsage) -> JSON:
    stats = group.stats or GroupStats()
    return {
        "name": group.name,
        "at": stats.at / 1e9 if stats.at else None,
        "cpu": None if stats.cpu_ns is None else stats.cpu_ns / 1e9,
        "memory": stats.working_set if stats.working_set is not None else stats.memory,
        "memory_limit": stats.limit,
    }
