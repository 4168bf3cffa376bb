"""State files as each kubelet version writes them, and what the agent makes of them.

The texts follow docs/reference/state-files.csv; their checksums are those of kubelets of these
versions, and each of them reads what the agent writes. Source:
docs/reference/behaviour-resources.md, rx.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from kubeletpy.base.structs import replace
from kubeletpy.resources.placement.state import (
    Block,
    CpuState,
    MemoryState,
    NodeMemory,
    StateError,
    Table,
    read_cpu_state,
    read_memory_state,
    write_cpu_state,
    write_memory_state,
)

JSON = dict[str, Any]

CPUS: JSON = {
    "policyName": "static",
    "defaultCpuSet": "0,3",
    "entries": {"uid-a": {"c": "1-2"}},
}
CPU_STATE = CpuState("static", frozenset({0, 3}), {"uid-a": {"c": frozenset({1, 2})}})
OF_PODS = {"podEntries": {"uid-b": {"cpuSet": "3"}}}
BASELINES = {"baselines": {"uid-a": {"c": {"baseline": "1-2"}}}}

_NONE = dict.fromkeys(("total", "systemReserved", "allocatable", "reserved", "free"), 0)
_SOME = {"total": 100, "systemReserved": 10, "allocatable": 90, "reserved": 30, "free": 60}
MEMORY: JSON = {
    "policyName": "Static",
    "machineState": {
        "0": {
            "numberOfAssignments": 1,
            "memoryMap": {"hugepages-2Mi": _NONE, "memory": _SOME},
            "cells": [0],
        }
    },
    "entries": {"uid-a": {"c": [{"numaAffinity": [0], "type": "memory", "size": 30}]}},
}
MEMORY_STATE = MemoryState(
    "Static",
    {0: NodeMemory(1, {"hugepages-2Mi": Table(), "memory": Table(100, 10, 90, 30, 60)}, (0,))},
    {"uid-a": {"c": (Block((0,), "memory", 30),)}},
)
MEMORY_OF_PODS = {
    "podEntries": {"uid-b": {"memoryBlocks": [{"numaAffinity": [0], "type": "memory", "size": 20}]}}
}


def flat(values: JSON, checksum: int, **more: Any) -> str:
    """A file of 1.35 or 1.36."""
    return json.dumps({**values, **more, "checksum": checksum}, separators=(",", ":"))


def dual(values: JSON, checksum: int, data_checksum: int, **more: Any) -> str:
    """A file of 1.37: the previous fields, and all of them again in one string."""
    data = json.dumps({**values, **more}, separators=(",", ":"))
    whole = {**values, "checksum": checksum, "data": data, "dataChecksum": data_checksum}
    return json.dumps(whole, separators=(",", ":"))


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(flat(CPUS, 1374233484), id="1.35, 1.36"),
        pytest.param(flat(CPUS, 1847887514), id="1.36, CPUs of pods, none"),
        pytest.param(dual(CPUS, 1374233484, 3312969397), id="1.37"),
    ],
)
def test_cpus_of_each_version(text: str) -> None:
    found = read_cpu_state(text)
    assert found == CPU_STATE
    assert write_cpu_state(found) == flat(CPUS, 1374233484), "the form that all versions read"


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(flat(MEMORY, 1059691041), id="1.35, 1.36"),
        pytest.param(flat(MEMORY, 707553288), id="1.36, memory of pods, none"),
        pytest.param(dual(MEMORY, 1059691041, 1451212601), id="1.37"),
    ],
)
def test_memory_of_each_version(text: str) -> None:
    found = read_memory_state(text)
    assert found == MEMORY_STATE
    assert write_memory_state(found) == flat(MEMORY, 1059691041)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(flat(CPUS, 1678768344, **OF_PODS), id="1.36"),
        pytest.param(dual(CPUS, 1374233484, 4285195582, **OF_PODS, **BASELINES), id="1.37"),
    ],
)
def test_pod_level_cpus(text: str) -> None:
    found = read_cpu_state(text)
    assert found == replace(CPU_STATE, pools={"uid-b": frozenset({3})})
    assert write_cpu_state(found) == dual(CPUS, 1374233484, 2385789642, **OF_PODS)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(flat(MEMORY, 3036042488, **MEMORY_OF_PODS), id="1.36"),
        pytest.param(dual(MEMORY, 1059691041, 1218381671, **MEMORY_OF_PODS), id="1.37"),
    ],
)
def test_pod_level_memory(text: str) -> None:
    found = read_memory_state(text)
    pools = {"uid-b": (Block((0,), "memory", 20),)}
    assert found == replace(MEMORY_STATE, pools=pools)
    assert write_memory_state(found) == dual(MEMORY, 1059691041, 1218381671, **MEMORY_OF_PODS)


@pytest.mark.parametrize("read", [read_cpu_state, read_memory_state])
def test_the_checksum_covers_the_pods(read: Any) -> None:
    values, sums, pods = (
        (CPUS, (1374233484, 1847887514), OF_PODS)
        if read is read_cpu_state
        else (MEMORY, (1059691041, 707553288), MEMORY_OF_PODS)
    )
    for checksum in sums:
        with pytest.raises(StateError, match="its checksum is "):
            read(flat(values, checksum, **pods))


def test_the_data_decides_over_the_fields_for_earlier_versions() -> None:
    whole = json.loads(dual(CPUS, 1374233484, 3312969397))
    others = {**whole, "defaultCpuSet": "0", "entries": {}, "checksum": 5, "newer": [1]}
    assert read_cpu_state(json.dumps(others)) == CPU_STATE


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"dataChecksum": 3312969398}, "^its dataChecksum is 3312969398, that of its data 33129"),
        ({"dataChecksum": 0}, "^its dataChecksum is 0, "),
        ({"dataChecksum": "3312969397"}, "^its dataChecksum is 3312969397, "),
        ({"data": ""}, "^its dataChecksum is 3312969397, that of its data "),
        ({"data": None}, "^data is not a string"),
        ({"data": "{", "dataChecksum": 3017666942}, "^it is not JSON: "),
        ({"data": "[]", "dataChecksum": 162654009}, "^it is not a JSON object"),
    ],
)
def test_a_damaged_one_is_not_read_as_an_earlier_form(change: JSON, why: str) -> None:
    """A kubelet 1.37 also refuses it: the earlier form may lack allocations of containers."""
    whole = json.loads(dual(CPUS, 1374233484, 3312969397))
    with pytest.raises(StateError, match=why):
        read_cpu_state(json.dumps({**whole, **change}))


def test_without_data_it_is_an_earlier_form() -> None:
    whole = {**CPUS, "checksum": 1374233484, "data": "", "dataChecksum": 0}
    assert read_cpu_state(json.dumps(whole)) == CPU_STATE
    with pytest.raises(StateError, match=r"^its checksum is 7, "):
        read_cpu_state(flat(CPUS, 7))
