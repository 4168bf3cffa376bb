"""NFS with a dead server: programs hang, and a stat of the mount would never return."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kubeletpy.volumes.claims.model import (
    FailureOutcome,
    OperationFailed,
    VolumeSpec,
    VolumeStats,
    WaitCause,
)
from kubeletpy.volumes.files import disk
from kubeletpy.volumes.intree import base, nfs
from kubeletpy.volumes.intree.base import MOST_HANGING, Meters
from kubeletpy.volumes.intree.nfs import NfsPlugin
from kubeletpy.volumes.volume_manager import PATIENCE_S
from tests.kit.virtual_time import eventually, on_virtual_time, settle, timed
from tests.kit.volumes import Failures, ObservedNode, pod, spec, volume_manager

PROGRAM_S = 60.0
"""Time after which a program is killed."""


class Node:
    """The mounts of a node, and the names of dead servers."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.dead: set[str] = set()
        self.mounts: dict[str, str] = {}
        self.calls: list[str] = []
        self.plugin = NfsPlugin(root)
        self.failures = Failures()
        monkeypatch.setattr(nfs, "run", self._run)
        monkeypatch.setattr(disk, "is_mounted", lambda path: path in self.mounts)

    async def _run(self, program: str, args: Sequence[str], *, call: str, **more: Any) -> str:
        self.calls.append(f"{program} {' '.join(args[:-1])}".strip())
        target = args[-1]
        export = args[-2] if program == "mount" else self.mounts[target]
        if export.partition(":")[0] in self.dead and "-f" not in args:
            await asyncio.sleep(PROGRAM_S)
            raise OperationFailed(FailureOutcome.UNCERTAIN, f"{program}: did not finish", call=call)
        if program == "mount":
            self.mounts[target] = export
        else:
            del self.mounts[target]
        return ""


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    return Node(tmp_path, monkeypatch)


def volume(server: str, uid: str) -> VolumeSpec:
    return spec(
        f"kubernetes.io/nfs/{uid}-{server}",
        plugin="kubernetes.io/nfs",
        kind="nfs",
        spec_name=server,
        source={"server": server, "path": "/e"},
    )


@on_virtual_time
async def test_a_dead_server_holds_up_only_its_own_pod(node: Node) -> None:
    node.dead = {"dead"}
    manager = volume_manager(node.plugin, ObservedNode(), node.failures)
    await manager.run()
    for n in range(40):
        manager.demand(pod(f"d{n}"), [volume("dead", f"d{n}")], {})
    manager.demand(pod("u"), [volume("live", "u")], {})
    waits, seconds = await timed(manager.settled("u"))
    assert (waits, seconds) == ({}, 0.0)
    waits, seconds = await timed(manager.settled("d0"))
    assert seconds == PATIENCE_S
    (wait,) = waits.values()
    call = 'mount of kubernetes.io/nfs volume "dead" (dead:/e)'
    assert (wait.cause, wait.call) == (WaitCause.BUSY, call)
    await manager.tear_down("u")
    assert list(node.mounts) == []

    await asyncio.sleep(PROGRAM_S)
    assert set(node.failures.messages) == {"mount: did not finish"}
    (wait,) = manager.waits("d0").values()
    assert wait.cause in (WaitCause.BACKOFF, WaitCause.BUSY), "it is tried again"
    node.dead = set()
    await asyncio.sleep(2 * PROGRAM_S)
    assert len(node.mounts) == 40
    await manager.close()


@on_virtual_time
async def test_volumes_of_a_dead_server_are_unmounted_by_force(node: Node) -> None:
    manager = volume_manager(node.plugin, ObservedNode(), node.failures)
    await manager.run()
    manager.demand(pod("u"), [volume("server", "u")], {})
    await manager.settled("u")
    node.dead, node.calls = {"server"}, []
    begun = asyncio.get_running_loop().time()
    with pytest.raises(OperationFailed, match="still waiting for unmount"):
        await manager.tear_down("u")
    await eventually(lambda: not manager.state.has("u"))
    assert asyncio.get_running_loop().time() - begun <= PROGRAM_S + 1
    assert node.calls == ["umount -i", "umount -i -f"]
    await settle()
    assert (node.mounts, node.failures.messages) == ({}, [])
    await manager.close()


