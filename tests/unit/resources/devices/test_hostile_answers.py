"""Answers of device plugins that are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kubeletpy.pods.runtime_status import ContainerConfigError
from kubeletpy.remote.generated import deviceplugin_pb2 as pb
from kubeletpy.resources.devices.model import Booking
from kubeletpy.resources.devices.pick import plugin_additions
from kubeletpy.resources.devices.plugin import MAX_ADDITIONS
from kubeletpy.resources.placement.model import AllocationRefused
from tests.unit.resources.devices.plugins import SimPlugin
from tests.unit.resources.devices.test_device_manager import Node, admit, ids, pod
from tests.virtual_time import on_virtual_time

FIELDS: dict[str, Any] = {
    "envs": {f"v{n}": "" for n in range(MAX_ADDITIONS + 1)},
    "annotations": {f"v{n}": "" for n in range(MAX_ADDITIONS + 1)},
    "mounts": [pb.Mount(container_path="/x", host_path="/x")] * (MAX_ADDITIONS + 1),
    "devices": [pb.DeviceSpec(container_path="/x", host_path="/x")] * (MAX_ADDITIONS + 1),
    "cdi_devices": [pb.CDIDevice(name="a/b=c")] * (MAX_ADDITIONS + 1),
}


@pytest.mark.parametrize("field", FIELDS)
@on_virtual_time
async def test_too_many_entries_for_one_container_are_refused(field: str, tmp_path: Path) -> None:
    node = Node(tmp_path)
    async with node.agent() as agent:
        plugin = await node.plugin(agent, "a", SimPlugin("d0"))
        supplied = pb.ContainerAllocateResponse(**{field: FIELDS[field]})
        plugin.faults["Allocate"] = lambda: pb.AllocateResponse(container_responses=[supplied])
        with pytest.raises(AllocationRefused, match=f"Allocate gives 1025 {field}, more than 1024"):
            await admit(agent, pod("one"))
        assert ids(agent, "one") == frozenset()


@pytest.mark.parametrize(("name", "text"), [("", "x"), ("a=b", "x"), ("a\0", "x"), ("a", "x\0")])
def test_an_invalid_variable(name: str, text: str) -> None:
    supplied = pb.ContainerAllocateResponse(envs={name: text}).SerializeToString()
    with pytest.raises(ContainerConfigError, match=r"plugin of v/gpu: .* is no variable's name"):
        plugin_additions({"v/gpu": Booking({}, supplied)})
