"""Which dead containers, sandboxes and log files may go: the pure half of container GC.

Source: docs/reference/behaviour.md, p1; docs/reference/behaviour-resources.md, rg. Must never
select what runs, nor a pod's newest records while the pod exists.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType

from kubeletpy.base.structs import Struct
from kubeletpy.config.flags import NodeFlags
from kubeletpy.remote.generated import api_pb2 as cri
from kubeletpy.runtime_manager.names import (
    CONTAINER_NAME,
    POD_UID,
    container_id_of_log_link,
    pod_uid_of_log_directory,
    sandbox_rank,
)

REPORTED = 2
"""Ended runs of a container that a pod's status can show."""


class GCPolicy(Struct, frozen=True):
    """How many dead containers are kept."""

    min_age: float = 0
    """Seconds since creation."""
    max_per_container: int = 1
    """Per pod and container name; negative: no limit."""
    max_total: int = -1
    """On the node; negative: no limit."""

    @classmethod
    def from_flags(cls, flags: NodeFlags) -> GCPolicy:
        """The policy that the flags set."""
        return cls(
            min_age=flags.minimum_container_ttl_duration,
            max_per_container=flags.maximum_dead_containers_per_container,
            max_total=flags.maximum_dead_containers,
        )


class DeadContainer(Struct, frozen=True):
    """A container that is not running."""

    id: str
    pod_uid: str
    name: str
    created_at: int
    unknown: bool
    """The runtime has lost track of it: it is stopped before being removed."""
    unstarted: bool = False
    """Created, and perhaps about to be started."""
    attempt: int = 0

    @property
    def rank(self) -> tuple[int, int]:
        """Higher is newer, as ContainerStatus.rank."""
        return self.attempt, self.created_at


def dead_containers(
    containers: Iterable[cri.Container],
    policy: GCPolicy,
    now: float,
    known_for: Mapping[str, float] = MappingProxyType({}),
) -> list[DeadContainer]:
    """The pods' containers that do not run and are old enough. ``now``: Unix seconds.

    ``known_for``: container id -> seconds since this agent first listed it. A container is at least
    as old as that, also when the wall clock was set back after it was created.

    A container that is listed twice counts once: it must not be removed as the older of two.
    """
    found: dict[str, DeadContainer] = {}
    for container in containers:
        age = max(now - container.created_at / 1e9, known_for.get(container.id, 0.0))
        if container.state == cri.CONTAINER_RUNNING or age < policy.min_age:
            continue
        uid = container.labels.get(POD_UID, "")
        if uid and container.id:
            found[container.id] = DeadContainer(
                container.id,
                uid,
                container.labels.get(CONTAINER_NAME, "") or container.metadata.name,
                container.created_at,
                container.state == cri.CONTAINER_UNKNOWN,
                container.state == cri.CONTAINER_CREATED,
                container.metadata.attempt,
            )
    return list(found.values())


def containers_to_remove(
    dead: Sequence[DeadContainer],
    policy: GCPolicy,
    removable: Callable[[str], bool],
    *,
    all_sources_ready: bool,
    reported: Callable[[str], bool] = lambda uid: True,
) -> list[DeadContainer]:
    """The dead containers to remove, oldest first.

    ``reported(pod_uid)``: whether the API has how the pod's containers ended. Until it does, what
    it can show of each container (its state and its last state) stays.
    """
    going: list[DeadContainer] = []
    units: dict[tuple[str, str], list[DeadContainer]] = {}
    unreported: Counter[tuple[str, str]] = Counter()
    for container in sorted(dead, key=lambda c: c.rank, reverse=True):
        unit = (container.pod_uid, container.name)
        if not (container.unstarted or reported(container.pod_uid)) and unreported[unit] < REPORTED:
            unreported[unit] += 1
        elif all_sources_ready and removable(container.pod_uid):
            going.append(container)
        elif not container.unstarted:
            units.setdefault(unit, []).append(container)
    if policy.max_per_container >= 0:
        going += _keep_newest(units, policy.max_per_container)
    total = sum(map(len, units.values()))
    if 0 <= policy.max_total < total:
        going += _keep_newest(units, max(1, policy.max_total // len(units)))
        rest = sorted(
            (c for unit in units.values() for c in unit), key=lambda c: c.created_at, reverse=True
        )
        going += rest[policy.max_total :]
    return sorted(going, key=lambda c: c.created_at)


def sandboxes_to_remove(
    sandboxes: Iterable[cri.PodSandbox], in_use: frozenset[str], removable: Callable[[str], bool]
) -> list[tuple[str, str]]:
    """(id, pod uid) of sandboxes to remove, oldest first. ``in_use``: ids that have containers."""
    by_pod: dict[str, list[cri.PodSandbox]] = {}
    for sandbox in {each.id: each for each in sandboxes}.values():
        uid = sandbox.labels.get(POD_UID, "")
        if uid and sandbox.id:
            by_pod.setdefault(uid, []).append(sandbox)
    going = []
    for uid, group in by_pod.items():
        newest_first = sorted(group, key=sandbox_rank, reverse=True)
        candidates = newest_first if removable(uid) else newest_first[1:]
        going += [
            (uid, sandbox)
            for sandbox in candidates
            if sandbox.state != cri.SANDBOX_READY and sandbox.id not in in_use
        ]
    going.sort(key=lambda pair: pair[1].created_at)
    return [(sandbox.id, uid) for uid, sandbox in going]


def log_directories_to_remove(names: Iterable[str], removable: Callable[[str], bool]) -> list[str]:
    """Log directories whose pod was removed. A directory without such a name is not ours."""
    return [
        name for name in names if name.count("_") >= 2 and removable(pod_uid_of_log_directory(name))
    ]


def dead_links_to_remove(names: Iterable[str], live_ids: Iterable[str]) -> list[str]:
    """Links without a target whose container was removed or has ended.

    While a log is being rotated, its link has no target for a moment.
    """
    live = tuple(live_ids)
    going = []
    for name in names:
        container_id = container_id_of_log_link(name)
        if container_id and not any(known.startswith(container_id) for known in live):
            going.append(name)
    return going


def _keep_newest(
    units: dict[tuple[str, str], list[DeadContainer]], keep: int
) -> list[DeadContainer]:
    removed: list[DeadContainer] = []
    for key, newest_first in units.items():
        removed += newest_first[keep:]
        units[key] = newest_first[:keep]
    return removed
