"""The machine goes down: logind of a private bus, real pods, the whole agent."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

import pytest

from kubeletpy.base.host.dbus import MAX_SIGNALS, Bus
from kubeletpy.base.host.errors import DBusError
from kubeletpy.node.shutdown.logind import Logind, NoLogind
from tests.integration.lifecycle.logind import FakeLogind
from tests.integration.node.fixtures import MakeNode, remove_pods
from tests.integration.node.pods import DEAF, container, pod
from tests.integration.node.seen import condition, status
from tools.env.containerd import Containerd


async def test_locks_properties_and_signals_over_a_real_bus(work_dir: Path) -> None:
    drop_in = work_dir / "logind.conf.d" / "99-kubelet.conf"
    with FakeLogind(work_dir) as fake:
        logind = await Logind.connect(fake.address, drop_in)
        assert await logind.max_delay() == 5
        assert not await logind.shutting_down()
        await logind.raise_max_delay(30)
        assert "InhibitDelayMaxSec=30\n" in drop_in.read_text()
        assert fake.raised_to == [["systemd-logind.service", "all", 1]]
        assert await logind.max_delay() == 60
        lock = await logind.inhibit()
        assert fake.locks_held == 1
        fake.announce(True)
        assert await logind.next_shutdown()
        fake.announce(False)
        assert not await logind.next_shutdown()
        os.close(lock)
        assert fake.locks_held == 0
        with pytest.raises(DBusError, match="ServiceUnknown"):
            await logind._bus.call("org.example.None", "/", "org.example", "Nothing")
        await logind.close()


async def test_only_logind_announces_a_shutdown(work_dir: Path) -> None:
    with FakeLogind(work_dir) as fake:
        logind = await Logind.connect(fake.address)
        us = str(logind._bus.bus.unique_name)
        for _ in range(MAX_SIGNALS + 1):
            fake.forge()
            fake.forge(f"--dest={us}")
        fake.announce(False)
        async with asyncio.timeout(10):
            assert not await logind.next_shutdown()
        fake.restart()  # a logind that is another connection is believed, nobody else
        fake.forge(f"--dest={us}")
        fake.announce(False)
        async with asyncio.timeout(10):
            assert not await logind.next_shutdown()
        await logind.close()


async def test_a_bus_that_ends_is_noticed(work_dir: Path) -> None:
    with FakeLogind(work_dir) as fake:
        bus = await Bus.connect(fake.address)
        assert (await bus.receive()).member == "NameAcquired"
        assert fake._daemon is not None
        fake._daemon.kill()
        with pytest.raises(DBusError, match="closed"):
            await bus.receive()
        with pytest.raises(DBusError, match="closed"):
            await bus.call("org.freedesktop.DBus", "/", "org.freedesktop.DBus.Peer", "Ping")
        await bus.close()


async def test_where_there_is_no_bus_the_feature_is_off(work_dir: Path) -> None:
    with pytest.raises(NoLogind, match="no system bus"):
        await Logind.connect(f"unix:path={work_dir}/none")
    with pytest.raises(DBusError, match="transport"):
        await Logind.connect("nonsense")


async def test_a_delay_lock_that_comes_too_late_is_released(
    work_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kubeletpy.base.host.dbus.CALL_TIMEOUT_S", 0.2)
    with FakeLogind(work_dir) as fake:
        logind = await Logind.connect(fake.address)
        fake.slow = 0.5
        with pytest.raises(TimeoutError):
            await logind.inhibit()
        assert await asyncio.to_thread(fake.passed.wait, 10)
        fake.announce(True)  # comes after the reply that nobody waits for
        assert await logind.next_shutdown()
        assert len(fake._locks) == 1
        assert fake.locks_held == 0
        await logind.close()


def test_pods_end_by_priority_before_the_machine_goes_down(
    make_node: MakeNode,
    session_containerd2: Containerd,
    work_dir: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with FakeLogind(work_dir, delay_s=60) as fake:
        monkeypatch.setenv("DBUS_SYSTEM_BUS_ADDRESS", fake.address)
        periods = {"shutdownGracePeriod": "12s", "shutdownGracePeriodCriticalPods": "4s"}
        node = make_node(session_containerd2, config=periods)
        node.start()
        node.api.create("namespaces", "", {"metadata": {"name": "down"}})
        node.apply(
            pod("plain"),
            pod("deaf", container("main", DEAF), terminationGracePeriodSeconds=3),
            namespace="down",
        )
        node.apply(
            pod("critical", priorityClassName="system-node-critical"), namespace="kube-system"
        )
        for namespace, name in (("down", "plain"), ("down", "deaf"), ("kube-system", "critical")):
            node.wait_running(namespace, name)
        node.until(lambda: fake.locks_held == 1, "a lock")

        began = time.monotonic()
        fake.announce(True)
        ready = node.wait_condition("Ready", "False")
        assert "node is shutting down" in ready["message"]
        node.wait_phase("down", "plain", "Failed")
        assert status(node.pod("kube-system", "critical"))["phase"] == "Running"
        node.until(lambda: fake.locks_held == 0, "the lock to be released")
        assert time.monotonic() - began > 3
        for namespace, name in (("down", "plain"), ("down", "deaf"), ("kube-system", "critical")):
            ended = node.wait_phase(namespace, name, "Failed")
            assert status(ended)["reason"] == "Terminated"
            disruption = condition(ended, "DisruptionTarget")
            assert (disruption["status"], disruption["reason"]) == ("True", "TerminationByKubelet")
        node.apply(pod("late", nodeName=node.name), namespace="down")
        assert node.metric("kubelet_graceful_shutdown_end_time_seconds") > 1e9

        fake.announce(False)
        node.wait_ready()
        node.until(lambda: fake.locks_held == 1, "a new lock")
        node.wait_running("down", "late")
        remove_pods(node, "down")
        node.api.delete("pods", "kube-system", "critical", grace=1)
        node.wait_removed("kube-system", "critical")
