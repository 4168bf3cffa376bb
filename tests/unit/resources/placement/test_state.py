"""State files in the kubelet's form. Sums: docs/reference/behaviour-resources.md, rx."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from kubeletpy.base.structs import replace
from kubeletpy.pods.pod import fnv1a_32
from kubeletpy.resources.devices import checkpoint
from kubeletpy.resources.devices.model import DeviceHolder
from kubeletpy.resources.devices.pick import plugin_additions
from kubeletpy.resources.placement import state as go_dump
from kubeletpy.resources.placement.model import format_ids, parse_ids
from kubeletpy.resources.placement.state import (
    Block,
    CpuState,
    Entries,
    MemoryState,
    NodeMemory,
    StateError,
    Table,
    read_cpu_state,
    read_memory_state,
    write_cpu_state,
    write_memory_state,
    write_object,
)

NODE = NodeMemory(1, {"hugepages-2Mi": Table(), "memory": Table(100, 10, 90, 30, 60)}, (0,))
MEMORY = MemoryState("Static", {0: NODE}, {"uid-a": {"c": (Block((0,), "memory", 30),)}})


def cpus(*ids: int) -> frozenset[int]:
    return frozenset(ids)


@pytest.mark.parametrize(
    ("state", "checksum"),
    [
        (CpuState("none"), 1353318690),
        (CpuState("static", cpus(0, 1)), 1636926438),
        (CpuState("static", frozenset(range(32))), 3540042759),
        (
            CpuState(
                "static",
                cpus(0),
                {"uid-b": {"c1": cpus(1), "c2": cpus(3)}, "uid-a": {"c": cpus(2)}},
            ),
            1403785057,
        ),
    ],
)
def test_cpu_sums(state: CpuState, checksum: int) -> None:
    text = write_cpu_state(state)
    assert json.loads(text)["checksum"] == checksum
    assert read_cpu_state(text) == state
    backwards = dict(reversed(json.loads(text).items()))
    assert read_cpu_state(json.dumps(backwards, indent=3)) == state


@pytest.mark.parametrize(
    ("state", "checksum"), [(MemoryState("None"), 4236770233), (MEMORY, 1059691041)]
)
def test_memory_sums(state: MemoryState, checksum: int) -> None:
    text = write_memory_state(state)
    assert json.loads(text)["checksum"] == checksum
    assert read_memory_state(text) == state


def devices(entries: object, registered: Mapping[str, object]) -> int:
    return go_dump.checksum(
        "checkpoint.checkpointData",
        (
            ("PodDeviceEntries", "[]checkpoint.PodDevicesEntry", entries),
            ("RegisteredDevices", "map[string][]string", go_dump.dump_text_map(registered)),
        ),
    )


def test_sums_of_devices() -> None:
    """The devices package writes this file; its grammar is tested here."""
    assert devices(go_dump.dump_list(None), {}) == 3467439661
    assert devices(go_dump.dump_list([]), {}) == 2932075448
    entry = go_dump.dump_struct(
        (
            ("PodUID", "string", "uid-a"),
            ("ContainerName", "string", "c"),
            ("ResourceName", "string", "example.com/dev"),
            (
                "DeviceIDs",
                "checkpoint.DevicesPerNUMA",
                go_dump.dump_number_map(
                    {0: go_dump.dump_list(["d2", "d0"]), -1: go_dump.dump_list(["d1"])}
                ),
            ),
            ("AllocResp", "[]uint8", go_dump.dump_list(bytes.fromhex("0a060a0141120131"))),
        )
    )
    registered = {
        "example.com/dev": go_dump.dump_list(["d0", "d1", "d2"]),
        "example.com/a": go_dump.dump_list([]),
    }
    assert devices(go_dump.dump_list([entry]), registered) == 3675780745


def test_entries_are_left_out_when_there_are_none() -> None:
    assert "entries" not in json.loads(write_cpu_state(CpuState("static", cpus(0), {"a": {}})))
    without = write_memory_state(MemoryState("None"))
    assert "entries" not in json.loads(without)
    assert write_memory_state(MemoryState("None", {}, {"a": {}})) == without


@pytest.mark.parametrize(
    ("state", "empty"),
    [
        (MemoryState("None"), True),
        (MemoryState("Static", {0: NODE}), False),
        (MemoryState("Static", {}, MEMORY.entries), False),
        (MEMORY, False),
    ],
)
def test_memory_states_that_hold_nothing(state: MemoryState, empty: bool) -> None:
    assert state.is_empty is empty


def test_missing_fields_default_to_empty() -> None:
    """Go writes null for a slice that was never made."""
    node = NodeMemory(0, {"memory": Table()}, None)
    blocks = (Block(None, "memory", 3),)
    found = read_memory_state(
        '{"policyName":"Static","machineState":{"0":{"memoryMap":{"memory":{}}},"1":{}},'
        '"entries":{"a":{"c":[{"numaAffinity":null,"type":"memory","size":3}]}},"checksum":0}'
    )
    assert found == MemoryState(
        "Static", {0: node, 1: NodeMemory(0, {}, None)}, {"a": {"c": blocks}}
    )
    assert read_memory_state(write_memory_state(found)) == found


def test_zero_is_no_sum() -> None:
    found = json.loads(write_cpu_state(CpuState("static", cpus(0, 1))))
    assert read_cpu_state(json.dumps({**found, "checksum": 0})).pool == cpus(0, 1)
    del found["checksum"]
    assert read_cpu_state(json.dumps(found)).pool == cpus(0, 1)
    for odd in (None, "0", 0.0):
        with pytest.raises(StateError, match=f"^its checksum is {odd}, the computed one is "):
            read_cpu_state(json.dumps({**found, "checksum": odd}))


def test_names_are_written_as_they_are() -> None:
    assert write_object({"b": "é", "a": [1]}) == '{"b":"é","a":[1]}'


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "not JSON"),
        ("[]", "not a JSON object"),
        ("[" * 100_000, "not JSON"),
        (
            '{"policyName":"static","defaultCpuSet":"0-1","checksum":1}',
            "checksum is 1, the computed",
        ),
        ('{"policyName":7}', "policyName is not a string"),
        ('{"policyName":"static","defaultCpuSet":"0-x","checksum":0}', "'0-x' is not a list"),
        ('{"entries":{"id":"0-1"},"checksum":0}', "entries has a form"),
        ('{"entries":{"id":{"c":1}},"checksum":0}', "entries holds what is not a string"),
        ('{"podEntries":{"a":{"cpuSet":1}},"checksum":0}', "podEntries holds what is not a string"),
        ('{"podEntries":{"a":{"cpuSet":"1-x"}},"checksum":0}', "'1-x' is not a list"),
    ],
)
def test_files_of_the_cpu_manager_that_cannot_be_used(text: str, why: str) -> None:
    with pytest.raises(StateError, match=why):
        read_cpu_state(text)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('{"machineState":[]}', "machineState has a form"),
        ('{"machineState":{"x":{}}}', "has a form"),
        ('{"entries":{"a":{"c":[{"size":1}]}}}', "has a form"),
        ('{"policyName":"None","machineState":{},"checksum":1}', "checksum is 1"),
        ('{"podEntries":{"a":[]},"checksum":0}', "podEntries has a form"),
    ],
)
def test_files_of_the_memory_manager_that_cannot_be_used(text: str, why: str) -> None:
    with pytest.raises(StateError, match=why):
        read_memory_state(text)


@pytest.mark.parametrize(
    ("ids", "text"), [((), ""), ((3,), "3"), ((1, 0), "0-1"), ((0, 1, 2, 4, 6, 7), "0-2,4,6-7")]
)
def test_lists_of_ids(ids: tuple[int, ...], text: str) -> None:
    assert format_ids(ids) == text
    assert parse_ids(text + "\n") == frozenset(ids)


def test_the_text_that_is_summed() -> None:
    text = (
        "(*state.CPUManagerCheckpoint){PolicyName:(string)none DefaultCPUSet:(string) "
        "Entries:(map[string]map[string]string)map[] Checksum:(checksum.Checksum)0}"
    )
    assert fnv1a_32(text.encode()) == 1353318690


# State files as each kubelet version writes them, and what the agent makes of them.

JSON = dict[str, Any]
CPUS: JSON = {"policyName": "static", "defaultCpuSet": "0,3", "entries": {"uid-a": {"c": "1-2"}}}
CPU_STATE = CpuState("static", frozenset({0, 3}), {"uid-a": {"c": frozenset({1, 2})}})
OF_PODS = {"podEntries": {"uid-b": {"cpuSet": "3"}}}
BASELINES = {"baselines": {"uid-a": {"c": {"baseline": "1-2"}}}}
_NONE = dict.fromkeys(("total", "systemReserved", "allocatable", "reserved", "free"), 0)
_SOME = {"total": 100, "systemReserved": 10, "allocatable": 90, "reserved": 30, "free": 60}
VERSIONS_MEMORY: JSON = {
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
        pytest.param(flat(VERSIONS_MEMORY, 1059691041), id="1.35, 1.36"),
        pytest.param(flat(VERSIONS_MEMORY, 707553288), id="1.36, memory of pods, none"),
        pytest.param(dual(VERSIONS_MEMORY, 1059691041, 1451212601), id="1.37"),
    ],
)
def test_memory_of_each_version(text: str) -> None:
    found = read_memory_state(text)
    assert found == MEMORY_STATE
    assert write_memory_state(found) == flat(VERSIONS_MEMORY, 1059691041)


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
        pytest.param(flat(VERSIONS_MEMORY, 3036042488, **MEMORY_OF_PODS), id="1.36"),
        pytest.param(dual(VERSIONS_MEMORY, 1059691041, 1218381671, **MEMORY_OF_PODS), id="1.37"),
    ],
)
def test_pod_level_memory(text: str) -> None:
    found = read_memory_state(text)
    pools = {"uid-b": (Block((0,), "memory", 20),)}
    assert found == replace(MEMORY_STATE, pools=pools)
    assert write_memory_state(found) == dual(
        VERSIONS_MEMORY, 1059691041, 1218381671, **MEMORY_OF_PODS
    )


@pytest.mark.parametrize("read", [read_cpu_state, read_memory_state])
def test_the_checksum_covers_the_pods(read: Any) -> None:
    values, sums, pods = (
        (CPUS, (1374233484, 1847887514), OF_PODS)
        if read is read_cpu_state
        else (VERSIONS_MEMORY, (1059691041, 707553288), MEMORY_OF_PODS)
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


# Allocation of CPUs to containers, and their return to the pool.

P = "static"
C0, C12, C1, C2 = frozenset({0}), frozenset({1, 2}), frozenset({1}), frozenset({2})
NONE: frozenset[int] = frozenset()


@pytest.mark.parametrize(
    ("entries", "container", "left", "back"),
    [
        ({"u": {"a": C12}}, "a", {}, C12),
        ({"u": {"a": C1, "b": C2}}, "a", {"u": {"b": C2}}, C1),
        # the CPUs of an init container also belong to a later container
        ({"u": {"i": C12, "a": C1}}, "i", {"u": {"a": C1}}, C2),
        ({"u": {"a": C1}, "v": {"a": C2}}, "a", {"v": {"a": C2}}, C1),
        ({"u": {"a": C1}}, "x", {"u": {"a": C1}}, NONE),
        ({"v": {"a": C1}}, "a", {"v": {"a": C1}}, NONE),
        ({}, "a", {}, NONE),
    ],
)
def test_taken_back(entries: Entries, container: str, left: Entries, back: frozenset[int]) -> None:
    assert CpuState(P, C0, entries).without_container("u", container) == CpuState(
        P, C0 | back, left
    )


@pytest.mark.parametrize(
    ("uids", "left", "back"),
    [
        ({"u", "v"}, {"u": {"a": C12}, "v": {"a": C1}}, NONE),
        ({"u"}, {"u": {"a": C12}}, NONE),
        ({"v"}, {"v": {"a": C1}}, C2),
        ({"x"}, {}, C12),
    ],
)
def test_without_all_but(uids: set[str], left: Entries, back: frozenset[int]) -> None:
    state = CpuState(P, C0, {"u": {"a": C12}, "v": {"a": C1}})
    found = state.without_all_but(uids)
    assert found == CpuState(P, C0 | back, left)
    assert (found is state) == (uids == {"u", "v"})


def test_cpus_of_a_container() -> None:
    state = CpuState(P, C0 | C12, {"v": {"a": C0}})
    one = state.with_container("u", "a", C1)
    assert one == CpuState(P, C0 | C2, {"v": {"a": C0}, "u": {"a": C1}})
    two = one.with_container("u", "b", C2)
    assert two == CpuState(P, C0, {"v": {"a": C0}, "u": {"a": C1, "b": C2}})
    assert (
        two.container_cpus("u", "b"),
        two.container_cpus("u", "x"),
        two.container_cpus("x", "b"),
    ) == (C2, None, None)
    assert two.exclusive == C0 | C12


@pytest.mark.parametrize(
    ("state", "empty"),
    [
        (CpuState(P), True),
        (CpuState(P, C0), False),
        (CpuState(P, NONE, {"u": {"a": C0}}), False),
        (CpuState(P, C1, {"u": {"a": C0}}), False),
    ],
)
def test_empty(state: CpuState, empty: bool) -> None:
    assert state.is_empty is empty


# State files that a kubelet 1.36.2 wrote, with CPUs, memory and devices of an init container and a
# container in use: they are read, and written as they were.

WRITTEN = Path(__file__).parent / "kubelet_1_36"
UID = "ef6fe03725e348f17ee0c082ddfc00f4"


def written(name: str) -> tuple[str, Any]:
    text = (WRITTEN / name).read_text()
    return text, json.loads(text)


def test_cpus() -> None:
    text, whole = written("cpu_manager_state")
    state = read_cpu_state(text)
    assert state.pool == {0}
    assert state.entries[UID] == {"main": {1}, "i": {1}}
    assert json.loads(write_cpu_state(state)) == whole


def test_memory() -> None:
    text, whole = written("memory_manager_state")
    state = read_memory_state(text)
    assert state.container_blocks(UID, "main") == (Block((0,), "memory", 64 << 20),)
    assert state.container_blocks(UID, "i") is None, (
        "given back when the next container was started"
    )
    assert json.loads(write_memory_state(state)) == whole


def test_devices() -> None:
    text, whole = written("kubelet_internal_checkpoint")
    bookings, resources = checkpoint.parse_checkpoint(text)
    assert resources == ("test.example/dev",)
    main = bookings[DeviceHolder(UID, "main", "test.example/dev")]
    assert main.by_node == {0: ("d3", "d2")}, "in no order, and part of the sum"
    assert bookings[DeviceHolder(UID, "i", "test.example/dev")].ids < main.ids
    supplied = plugin_additions({"test.example/dev": main})
    assert ("DEVICES", "d2,d3") in supplied.envs
    assert [each.container_path for each in supplied.devices] == ["/dev/d2", "/dev/d3"]
    again = json.loads(checkpoint.render(bookings, whole["Data"]["RegisteredDevices"]))
    assert again == whole
