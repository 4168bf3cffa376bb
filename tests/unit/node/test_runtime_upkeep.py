"""The runtime gets the pod range, again after a reconnect, and its version is read."""

from __future__ import annotations

import asyncio

import pytest

from kubeletpy.base.api import types as api
from kubeletpy.node import runtime as runtime_upkeep
from kubeletpy.node.build import RuntimeInfo
from kubeletpy.node.runtime import RuntimeUpkeep
from kubeletpy.remote.errors import CRIError
from kubeletpy.remote.generated import api_pb2 as cri


class Runtime:
    """Records each pod range; the next `failures` calls fail."""

    def __init__(self) -> None:
        self.notified: list[str] = []
        self.failures = 0
        self.version = RuntimeInfo("containerd", "1.6")

    async def update_runtime_config(self, runtime_config: cri.RuntimeConfig) -> None:
        if self.failures:
            self.failures -= 1
            raise CRIError("UpdateRuntimeConfig", "not now", target="unix:///x")
        self.notified.append(runtime_config.network_config.pod_cidr)

    async def read(self) -> RuntimeInfo:
        return self.version


def node(*cidrs: str) -> api.Node:
    return {"metadata": {"name": "n"}, "spec": {"podCIDRs": list(cidrs)}}


async def settled() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_the_range_is_sent_once_and_again_after_a_reconnect(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")  # as an agent logs
    monkeypatch.setattr(runtime_upkeep, "RETRY_S", 0.0)
    runtime, changes = Runtime(), []
    upkeep = RuntimeUpkeep(
        runtime,  # type: ignore[arg-type]
        runtime.version,
        read=runtime.read,
        changed=lambda: changes.append(upkeep.info().version),
    )
    task = asyncio.ensure_future(upkeep.run())
    try:
        upkeep.node_reported(node())
        await settled()
        assert runtime.notified == []
        runtime.failures = 1
        for _ in range(2):
            upkeep.node_reported(node("10.1.0.0/24", "fd00::/64"))
            await settled()
        assert runtime.notified == ["10.1.0.0/24,fd00::/64"]
        upkeep.connection_changed(False)
        upkeep.connection_changed(True)
        await settled()
        assert (len(runtime.notified), changes) == (2, [])
        runtime.version = RuntimeInfo("containerd", "2.0")
        upkeep.connection_changed(True)
        await settled()
        assert changes == ["2.0"]
    finally:
        task.cancel()


async def test_a_node_of_its_own_has_the_configurations_range() -> None:
    runtime = Runtime()
    upkeep = RuntimeUpkeep(runtime, runtime.version, pod_cidr="10.2.0.0/24")  # type: ignore[arg-type]
    task = asyncio.ensure_future(upkeep.run())
    await settled()
    task.cancel()
    assert runtime.notified == ["10.2.0.0/24"]
