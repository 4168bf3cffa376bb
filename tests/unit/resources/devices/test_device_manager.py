"""Device allocation while plugins die, return, lie and hang, and agents are killed."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest

from kubeletpy.metrics.families import Families
from kubeletpy.metrics.resources import DeviceMetrics
from kubeletpy.pods.environment import EnvironmentInputs
from kubeletpy.pods.pod import DeviceCounts, Pod
from kubeletpy.pods.runtime_status import ContainerConfigError
from kubeletpy.remote.errors import Code
from kubeletpy.remote.generated import deviceplugin_pb2 as pb
from kubeletpy.resources.devices import registration
from kubeletpy.resources.devices.checkpoint import FILE, parse_checkpoint
from kubeletpy.resources.devices.device_manager import RETURNS_WITHIN_S, DeviceManager
from kubeletpy.resources.devices.model import AwaitedPlugins, RegistrationRefused
from kubeletpy.resources.placement.model import AllocationRefused, Hint
from kubeletpy.runtime_manager.protocol import ContainerAdditions
from tests.kit.devices import SimPlugin, failed, hang

pytestmark = pytest.mark.virtual_time

GPU = "vendor.example/gpu"
ANY = Hint(None, True)


def pod(uid: str, desired: int = 1, *, resource: str = GPU) -> Pod:
    limits = {resource: str(desired)}
    return Pod(
        {
            "metadata": {"name": uid, "namespace": "n", "uid": uid},
            "spec": {"containers": [{"name": "c", "resources": {"limits": limits}}]},
            "status": {},
        }
    )


@dataclass
class Node:
    """State that outlives an agent: the directory, the plugins, running pods."""

    directory: Path
    plugins: dict[str, SimPlugin] = field(default_factory=dict)
    """Plugins by socket."""
    running: set[str] = field(default_factory=set)
    notified: list[str] = field(default_factory=list)
    node_told: int = 0

    def _node_changed(self) -> None:
        self.node_told += 1

    @asynccontextmanager
    async def agent(self, *, listen: bool = False) -> AsyncIterator[DeviceManager]:
        """An agent that is killed at the end: nothing is closed or written."""
        made = DeviceManager(
            self.directory,
            DeviceMetrics(Families()),
            nodes=(0,),
            pod_runs=lambda uid: uid in self.running,
            is_active=lambda uid: True,
            node_changed=self._node_changed,
            pod_changed=self.notified.append,
            open_plugin=lambda socket, resource: cast(Any, self.plugins[socket]),
            listen=listen,
        )
        await made.start()
        run = asyncio.create_task(made.plugins.run())
        try:
            yield made
        finally:
            run.cancel()
            for watch in list(made.plugins._watches.values()):
                watch.cancel()
            await asyncio.gather(run, return_exceptions=True)

    async def plugin(self, agent: DeviceManager, socket: str, plugin: SimPlugin) -> SimPlugin:
        """Registers a plugin and waits for its first list."""
        self.plugins[socket] = plugin
        await agent.plugins.register(GPU, socket)
        await asyncio.sleep(0.2)
        return plugin

    def checkpoint(self) -> dict[Any, Any]:
        return parse_checkpoint((self.directory / FILE).read_bytes())[0]


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def ids(agent: DeviceManager, uid: str) -> frozenset[str]:
    return agent.state.of_pod(uid).get(GPU, frozenset())


async def admit(agent: DeviceManager, requests: Pod) -> None:
    booked = [agent.book(requests, container, ANY) for _, container in requests.all_containers()]
    if any(booked):
        await agent.settle(requests)


def provide(agent: DeviceManager, requests: Pod) -> Any:
    supplied = ContainerAdditions(EnvironmentInputs())
    return agent.provide(requests, requests.containers[0], supplied)


async def test_a_pod_gets_devices_that_are_on_the_disk(node: Node) -> None:
    async with node.agent() as agent:
        plugin = await node.plugin(agent, "a", SimPlugin("d0", "d1", "d2"))
        await admit(agent, pod("one", 2))
        assert plugin.allocated == [("d0", "d1")]
        assert [booking.ids for booking in node.checkpoint().values()] == [{"d0", "d1"}]
        assert (await provide(agent, pod("one", 2))).envs == (("DEVICES", "d0,d1"),)
        with pytest.raises(AllocationRefused, match=r"Requested: 2, Available: 1, which is unexp"):
            await admit(agent, pod("two", 2))
        assert agent.counts({}).capacity == {GPU: 3}
        agent.release({"two"})
        await admit(agent, pod("two", 3))
        assert ids(agent, "two") == {"d0", "d1", "d2"}


async def test_preferred_devices(node: Node) -> None:
    async with node.agent() as agent:
        plugin = await node.plugin(agent, "a", SimPlugin("d0", "d1", "d2", prefers=("d2", "x")))
        await admit(agent, pod("one"))
        assert ids(agent, "one") == {"d2"}
        assert list(plugin.requested[0].available_deviceIDs) == ["d0", "d1", "d2"]
        plugin.faults["GetPreferredAllocation"] = lambda: failed("it", Code.INTERNAL)
        with pytest.raises(AllocationRefused, match="GetPreferredAllocation rpc failed"):
            await admit(agent, pod("two"))
        assert not ids(agent, "two")


async def test_pods_keep_the_devices_of_a_dead_plugin(node: Node) -> None:
    async with node.agent() as agent:
        plugin = await node.plugin(agent, "a", SimPlugin("d0", "d1"))
        await admit(agent, pod("one"))
        plugin.die()
        await asyncio.sleep(2)
        counts = agent.counts({})
        assert (counts.capacity, counts.allocatable) == ({GPU: 2}, {GPU: 0})
        known = agent.metrics.known
        assert [known.labels(GPU, each)._value.get() for each in ("healthy", "unhealthy")] == [0, 2]
        assert ids(agent, "one") == {"d0"}
        assert agent.resources_status("one")["c"][0]["resources"][0]["health"] == "Healthy"
        with pytest.raises(AllocationRefused, match="no healthy devices present"):
            await admit(agent, pod("two"))
        await node.plugin(agent, "b", SimPlugin("d0", "d1"))
        await admit(agent, pod("two"))
        assert ids(agent, "two") == {"d1"}
        assert node.node_told >= 3


async def test_a_dead_plugin_is_forgotten_after_five_minutes(node: Node) -> None:
    async with node.agent() as agent:
        plugin = await node.plugin(agent, "a", SimPlugin("d0"))
        plugin.die()
        await asyncio.sleep(299)
        assert agent.counts({GPU: "1"}).capacity == {GPU: 1}
        await asyncio.sleep(2)
        assert agent.counts({GPU: "1"}).capacity == {GPU: 0}, "the key is kept, at none"
        assert agent.counts({GPU: "0"}).capacity == {}, "then it is others' business"
        assert agent.counts({GPU: "7"}).capacity == {}


async def test_the_end_of_an_old_stream_does_not_end_the_new_plugin(node: Node) -> None:
    async with node.agent() as agent:
        old = await node.plugin(agent, "a", SimPlugin("d0"))
        await node.plugin(agent, "b", SimPlugin("d0", "d1"))
        old.die()
        await asyncio.sleep(5)
        assert agent.counts({}).allocatable == {GPU: 2}
        await agent.plugins.deregister(GPU, "a")
        assert agent.counts({}).allocatable == {GPU: 2}
        await agent.plugins.deregister(GPU, "b")
        assert agent.counts({}).allocatable == {GPU: 0}


async def test_kubelet_sock_cannot_be_created(
    node: Node, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    starts: list[str] = []

    class Server:
        def __init__(self, *_: object) -> None: ...

        async def start(self) -> None:
            starts.append("")
            if len(starts) < 4:
                raise OSError(30, "Read-only file system")

        async def close(self) -> None: ...

    monkeypatch.setattr(registration, "LocalServer", Server)
    async with node.agent(listen=True) as agent:
        why = f"device plugins can't register over {node.directory}/kubelet.sock: "
        assert agent.plugins.problem() == f"{why}[Errno 30] Read-only file system"
        await node.plugin(agent, "a", SimPlugin("d0"))
        await asyncio.sleep(65)
        assert agent.plugins.problem(), "a plugin of plugins_registry counts anyway"
        assert agent.counts({}).allocatable == {GPU: 1}
        await asyncio.sleep(30)
        assert agent.plugins.problem() == ""
        await asyncio.sleep(90)
        assert len(starts) == 4
    assert caplog.text.count("device plugins can't register; trying again") == 1


async def test_refused_registrations(node: Node) -> None:
    async with node.agent() as agent:
        node.plugins["dead"] = SimPlugin("d0")
        node.plugins["dead"].alive = False
        for resource, why in ((GPU, "connecting"), ("gpu", "invalid"), ("kubernetes.io/x", "inv")):
            with pytest.raises(RegistrationRefused, match=why):
                await agent.plugins.register(resource, "dead")
        slow = node.plugins["slow"] = SimPlugin("d0")
        slow.faults["GetDevicePluginOptions"] = hang
        with pytest.raises(
            RegistrationRefused, match=r"failed to get device plugin options: .*DeadlineExc"
        ):
            await agent.plugins.register(GPU, "slow")
        assert agent.counts({}).capacity == {}


async def test_a_plugin_that_never_lists_devices_is_shown_without_any(node: Node) -> None:
    async with node.agent() as agent:
        node.plugins["mute"] = SimPlugin()
        node.plugins["mute"].faults["ListAndWatch"] = hang
        await agent.plugins.register(GPU, "mute")
        assert agent.counts({}).capacity == {}
        node.plugins["mute"].die()
        await asyncio.sleep(1)
        assert agent.counts({}) == DeviceCounts({GPU: 0}, {GPU: 0})
        await asyncio.sleep(301)
        assert agent.counts({GPU: "0"}).capacity == {}


async def test_a_hanging_plugin_blocks_no_other(node: Node) -> None:
    async with node.agent() as agent:
        plugin = await node.plugin(agent, "a", SimPlugin("d0", "d1"))
        node.plugins["other"] = SimPlugin("x")
        await agent.plugins.register("other.example/x", "other")
        await asyncio.sleep(0.2)
        plugin.faults["Allocate"] = hang
        waits = asyncio.create_task(admit(agent, pod("one")))
        await asyncio.sleep(1)
        await admit(agent, pod("two", resource="other.example/x"))
        assert agent.state.held_ids(GPU) == {"d0"}, "reserved during the call"
        del plugin.faults["Allocate"]
        await admit(agent, pod("three"))
        assert ids(agent, "three") == {"d1"}
        with pytest.raises(AllocationRefused, match="DeadlineExceeded"):
            await waits
        assert agent.state.held_ids(GPU) == {"d1"}
        agent.release({"three"})
        await admit(agent, pod("four"))
        assert ids(agent, "four") == {"d0"}


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (lambda: failed("Allocate", Code.UNKNOWN, "no"), "Unknown desc = no"),
        (pb.AllocateResponse, "no containers return in allocation response"),
    ],
)
async def test_devices_that_a_plugin_refuses_are_not_booked(
    node: Node, answer: Callable[[], Any], why: str
) -> None:
    async with node.agent() as agent:
        plugin = await node.plugin(agent, "a", SimPlugin("d0"))
        plugin.faults["Allocate"] = answer
        with pytest.raises(AllocationRefused, match=why):
            await admit(agent, pod("one"))
        assert not agent.state.bookings
        assert not agent.state.held_ids(GPU)


async def test_a_checkpoint_that_cannot_be_written(node: Node) -> None:
    async with node.agent() as agent:
        await node.plugin(agent, "a", SimPlugin("d0"))
        await asyncio.sleep(1)
        (node.directory / FILE).unlink()
        (node.directory / FILE).mkdir()
        with pytest.raises(AllocationRefused, match="failed to write checkpoint file"):
            await admit(agent, pod("one"))
        assert not agent.state.bookings


async def test_a_plugin_is_called_before_each_start(node: Node) -> None:
    async with node.agent() as agent:
        plugin = await node.plugin(agent, "a", SimPlugin("d0", pre_start=True))
        await admit(agent, pod("one"))
        assert plugin.started == []
        await provide(agent, pod("one"))
        await provide(agent, pod("one"))
        assert plugin.started == [("d0",), ("d0",)]
        plugin.faults["PreStartContainer"] = hang
        with pytest.raises(ContainerConfigError, match="PreStartContainer rpc failed"):
            await provide(agent, pod("one"))
        plugin.die()
        await asyncio.sleep(1)
        with pytest.raises(ContainerConfigError, match="it has stopped"):
            await provide(agent, pod("one"))
        assert len(plugin.allocated) == 1


async def test_a_container_without_recorded_devices_gets_some(node: Node) -> None:
    async with node.agent() as agent:
        plugin = await node.plugin(agent, "a", SimPlugin("d0", pre_start=True))
        node.running.add("one")
        assert (await provide(agent, pod("one"))).envs == (("DEVICES", "d0"),)
        assert plugin.started == [("d0",)], "prepared once they are given"
        with pytest.raises(ContainerConfigError, match="Available: 0"):
            await provide(agent, pod("two"))


def with_init(uid: str, init: int, app: int) -> Pod:
    made = pod(uid, app)
    limits = {"limits": {GPU: str(init)}}
    spec = {**made.spec, "initContainers": [{"name": "i", "resources": limits}]}
    return Pod(cast(Any, {**made.object, "spec": spec}))


async def test_devices_reserved_for_an_init_container_are_reused(node: Node) -> None:
    async with node.agent() as agent:
        plugin = await node.plugin(agent, "a", SimPlugin("d0", "d1", "d2", prefers=("d2", "d1")))
        requests = with_init("one", 2, 1)
        await admit(agent, requests)
        supplied = {name: set(has[GPU]) for (_, name), has in agent.by_container().items()}
        assert supplied["i"] == {"d1", "d2"}, "those the plugin prefers, not those reserved first"
        assert supplied["c"] <= supplied["i"]
        assert not agent.state.reserved
        assert len(plugin.allocated) == 2
        await admit(agent, pod("two"))
        assert ids(agent, "two") == {"d0"}
        agent.release(set())
        await admit(agent, with_init("three", 3, 3))
        assert ids(agent, "three") == {"d0", "d1", "d2"}


async def test_a_pod_removed_during_the_call_of_its_plugin(node: Node) -> None:
    async with node.agent() as agent:
        plugin = await node.plugin(agent, "a", SimPlugin("d0"))
        requests = pod("one")
        assert agent.book(requests, requests.containers[0], ANY)
        with pytest.raises(AllocationRefused, match="Available: 0"):
            await admit(agent, pod("two"))
        agent.release({"two"})
        await admit(agent, pod("two"))
        with pytest.raises(AllocationRefused, match="does not use the node any more"):
            plugin.faults["Allocate"] = lambda: agent.release(set())
            agent.release(set())
            await admit(agent, pod("three"))
        assert not agent.state.held_ids(GPU)


async def test_a_plugin_that_dies_during_its_call(node: Node) -> None:
    async with node.agent() as agent:
        plugin = await node.plugin(agent, "a", SimPlugin("d0", "d1"))
        requests = pod("one")
        assert agent.book(requests, requests.containers[0], ANY)
        plugin.die()
        await asyncio.sleep(1)
        with pytest.raises(AllocationRefused, match="no healthy devices present"):
            await agent.settle(requests)
        assert not agent.state.held_ids(GPU)


async def test_a_pod_that_runs_has_no_preferences(node: Node) -> None:
    async with node.agent() as agent:
        await node.plugin(agent, "a", SimPlugin("d0", "d1", nodes={"d0": 0, "d1": 1}))
        requests = pod("one")
        assert agent.hints(requests, requests.containers[0]) == {GPU: [Hint(1, True)]}
        await admit(agent, requests)
        node.running.add("one")
        assert agent.hints(requests, requests.containers[0]) == {}


async def test_health_reaches_the_pods(node: Node) -> None:
    async with node.agent() as agent:
        plugin = await node.plugin(agent, "a", SimPlugin("d0", "d1"))
        await admit(agent, pod("one"))
        node.notified.clear()
        plugin.now(d0="Unhealthy", d1="Healthy")
        await asyncio.sleep(1)
        assert node.notified == ["one"]
        reported = agent.resources_status("one")["c"]
        health = [{"resourceID": "d0", "health": "Unhealthy"}]
        assert reported == [{"name": GPU, "resources": health}]
        assert agent.counts({}).allocatable == {GPU: 1}
        plugin.now(d1="Healthy")
        await asyncio.sleep(1)
        assert node.notified == ["one"], "an id that vanishes is no news"


async def test_a_plugin_that_floods(node: Node) -> None:
    async with node.agent() as agent:
        plugin = await node.plugin(agent, "a", SimPlugin("d0"))
        before = node.node_told
        for turn in range(1000):
            plugin.now(d0="Healthy" if turn % 2 else "Unhealthy")
            await asyncio.sleep(0.01)
        assert node.node_told - before <= 12, "once a second at most"


async def test_an_agent_continues_after_a_killed_one(node: Node) -> None:
    async with node.agent() as agent:
        await node.plugin(agent, "a", SimPlugin("d0", "d1"))
        await admit(agent, pod("one"))
        node.running.add("one")
    async with node.agent() as agent:
        counts = agent.counts({GPU: "2"})
        assert (counts.capacity, counts.allocatable) == ({GPU: 0}, {GPU: 0})
        await admit(agent, pod("one"))
        assert ids(agent, "one") == {"d0"}
        assert agent.held_counts("one") == {GPU: 1}
        assert agent.held_counts("new") == {}
        assert (await provide(agent, pod("one"))).envs == (("DEVICES", "d0"),)
        with pytest.raises(AllocationRefused, match="no healthy devices present"):
            await admit(agent, pod("two"))
        await node.plugin(agent, "a", SimPlugin("d0", "d1"))
        await admit(agent, pod("two"))
        assert ids(agent, "two") == {"d1"}


async def test_a_corrupt_checkpoint(node: Node, caplog: pytest.LogCaptureFixture) -> None:
    empty: dict[str, Any] = {"PodDeviceEntries": None, "RegisteredDevices": {}}
    (node.directory / FILE).write_text(json.dumps({"Data": empty, "Checksum": 1}))
    async with node.agent() as agent:
        assert not agent.state.bookings
    assert "can't be read" in caplog.text


@pytest.mark.parametrize("seed", range(25))
async def test_no_device_is_allocated_twice(node: Node, seed: int) -> None:
    """Pods start and end, plugins die, lie and hang, and the agent is killed at any instant."""
    rng = random.Random(seed)
    everything = [f"d{n}" for n in range(5)]
    running: dict[str, frozenset[str]] = {}
    """Devices that running containers really have."""
    names = iter(f"pod{n}" for n in range(10_000))

    async def one_pod(agent: DeviceManager, uid: str) -> None:
        try:
            await admit(agent, pod(uid, rng.randint(1, 2)))
        except AllocationRefused:
            return
        taken = frozenset[str]().union(*running.values())
        assert not ids(agent, uid) & taken, "given twice"
        assert ids(agent, uid) <= {each for b in node.checkpoint().values() for each in b.ids}
        running[uid] = ids(agent, uid)
        node.running.add(uid)

    for _ in range(6):
        async with node.agent() as agent:
            for uid, has in running.items():
                await admit(agent, pod(uid, len(has)))
                assert ids(agent, uid) == has, "taken from a running container"
            plugin = await node.plugin(agent, f"s{rng.random()}", SimPlugin(*everything))
            coming: list[asyncio.Task[None]] = []
            for _ in range(rng.randint(1, 25)):
                match rng.randrange(6):
                    case 0:
                        plugin.die()
                        await asyncio.sleep(rng.random())
                        fresh = SimPlugin(*rng.sample(everything, rng.randint(1, 5)))
                        plugin = await node.plugin(agent, f"s{rng.random()}", fresh)
                    case 1:
                        how = {each: rng.choice(("Healthy", "Sick")) for each in everything}
                        plugin.now(**how)
                    case 2:
                        plugin.faults["Allocate"] = partial(asyncio.sleep, rng.random() * 400)
                    case 3 if running:
                        uid = rng.choice(sorted(running))
                        del running[uid]
                        node.running.discard(uid)
                    case _:
                        agent.release({*running, *(task.get_name() for task in coming)})
                        uid = next(names)
                        coming.append(asyncio.create_task(one_pod(agent, uid), name=uid))
                await asyncio.sleep(rng.random())
            for task in coming:
                task.cancel()
            for result in await asyncio.gather(*coming, return_exceptions=True):
                assert result is None or isinstance(result, asyncio.CancelledError), result


async def test_a_pod_waits_for_the_plugin_that_an_earlier_agent_had(node: Node) -> None:
    """After a reboot the plugin registers ten seconds after the agent."""
    loop = asyncio.get_running_loop()
    async with node.agent() as agent:
        await node.plugin(agent, "a", SimPlugin("d0", "d1"))
        assert agent.returned(pod("one")) is None
        await admit(agent, pod("one"))
        before = ids(agent, "one")
    async with node.agent() as agent:
        with pytest.raises(AllocationRefused, match="no healthy devices present"):
            await admit(agent, pod("one"))  # the outcome without waiting
        assert agent.returned(pod("other", resource="vendor.example/nic")) is None
        node.running.add("runs")
        assert agent.returned(pod("runs")) is None
        began = loop.time()
        waits = [agent.returned(pod("one")), agent.returned(pod("new"))]
        assert None not in waits
        waiting = asyncio.gather(*cast(Any, waits))
        await asyncio.sleep(10)
        assert agent.awaited(pod("one")) == AwaitedPlugins((GPU,), began + RETURNS_WITHIN_S)
        assert not waiting.done()
        await node.plugin(agent, "b", SimPlugin("d0", "d1"))
        await waiting
        assert loop.time() - began < 11
        assert agent.awaited(pod("one")) is None
        await admit(agent, pod("one"))
        await admit(agent, pod("new"))
        assert ids(agent, "one") == before
        assert ids(agent, "new") == {"d0", "d1"} - before


async def test_waiting_for_a_plugin_is_bounded(node: Node) -> None:
    loop = asyncio.get_running_loop()
    async with node.agent() as agent:
        await node.plugin(agent, "a", SimPlugin("d0"))
        await admit(agent, pod("one"))
    async with node.agent() as agent:
        began = loop.time()
        waits = agent.returned(pod("one"))
        assert waits is not None
        await waits
        assert loop.time() - began == RETURNS_WITHIN_S
        assert agent.returned(pod("one")) is None, "and only once"
        with pytest.raises(AllocationRefused, match="no healthy devices present"):
            await admit(agent, pod("one"))
