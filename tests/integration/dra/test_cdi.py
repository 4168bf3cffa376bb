"""Drivers on real sockets, and real containers that print the devices they were allocated."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest

from kubeletpy.base.structs import replace
from kubeletpy.metrics.registry import Metrics
from kubeletpy.pods.pod import Pod
from kubeletpy.resources.dra.claim_manager import ClaimManager, ClaimState
from kubeletpy.resources.dra.drivers import DraDrivers
from kubeletpy.resources.dra.model import ClaimProblem
from kubeletpy.resources.plugins.model import DRA
from kubeletpy.resources.plugins.plugin_manager import PluginManager, SocketRegistrations
from kubeletpy.runtime_manager.protocol import ContainerAdditions
from tests.dra_driver.running import driver_on_node
from tests.dra_driver.services import Given, Services
from tests.integration.runtime_node import RuntimeNode, make_container, make_pod, runtime_node
from tests.unit.resources.dra.node import Api
from tools.env.containerd import Containerd

DRIVER = "gpu.example.com"
SAYS = "echo up; echo given=$DRA_D0,$DRA_D1; trap 'exit 0' TERM; while :; do sleep 0.1; done"


class ClaimNode:
    """A node's claims, with real registration."""

    def __init__(self, root: Path) -> None:
        self.api = Api()
        metrics = Metrics()
        self.drivers = DraDrivers(metrics.dra)
        self.registry = root / "plugins_registry"
        state = ClaimState(root / "dra_manager_state", lambda claims: None)
        self.manager = ClaimManager(cast(Any, self.api), self.drivers, state, metrics.dra)
        self.plugins = PluginManager(
            self.registry, {DRA: self.drivers}, SocketRegistrations(), metrics.plugins
        )


@asynccontextmanager
async def claim_node(root: Path) -> AsyncIterator[ClaimNode]:
    """Run the discovery of drivers while in the block."""
    node = ClaimNode(root)
    node.registry.mkdir(exist_ok=True)
    running = asyncio.create_task(node.plugins.run())
    try:
        yield node
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await node.drivers.close()


@pytest.mark.parametrize("version", ["v1.DRAPlugin", "v1beta1.DRAPlugin"])
async def test_containers_see_their_devices_and_only_theirs(
    containerd2: Containerd, work_dir: Path, cgroup_root: str, version: str
) -> None:
    cdi = containerd2.directory / "cdi"
    cdi.mkdir(exist_ok=True)
    supplied = [Given("d0", ["r0"]), Given("d1", ["r1"])]
    services = Services(DRIVER, version, lambda claim: supplied, cdi)
    async with claim_node(work_dir) as claims:
        pod = _pod()
        claims.api.allocate("c", [pod.uid], DRIVER)
        with pytest.raises(ClaimProblem, match=DRIVER):
            await claims.manager.prepare(pod)
        async with (
            driver_on_node(claims.registry, work_dir / "d.sock", services) as driver,
            runtime_node(containerd2, work_dir, cgroup_root, providers=(claims.manager,)) as node,
        ):
            async with asyncio.timeout(30):
                while not (driver.notified and claims.drivers.connected(DRIVER)):  # noqa: ASYNC110 - a server that starts tells nobody
                    await asyncio.sleep(0.05)
            assert driver.notified == [(True, "")]
            await claims.manager.prepare(pod)
            result = await node.sync(pod)
            assert not result.failed, result.error_message()
            await node.up(pod, "all", "one", "none")
            assert await _printed(node, pod, "all") == f"given={DRIVER},{DRIVER}"
            assert await _printed(node, pod, "one") == f"given=,{DRIVER}"
            assert await _printed(node, pod, "none") == "given=,"
            assert not (await node.kill(pod, pod.uid)).failed
            await claims.manager.unprepare(pod.uid)
        assert services.prepared == {}
        assert list(cdi.iterdir()) == []
        assert [call for call, _ in services.history] == ["prepare", "unprepare"]


class _Devices:
    """Gives each container a CDI device that nobody has described."""

    async def provide(self, *about: Any) -> ContainerAdditions:
        supplied: ContainerAdditions = about[-1]
        return replace(supplied, cdi_devices=("example.com/gpu=none",))


@pytest.mark.parametrize(
    ("containerd", "stated"),
    [
        ("containerd16", "takes no CDI devices"),
        ("containerd2", "unresolvable CDI devices example.com/gpu=none"),
    ],
)
async def test_a_runtime_that_would_leave_devices_out_makes_no_container(
    request: pytest.FixtureRequest, work_dir: Path, cgroup_root: str, containerd: str, stated: str
) -> None:
    runtime: Containerd = request.getfixturevalue(containerd)
    async with runtime_node(runtime, work_dir, cgroup_root, providers=(_Devices(),)) as node:
        pod = make_pod("devices", [make_container("app", SAYS)])
        result = await node.sync(pod)
        assert stated in result.error_message()
        listed = await node.runtime.list_containers()
        assert [each.metadata.name for each in listed] == []
        assert not (await node.kill(pod, pod.uid)).failed


def _pod() -> Pod:
    every = make_container("all", SAYS, resources={"claims": [{"name": "gpu"}]})
    one = make_container("one", SAYS, resources={"claims": [{"name": "gpu", "request": "r1"}]})
    none = make_container("none", SAYS)
    claims = [{"name": "gpu", "resourceClaimName": "c"}]
    return make_pod("devices", [every, one, none], resourceClaims=claims)


async def _printed(node: RuntimeNode, pod: Pod, container: str) -> str:
    log = node.directory / "pods" / f"{pod.namespace}_{pod.name}_{pod.uid}" / container / "0.log"

    def line() -> str:
        lines = [each.split(" ", 3)[3] for each in log.read_text().splitlines()]
        return next((each for each in lines if each.startswith("given=")), "")

    async with asyncio.timeout(20):
        while not (found := line()):  # noqa: ASYNC110 - a log file tells nobody that it has grown
            await asyncio.sleep(0.05)
    return found
