"""``cpu_manager_state``: which container has which CPUs, in the kubelet's form. Pure.

Source: docs/reference/behaviour-resources.md, rx.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import MappingProxyType

from kubeletpy.base.structs import Struct, field, replace
from kubeletpy.resources.placement import go_dump
from kubeletpy.resources.placement.id_lists import format_ids, parse_ids
from kubeletpy.resources.placement.state_json import (
    StateError,
    read_object,
    read_text_maps,
    write_state,
)

TYPE = "*state.CPUManagerCheckpoint"
Parts = Mapping[str, frozenset[int]]
"""CPUs by name of the container."""
Entries = Mapping[str, Parts]
"""CPUs by uid of the pod and name of the container."""


class CpuState(Struct, frozen=True):
    """Which container has which CPUs.

    Attributes:
        policy: the cpuManagerPolicy by which they were assigned.
        pool: the CPUs of all containers that have none of their own.
        entries: a container's own CPUs, or its part of its pod's pool.
        pools: the CPUs of a pod that is placed as one, by uid.
    """

    policy: str
    pool: frozenset[int] = frozenset()
    entries: Entries = field(default_factory=lambda: MappingProxyType({}))
    pools: Mapping[str, frozenset[int]] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def is_empty(self) -> bool:
        """Whether it holds nothing."""
        return not self.pool and not self.entries and not self.pools

    def container_cpus(self, uid: str, container: str) -> frozenset[int] | None:
        """A container's own, or its part of its pod's pool; None: it has none."""
        return self.entries.get(uid, {}).get(container)

    def pod_cpus(self, uid: str) -> frozenset[int]:
        """All CPUs of a pod: its pool, or what its containers have."""
        found = self.pools.get(uid)
        return frozenset().union(*self.entries.get(uid, {}).values()) if found is None else found

    def with_container(self, uid: str, container: str, cpus: frozenset[int]) -> CpuState:
        """The state after CPUs move from the pool to a container."""
        mine = {**self.entries.get(uid, {}), container: cpus}
        return replace(self, pool=self.pool - cpus, entries={**self.entries, uid: mine})

    def with_pool(self, uid: str, cpus: frozenset[int], parts: Parts) -> CpuState:
        """The state after CPUs move from the pool to a pod, and parts of them to its containers."""
        return CpuState(
            self.policy,
            self.pool - cpus,
            {**self.entries, uid: parts},
            {**self.pools, uid: cpus},
        )

    def without_container(self, uid: str, container: str) -> CpuState:
        """The state without a container: CPUs that no other of its pod has return to the pool.

        The pool of a pod returns with its last container.
        """
        others = {k: v for k, v in self.entries.get(uid, {}).items() if k != container}
        if not others:
            return self.without_all_but({*self.entries, *self.pools} - {uid})
        before = self.pod_cpus(uid)
        after = replace(self, entries={**self.entries, uid: others})
        return replace(after, pool=self.pool | (before - after.pod_cpus(uid)))

    def without_all_but(self, uids: Collection[str]) -> CpuState:
        """The state after all other pods give back what they had; itself if they had nothing."""
        gone = {*self.entries, *self.pools} - set(uids)
        if not gone:
            return self
        after = replace(
            self,
            entries={uid: of_pod for uid, of_pod in self.entries.items() if uid not in gone},
            pools={uid: cpus for uid, cpus in self.pools.items() if uid not in gone},
        )
        return replace(after, pool=self.pool | (self.exclusive - after.exclusive))

    @property
    def exclusive(self) -> frozenset[int]:
        """All CPUs that are exclusive to a container or a pod."""
        return frozenset().union(*map(self.pod_cpus, {*self.entries, *self.pools}))


def write_cpu_state(state: CpuState) -> str:
    """The file's text."""
    entries = {
        uid: {name: format_ids(cpus) for name, cpus in of_pod.items()}
        for uid, of_pod in state.entries.items()
        if of_pod
    }
    pool = format_ids(state.pool)
    return write_state(
        {
            "policyName": state.policy,
            "defaultCpuSet": pool,
            **({"entries": entries} if entries else {}),
        },
        cpu_checksum(state.policy, pool, entries),
        {uid: {"cpuSet": format_ids(cpus)} for uid, cpus in state.pools.items()},
    )


def read_cpu_state(text: str) -> CpuState:
    """The state in a file.

    Raises:
        StateError: it can't be used; the message contains the reason.
    """
    outer = read_object(text)
    inner = outer.inner()
    found = outer if inner is None else inner
    policy, pool = found.text("policyName"), found.text("defaultCpuSet")
    entries = read_text_maps(found.values.get("entries"), "entries")
    of_pods = read_text_maps(found.values.get("podEntries"), "podEntries")
    try:
        pools = {uid: parse_ids(entry.get("cpuSet", "")) for uid, entry in of_pods.items()}
        if inner is None:
            found.verify(
                *([] if pools else [cpu_checksum(policy, pool, entries)]),
                cpu_checksum(policy, pool, entries, pools),
            )
        return CpuState(
            policy,
            parse_ids(pool),
            {
                uid: {name: parse_ids(cpus) for name, cpus in of_pod.items()}
                for uid, of_pod in entries.items()
            },
            pools,
        )
    except ValueError as error:
        raise StateError(f"a set of CPUs can't be read: {error}") from error


def cpu_checksum(
    policy: str,
    pool: str,
    entries: Mapping[str, Mapping[str, str]],
    pools: Mapping[str, frozenset[int]] | None = None,
) -> int:
    """The checksum of a file with these texts in it.

    ``pools``: set for a file of 1.36 with the gate PodLevelResourceManagers.
    """
    of_pods = {uid: _dumped(cpus) for uid, cpus in (pools or {}).items()}
    pods = (
        ()
        if pools is None
        else (("PodEntries", "state.PodCPUAssignments", go_dump.text_map(of_pods)),)
    )
    return go_dump.checksum(
        TYPE,
        (
            ("PolicyName", "string", policy),
            ("DefaultCPUSet", "string", pool),
            (
                "Entries",
                "map[string]map[string]string",
                go_dump.text_map({uid: go_dump.text_map(of) for uid, of in entries.items()}),
            ),
            *pods,
            ("Checksum", "checksum.Checksum", 0),
        ),
    )


def _dumped(cpus: frozenset[int]) -> str:
    ids = go_dump.number_map(dict.fromkeys(cpus, "{}")) if cpus else go_dump.NIL
    elements = go_dump.struct((("elems", "map[int]struct {}", ids),))
    return go_dump.struct((("CPUSet", "cpuset.CPUSet", elements),))
