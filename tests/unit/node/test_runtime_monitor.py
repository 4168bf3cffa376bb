"""When the runtime counts as ready, on virtual time."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kubeletpy.base.api import types as api
from kubeletpy.node import runtime as runtime_upkeep
from kubeletpy.node.build import RUNTIME_DOWN_AFTER_S, RuntimeInfo
from kubeletpy.node.runtime import (
    ANSWER_WITHIN_S,
    FIRST_WAIT_S,
    PERIOD_S,
    RuntimeMonitor,
    RuntimeUpkeep,
)
from kubeletpy.pods.runtime_status import RuntimeHealth
from kubeletpy.remote.errors import CRIError
from kubeletpy.remote.generated import api_pb2 as cri
from tests.kit.virtual_time import on_virtual_time

READY_WITHIN_S = 15.0
"""A node is Ready again this long after its runtime is back, whatever happened before."""
DOWN = RuntimeHealth(False, False, "connection refused", "connection refused")


class Runtime:
    """A runtime that returns `answer` at once, or never while `hangs` is set."""

    def __init__(self) -> None:
        self.answer = RuntimeHealth(True, True)
        self.hangs = False
        self.requested = 0

    async def health(self) -> RuntimeHealth:
        self.requested += 1
        if self.hangs:
            await asyncio.Event().wait()
        return self.answer


async def watched(runtime: Any) -> tuple[RuntimeMonitor, list[str]]:
    changes: list[str] = []
    monitor = RuntimeMonitor(runtime.health, lambda: changes.append(monitor.runtime_error()))
    asyncio.get_running_loop().create_task(monitor.run(), name="monitor")
    await asyncio.sleep(0.1)
    return monitor, changes


@pytest.mark.parametrize("before", [0.0, 0.1, 4.0, 9.9, 50.0, 300.0])
@on_virtual_time
async def test_a_call_that_hangs_does_not_outlive_the_runtimes_return(before: float) -> None:
    """A call that hung before the runtime recovered never gets an answer."""
    runtime = Runtime()
    runtime.answer = DOWN
    monitor, _ = await watched(runtime)
    runtime.hangs = True
    await asyncio.sleep(PERIOD_S + before)
    runtime.hangs, runtime.answer = False, RuntimeHealth(True, True)
    await asyncio.sleep(READY_WITHIN_S)
    assert (monitor.runtime_error(), monitor.network_error()) == ("", "")


@pytest.mark.parametrize("starting", [0.1, 0.5, 1.0, 4.0])
@on_virtual_time
async def test_a_runtime_that_is_still_starting_is_polled_again_soon(starting: float) -> None:
    """containerd accepts connections, and returns an error, before its server is initialized."""
    runtime = Runtime()
    monitor, _ = await watched(runtime)
    monitor.connection_changed(False)
    runtime.answer = DOWN
    await asyncio.sleep(60)
    monitor.connection_changed(True)
    await asyncio.sleep(starting)
    assert monitor.runtime_error()
    runtime.answer = RuntimeHealth(True, True)
    await asyncio.sleep(starting + FIRST_WAIT_S)
    assert monitor.runtime_error() == ""


@on_virtual_time
async def test_a_runtime_that_stays_down_is_polled_once_a_period() -> None:
    runtime = Runtime()
    runtime.answer = DOWN
    await watched(runtime)
    await asyncio.sleep(60)
    requested = runtime.requested
    await asyncio.sleep(100)
    assert runtime.requested - requested == 100 / PERIOD_S


@on_virtual_time
async def test_one_late_answer_changes_nothing() -> None:
    runtime = Runtime()
    monitor, changes = await watched(runtime)
    runtime.hangs = True
    await asyncio.sleep(PERIOD_S + ANSWER_WITHIN_S + 1)
    runtime.hangs = False
    await asyncio.sleep(60)
    assert monitor.runtime_error() == ""
    assert changes == [""], "ready once, at the start"


@on_virtual_time
async def test_a_runtime_that_never_answers_is_down() -> None:
    runtime = Runtime()
    monitor, changes = await watched(runtime)
    assert monitor.good_at == 0.0
    runtime.hangs = True
    await asyncio.sleep(RUNTIME_DOWN_AFTER_S + ANSWER_WITHIN_S)
    assert "has not answered for" in monitor.runtime_error()
    assert monitor.good_at == 0.0
    assert len(changes) == 2
    requested = runtime.requested
    await asyncio.sleep(100)
    assert runtime.requested - requested <= 100 / ANSWER_WITHIN_S + 1


# The runtime gets the pod range, again after a reconnect, and its version is read.


class RuntimeUpkeepRuntime:
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
    runtime, changes = RuntimeUpkeepRuntime(), []
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
    runtime = RuntimeUpkeepRuntime()
    upkeep = RuntimeUpkeep(runtime, runtime.version, pod_cidr="10.2.0.0/24")  # type: ignore[arg-type]
    task = asyncio.ensure_future(upkeep.run())
    await settled()
    task.cancel()
    assert runtime.notified == ["10.2.0.0/24"]
