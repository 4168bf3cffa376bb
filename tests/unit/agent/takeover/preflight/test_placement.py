"""Whether pods keep the CPUs that they have by position, tried on copies of the state files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kubeletpy.agent.takeover.preflight.node_pods import PlacementNotTried, no_position, placing
from kubeletpy.config import KubeletSettings, default_settings
from kubeletpy.pods.pod import Pod
from kubeletpy.resources.placement.machine import MachineTopology, TopologyUnknown
from kubeletpy.resources.placement.model import Cpu, CpuTopology, NumaNode
from kubeletpy.resources.placement.state import CpuState, write_cpu_state
from tests.kit.cgroups import fixed, pod
from tests.kit.machines import FACTS

FILE = "cpu_manager_state"
POOL = frozenset({0})
TWO_NODES = MachineTopology(
    CpuTopology({n: Cpu(n, core=n, socket=n // 2, numa=n // 2, uncore=n // 2) for n in range(4)}),
    {n: NumaNode(FACTS.memory_bytes // 2, {}) for n in range(2)},
    {0: (10, 20), 1: (20, 10)},
)


def settings(**more: Any) -> KubeletSettings:
    made = {"cpuManagerPolicy": "static", "kubeReserved": {"cpu": "1"}, **more}
    return default_settings(**made)


def exclusive(uid: str, cpus: str) -> Pod:
    return pod({"name": "c", **fixed(cpus, "1Gi")}, uid=uid)


async def refused(supplied: KubeletSettings, root: Path, state: CpuState, *pods: Pod) -> list[str]:
    """The reason of each refusal; empty for a pod that has a position."""
    before = write_cpu_state(state)
    (root / FILE).write_text(before)
    async with placing(supplied, FACTS, root, lambda: TWO_NODES) as place:
        found = [place(each) for each in pods]
    assert (root / FILE).read_text() == before, "nothing is written"
    return ["" if each is None else str(each.reason) for each in found]


async def test_pods_keep_their_cpus_and_others_get_what_is_left(tmp_path: Path) -> None:
    state = CpuState("static", frozenset({0, 3}), {"u1": {"c": frozenset({1, 2})}})
    pods = (exclusive("u1", "2"), exclusive("u2", "1"), exclusive("u3", "1"), pod(uid="u4"))
    found = await refused(settings(), tmp_path, state, *pods)
    assert found == ["", "", "UnexpectedAdmissionError", ""]


async def test_cpus_of_two_numa_nodes_do_not_suit_a_policy_of_one(tmp_path: Path) -> None:
    state = CpuState("static", frozenset({0, 3}), {"u1": {"c": frozenset({1, 2})}})
    single = settings(topologyManagerPolicy="single-numa-node")
    found = await refused(single, tmp_path, state, exclusive("u1", "2"), exclusive("u2", "1"))
    assert found == ["TopologyAffinityError", ""]


async def test_a_node_without_the_managers_is_not_read(tmp_path: Path) -> None:
    def unreadable() -> MachineTopology:
        raise AssertionError("it is not needed")

    async with placing(default_settings(), FACTS, tmp_path, unreadable) as place:
        assert place is no_position
        assert place(exclusive("u1", "2")) is None


async def test_a_state_that_would_stop_the_agent_is_reported(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text(write_cpu_state(CpuState("none", POOL)))
    with pytest.raises(PlacementNotTried, match=r"cpu_manager_state can't be used"):
        async with placing(settings(), FACTS, tmp_path, lambda: TWO_NODES):
            raise AssertionError("it can't be tried")

    def unknown() -> MachineTopology:
        raise TopologyUnknown("no sysfs")

    with pytest.raises(PlacementNotTried, match="no sysfs"):
        async with placing(settings(), FACTS, tmp_path, unknown):
            raise AssertionError("it can't be tried")