def test_the_mount_itself_is_never_examined(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "pods/u1/volumes/kubernetes.io~nfs/v"
    target.mkdir(parents=True)

    def guarded(real: Callable[..., os.stat_result]) -> Callable[..., os.stat_result]:
        def checked(path: Any, **more: Any) -> os.stat_result:
            assert path != str(target), "it would never return"
            return real(path, **more)

        return checked

    monkeypatch.setattr(os, "lstat", guarded(os.lstat))
    monkeypatch.setattr(os, "stat", guarded(os.stat))
    assert not disk.is_mounted(str(target))
    (left,) = NfsPlugin(tmp_path).find_on_disk().published
    assert (left.pod_uid, left.path) == ("u1", str(target))


async def test_volumes_of_a_dead_server_hold_one_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, over = threading.Event(), threading.Event()
    full, requested = VolumeStats(capacity_bytes=1), []

    def measure(path: str) -> VolumeStats:
        requested.append(path)
        if "gone" in path:
            begun.set()
            over.wait()
        return full

    def source(path: str) -> str:
        return "[fd00::1]:/export:1" if "gone" in path else "10.0.0.2:/"

    monkeypatch.setattr(base, "_file_system", measure)
    monkeypatch.setattr(disk, "mounted_from", source)
    plugin = NfsPlugin(tmp_path)
    dead = [
        asyncio.create_task(plugin.stats(plugin.published(volume(f"gone{number}", "d"), "d")))
        for number in range(20)
    ]
    async with asyncio.timeout(20):
        await asyncio.to_thread(begun.wait)
        live = plugin.published(volume("live", "u"), "u")
        assert await plugin.stats(live) == full
    assert await plugin.server_of(live) == "NFS server 10.0.0.2"
    assert len(requested) == 2
    over.set()
    await asyncio.gather(*dead, return_exceptions=True)


# Servers that hang while their volumes are measured.


class Servers:
    """Servers; those whose names start with ``dead`` answer once ``healed`` is set."""

    def __init__(self) -> None:
        self.healed = threading.Event()
        self.requested: list[str] = []

    def measure(self, path: str) -> str:
        self.requested.append(path)
        if path.startswith("dead") and not self.healed.wait(20):
            raise OSError("the test is over")
        return path


@pytest.fixture
def servers(monkeypatch: pytest.MonkeyPatch) -> Iterator[Servers]:
    monkeypatch.setattr(base, "PATIENCE_S", 0.05)
    made = Servers()
    yield made
    made.healed.set()


async def _measure(meters: Meters, servers: Servers, who: str, path: str) -> str:
    return await meters.measure(who, f"statfs of {path}", partial(servers.measure, path))


async def _refused(meters: Meters, servers: Servers, who: str, path: str) -> OperationFailed:
    with pytest.raises(OperationFailed) as failed:
        await _measure(meters, servers, who, path)
    return failed.value


async def test_a_dead_server_gets_one_request_for_all_its_volumes(servers: Servers) -> None:
    meters = Meters()
    found = await asyncio.gather(
        *(_refused(meters, servers, "dead", f"dead/{number}") for number in range(8)),
        _measure(meters, servers, "live", "live/0"),
    )
    assert sorted(servers.requested) == ["dead/0", "live/0"]  # each has a thread of its own
    assert "no answer within 0.05s" in str(found[0])
    assert all("dead still has not answered" in str(each) for each in found[1:8])
    servers.healed.set()
    async with asyncio.timeout(20):
        while True:
            try:
                assert await _measure(meters, servers, "dead", "dead/9") == "dead/9"
                break
            except OperationFailed:
                await asyncio.sleep(0.01)


async def test_hanging_servers_are_limited_by_threads(
    servers: Servers, caplog: pytest.LogCaptureFixture
) -> None:
    meters = Meters()
    dead = [f"dead{number}" for number in range(MOST_HANGING)]
    await asyncio.gather(*(_refused(meters, servers, who, who) for who in dead[:-1]))
    assert await _measure(meters, servers, "live", "live/0") == "live/0"
    await _refused(meters, servers, dead[-1], dead[-1])
    for _ in range(2):
        refused = await _refused(meters, servers, "live", "live/1")
    assert refused.outcome is FailureOutcome.TRANSIENT
    assert "16 others do not answer" in str(refused) and "dead0, dead1" in str(refused)
    assert "live/1" not in servers.requested
    notified = [each for each in caplog.records if each.message == "volumes are not measured"]
    assert len(notified) == 1


async def test_an_error_is_an_answer(servers: Servers) -> None:
    def stale() -> str:
        raise TimeoutError(110, "Connection timed out")

    meters = Meters()
    for _ in range(2):
        with pytest.raises(OperationFailed, match="Connection timed out"):
            await meters.measure("soft", "statfs of a", stale)
    assert await _measure(meters, servers, "soft", "a") == "a"
