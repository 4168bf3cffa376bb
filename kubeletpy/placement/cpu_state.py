"""``cpu_manager_state``: which container has which CPUs, in the kubelet's form. Pure.

Source: docs/reference/behaviour-resources.md, rx.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import MappingProxyType

from kubeletpy.placement import go_dump
from kubeletpy.placement.id_lists import format_ids, parse_ids
from kubeletpy.placement.state_json import StateError, read_object, read_text_maps, write_object
from kubeletpy.structs import Struct, field

TYPE = "*state.CPUManagerCheckpoint"
Entries = Mapping[str, Mapping[str, frozenset[int]]]
"""By uid of the pod and name of the container."""


class CpuState(Struct, frozen=True):
    """Which container has which CPUs.

    Attributes:
        policy: the cpuManagerPolicy by which they were assigned.
        pool: the CPUs of all containers that have none of their own.
        entries: a container's own CPUs.
    """

    policy: str
    pool: frozenset[int] = frozenset()
    entries: Entries = field(default_factory=lambda: MappingProxyType({}))

    @property
    def is_empty(self) -> bool:
        """Whether it holds nothing."""
        return not self.pool and not self.entries

    def container_cpus(self, uid: str, container: str) -> frozenset[int] | None:
        """A container's own; None: it has none."""
        return self.entries.get(uid, {}).get(container)

    def with_container(self, uid: str, container: str, cpus: frozenset[int]) -> CpuState:
        """The state after CPUs move from the pool to a container."""
        mine = {**self.entries.get(uid, {}), container: cpus}
        return CpuState(self.policy, self.pool - cpus, {**self.entries, uid: mine})

    def without_container(self, uid: str, container: str) -> CpuState:
        """The state without a container: CPUs that no other of its pod has return to the pool."""
        others = {k: v for k, v in self.entries.get(uid, {}).items() if k != container}
        held = {cpu for cpus in others.values() for cpu in cpus}
        pool = self.pool | ((self.container_cpus(uid, container) or frozenset()) - held)
        rest = {k: v for k, v in self.entries.items() if k != uid}
        return CpuState(self.policy, pool, {**rest, uid: others} if others else rest)

    def without_all_but(self, uids: Collection[str]) -> CpuState:
        """The state after all other pods give back what they had; itself if they had nothing."""
        gone = self.entries.keys() - set(uids)
        if not gone:
            return self
        kept = {uid: of_pod for uid, of_pod in self.entries.items() if uid not in gone}
        freed = {cpu for uid in gone for cpus in self.entries[uid].values() for cpu in cpus}
        held = {cpu for of_pod in kept.values() for cpus in of_pod.values() for cpu in cpus}
        return CpuState(self.policy, self.pool | (freed - held), kept)

    @property
    def exclusive(self) -> frozenset[int]:
        """All CPUs that are exclusive to a container."""
        return frozenset(
            cpu for of_pod in self.entries.values() for cpus in of_pod.values() for cpu in cpus
        )


def write_cpu_state(state: CpuState) -> str:
    """The file's text."""
    entries = {
        uid: {name: format_ids(cpus) for name, cpus in of_pod.items()}
        for uid, of_pod in state.entries.items()
        if of_pod
    }
    pool = format_ids(state.pool)
    return write_object(
        {
            "policyName": state.policy,
            "defaultCpuSet": pool,
            **({"entries": entries} if entries else {}),
            "checksum": cpu_checksum(state.policy, pool, entries),
        }
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
    if found.values.get("podEntries"):
        raise StateError(
            "it has CPUs for whole pods (feature gate PodLevelResourceManagers), "
            "which this version does not support"
        )
    entries = read_text_maps(found.values.get("entries"), "entries")
    if inner is None:
        sums = (cpu_checksum(policy, pool, entries, of_pods=of_pods) for of_pods in (False, True))
        found.verify(*sums)
    try:
        return CpuState(
            policy,
            parse_ids(pool),
            {
                uid: {name: parse_ids(cpus) for name, cpus in of_pod.items()}
                for uid, of_pod in entries.items()
            },
        )
    except ValueError as error:
        raise StateError(f"a set of CPUs can't be read: {error}") from error


def cpu_checksum(
    policy: str, pool: str, entries: Mapping[str, Mapping[str, str]], *, of_pods: bool = False
) -> int:
    """The checksum of a file with these texts in it.

    ``of_pods``: of a file with CPUs of whole pods, which has none (1.36, PodLevelResourceManagers).
    """
    pods = (("PodEntries", "state.PodCPUAssignments", go_dump.text_map({})),) if of_pods else ()
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
