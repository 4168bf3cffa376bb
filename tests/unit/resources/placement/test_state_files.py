"""State files in the kubelet's form. Sums: docs/reference/behaviour-resources.md, rx."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest

from kubeletpy.pods.pod import fnv1a_32
from kubeletpy.resources.placement import state as go_dump
from kubeletpy.resources.placement.model import format_ids, parse_ids
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
    ("ids", "text"),
    [((), ""), ((3,), "3"), ((1, 0), "0-1"), ((0, 1, 2, 4, 6, 7), "0-2,4,6-7")],
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
