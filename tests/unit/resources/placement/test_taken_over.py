"""State files that a kubelet 1.36.2 wrote, with CPUs, memory and devices of an init container and a
container in use: they are read, and written as they were."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from kubeletpy.resources.devices import checkpoint
from kubeletpy.resources.devices.model import DeviceHolder
from kubeletpy.resources.devices.pick import plugin_additions
from kubeletpy.resources.placement.state import (
    Block,
    read_cpu_state,
    read_memory_state,
    write_cpu_state,
    write_memory_state,
)

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
