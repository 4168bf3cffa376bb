"""Plugins with very many devices, and very many plugins: the load on the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable
from pathlib import Path
from typing import Any

import pytest

from kubeletpy.pods.runtime_status import ContainerConfigError
from kubeletpy.remote.generated import deviceplugin_pb2 as pb
from kubeletpy.resources.devices import registration
from kubeletpy.resources.devices.device_manager import DeviceManager
from kubeletpy.resources.devices.model import Booking, RegistrationRefused
from kubeletpy.resources.devices.pick import plugin_additions
from kubeletpy.resources.devices.plugin import MAX_ADDITIONS
from kubeletpy.resources.devices.registration import MAX_RESOURCES
from kubeletpy.resources.placement.model import AllocationRefused
from tests.kit.costs import turns_measured
from tests.kit.devices import SimPlugin
from tests.kit.virtual_time import on_virtual_time
from tests.unit.resources.devices.test_device_manager import GPU, Node, admit, ids, pod

MANY = 100_000
LIMIT_S = 0.05


class Long(SimPlugin):
    """Lists very many devices; the lists are created beforehand."""

    def __init__(self) -> None:
        super().__init__()
        self.lists = [_list("Healthy"), _list("Unhealthy"), _list("Healthy")]
        self.taken = [asyncio.Event() for _ in self.lists]

    async def stream(self, method: str, request: Any, answer: Any) -> AsyncIterator[Any]:
        for each, taken in zip(self.lists, self.taken, strict=True):
            yield each
            taken.set()
        await asyncio.Event().wait()


def _list(health: str) -> pb.ListAndWatchResponse:
    listed = [pb.Device(ID=f"device-{n}", health=health) for n in range(MANY)]
    return pb.ListAndWatchResponse(devices=listed)


async def test_a_list_of_very_many_devices_never_holds_the_loop(tmp_path: Path) -> None:
    node = Node(tmp_path)
    plugin = node.plugins["a"] = Long()
    async with node.agent() as agent:
        with turns_measured() as turns:
            await agent.plugins.register(GPU, "a")
            for taken in plugin.taken:
                await taken.wait()
        assert turns.longest < LIMIT_S, f"{turns.longest:.3f} s of CPU time in one turn"
        assert agent.counts({}).allocatable == {GPU: MANY}
        await admit(agent, pod("one", 3))
        assert ids(agent, "one") == {"device-0", "device-1", "device-10"}


def registering(agent: DeviceManager, node: Node, number: int) -> Awaitable[None]:
    node.plugins[f"{number}"] = SimPlugin("d0")
    return agent.plugins.register(f"vendor.example/r{number}", f"{number}")


@on_virtual_time
async def test_plugins_of_very_many_resources_that_register_together(tmp_path: Path) -> None:
    node = Node(tmp_path)
    async with node.agent() as agent:
        requested = [registering(agent, node, number) for number in range(2000)]
        answers = await asyncio.gather(*requested, return_exceptions=True)
        assert answers.count(None) == MAX_RESOURCES
        refused = {str(each) for each in answers if each is not None}
        assert len(refused) == 1
        assert f"of {MAX_RESOURCES} resources already" in refused.pop()
        await registering(agent, node, 0)  # a resource that the node already has may register again


@on_virtual_time
async def test_very_many_plugins_one_after_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each ends before the next begins: the node shows its resource for five minutes more."""
    monkeypatch.setattr(registration, "MAX_RESOURCES", 5)
    node = Node(tmp_path)
    async with node.agent() as agent:
        for number in range(5):
            await registering(agent, node, number)
            await asyncio.sleep(0.2)
            node.plugins[f"{number}"].die()
            await asyncio.sleep(0.01)
        with pytest.raises(RegistrationRefused, match="stopped in the last five minutes"):
            await registering(agent, node, 5)
        assert len(agent.counts({}).capacity) == 5
        await asyncio.sleep(302)
        await registering(agent, node, 5)
        assert not agent.plugins._problems


# Answers of device plugins that are refused.

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
