"""Endpoints of drivers: which is used, which are refused, and whose slices are deleted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import grpc
import grpc.aio
import pytest

from kubeletpy.kubeapi.errors import Unavailable
from kubeletpy.kubeapi.protocol import Resource
from kubeletpy.metrics.registry import Metrics
from kubeletpy.resources.dra.answers import HEALTH_SERVICES
from kubeletpy.resources.dra.drivers import DraDrivers, SliceCleaner
from kubeletpy.resources.plugins.model import PluginInfo, PluginRefused
from tests.kit.claims import DriverInProcess, Node, user
from tests.kit.virtual_time import on_virtual_time

A = "a.example.com"
V1, BETA = "v1.DRAPlugin", "v1beta1.DRAPlugin"


def info(name: str = A, endpoint: str = "/e", *versions: str) -> PluginInfo:
    return PluginInfo("DRAPlugin", name, endpoint, versions or (V1,), "/reg", (1, 1))


@pytest.mark.parametrize(
    ("versions", "used"),
    [((V1,), V1), ((BETA,), BETA), ((BETA, V1), BETA), (("v9.DRAPlugin", V1, BETA), V1)],
)
@on_virtual_time
async def test_the_first_supported_service(
    tmp_path: Path, versions: tuple[str, ...], used: str
) -> None:
    node = Node(tmp_path, DriverInProcess(A, version=used))
    await node.drivers.register(info(A, "/e", *versions))
    client = node.drivers.get(A)
    assert client is not None
    assert client.version == used
    node.api.allocate("c", ["uid-p"], A)
    assert await node.problem(user("p", "c")) == ""


@pytest.mark.parametrize(
    ("supplied", "why"),
    [
        (info(A, "/e", "1.0.0"), "none of the services v1.DRAPlugin, v1beta1.DRAPlugin: 1.0.0"),
        (info("A_b"), "cannot be the name"),
        (info("../x"), "cannot be the name"),
        (info("a" * 64), "cannot be the name"),
    ],
)
@on_virtual_time
async def test_drivers_that_are_refused(tmp_path: Path, supplied: PluginInfo, why: str) -> None:
    with pytest.raises(PluginRefused, match=why):
        Node(tmp_path).drivers.validate(supplied)


@on_virtual_time
async def test_of_two_endpoints_the_newest_that_is_connected(tmp_path: Path) -> None:
    driver = DriverInProcess(A)
    node = Node(tmp_path, driver)

    def used() -> str:
        client = node.drivers.get(A)
        assert client is not None
        return client.endpoint

    await node.drivers.register(info(A, "/old"))
    await asyncio.sleep(0)
    driver.up = False
    await node.drivers.register(info(A, "/new"))
    await asyncio.sleep(0)
    assert used() == "/old"
    with pytest.raises(PluginRefused, match="is registered already"):
        await node.drivers.register(info(A, "/new"))
    await node.drivers.deregister(info(A, "/old"))
    assert used() == "/new"
    await node.drivers.deregister(info(A, "/old"))
    assert node.drivers.names == [A]
    await node.drivers.deregister(info(A, "/new"))
    assert node.drivers.names == []
    await node.drivers.close()


class Slices:
    def __init__(self) -> None:
        self.deleted: list[tuple[float, str]] = []
        self.down = 0

    async def delete_collection(
        self, resource: Resource, namespace: str | None = None, *, field_selector: str
    ) -> Any:
        assert resource.plural == "resourceslices"
        at = asyncio.get_running_loop().time()
        self.deleted.append((at, field_selector))
        if self.down:
            self.down -= 1
            raise Unavailable("down")
        return {}


@on_virtual_time
async def test_slices_of_absent_drivers_are_deleted(tmp_path: Path) -> None:
    node, api = Node(tmp_path, DriverInProcess(A)), Slices()
    cleaner = SliceCleaner(cast(Any, api), "n1", node.drivers)
    api.down = 2
    running = asyncio.create_task(cleaner.run())
    await asyncio.sleep(10)
    assert api.deleted == [(at, "spec.nodeName=n1") for at in (0, 1, 3)]
    await node.drivers.register(info())
    await asyncio.sleep(50)
    await node.drivers.deregister(info())
    await asyncio.sleep(20)
    await node.drivers.register(info())  # before its slices are deleted
    await asyncio.sleep(100)
    assert len(api.deleted) == 3
    await node.drivers.deregister(info())
    await asyncio.sleep(100)
    assert api.deleted[3:] == [(210, f"spec.nodeName=n1,spec.driver={A}")]
    running.cancel()


@on_virtual_time
async def test_slices_of_a_node_that_was_created_anew_get_it_as_their_owner(tmp_path: Path) -> None:
    class Written(Slices):
        """A driver writes a slice for the former Node twice."""

        patched: list[Any]

        async def list(self, resource: Resource, *, field_selector: str) -> Any:
            assert field_selector == "spec.nodeName=n1"
            node = {"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "old"}
            stale = asyncio.get_running_loop().time() < 5
            metadata = {
                "name": "s",
                "ownerReferences": [{**node, "uid": "old" if stale else "new"}],
            }
            other = {"name": "o", "ownerReferences": [{"kind": "DaemonSet", "uid": "x"}]}
            spec = {"driver": A}
            return {"items": [{"metadata": each, "spec": spec} for each in (metadata, other)]}

        async def patch(self, resource: Resource, name: str, patch: Any, **_: Any) -> Any:
            (owner,) = patch["metadata"]["ownerReferences"]
            self.patched.append((asyncio.get_running_loop().time(), name, owner["uid"]))

    node, api = Node(tmp_path, DriverInProcess(A)), Written()
    api.patched = []
    cleaner = SliceCleaner(cast(Any, api), "n1", node.drivers)
    cleaner.node_replaced("early")
    running = asyncio.create_task(cleaner.run())
    await asyncio.sleep(1)
    cleaner.node_replaced("new")
    await asyncio.sleep(300)
    assert api.patched == [(1, "s", "new"), (2, "s", "new"), (4, "s", "new")]
    running.cancel()


HEALTH, HEALTH_ALPHA = "v1.DRAResourceHealth", "v1alpha1.DRAResourceHealth"


@pytest.mark.parametrize(
    ("versions", "requested"),
    [
        ((V1, HEALTH), HEALTH),
        ((V1, HEALTH_ALPHA), HEALTH_ALPHA),
        ((HEALTH_ALPHA, HEALTH, V1), HEALTH),
        ((BETA, "v9.DRAResourceHealth", HEALTH), HEALTH),
        # before Kubernetes 1.37 drivers did not have to name it
        ((V1,), HEALTH_ALPHA),
    ],
)
async def test_the_newest_health_service_that_a_driver_names(
    tmp_path: Path, versions: tuple[str, ...], requested: str
) -> None:
    """Over a socket: the driver serves this version and no other."""

    async def watch(request: bytes, context: Any) -> AsyncIterator[bytes]:
        report = HEALTH_SERVICES[requested].NodeWatchResourcesResponse()
        each = report.devices.add(health=1)
        each.device.pool_name, each.device.device_name = "pool", "d0"
        yield report.SerializeToString()
        await asyncio.Event().wait()

    server = grpc.aio.server()
    method = grpc.unary_stream_rpc_method_handler(watch)
    handler = grpc.method_handlers_generic_handler(requested, {"NodeWatchResources": method})
    server.add_generic_rpc_handlers((handler,))
    server.add_insecure_port(f"unix:{tmp_path}/dra.sock")
    await server.start()
    reports: asyncio.Queue[tuple[str, str]] = asyncio.Queue()
    drivers = DraDrivers(
        Metrics().dra,
        on_report=lambda name, part: reports.put_nowait((name, part.devices[0].device.device_name)),
    )
    try:
        await drivers.register(info(A, f"{tmp_path}/dra.sock", *versions))
        assert await reports.get() == (A, "d0")
    finally:
        await drivers.close()
        await server.stop(None)
