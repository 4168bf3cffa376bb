"""Logging in to targets, finding disks and logging out, with a fake iscsiadm."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from kubeletpy.volumes.claims.model import FailureOutcome, OperationFailed
from kubeletpy.volumes.intree import scsi
from kubeletpy.volumes.intree.iscsi import plugin
from kubeletpy.volumes.intree.iscsi.plugin import (
    DEVICE_S,
    MULTIPATH_S,
    Chap,
    Iscsiadm,
    IscsiSessions,
)
from kubeletpy.volumes.intree.iscsi.target import IscsiDisk
from kubeletpy.volumes.intree.scsi import ScsiTree
from tests.iscsi_target.stand_in import StandIn
from tests.kit.virtual_time import on_virtual_time, timed

IQN = "iqn.2026-01.test:one"
ONE, TWO = "10.0.0.1:3260", "[fd00::1]:3260"
PASSWORD = "s3cr3t of many"
CHAP = {
    "node.session.auth.authmethod": "CHAP",
    "node.session.auth.username": "me",
    "node.session.auth.password": PASSWORD,
    "discovery.sendtargets.auth.authmethod": "CHAP",
    "discovery.sendtargets.auth.username": "me",
    "discovery.sendtargets.auth.password": PASSWORD,
}


class Machine:
    """A node with an iSCSI target."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.target = StandIn(directory)
        self.tree = ScsiTree(str(self.target.sys), str(self.target.dev))
        self.programs: list[str] = []
        self.held: set[str] = set()
        admin = Iscsiadm(at_once, (str(directory / "nothing"), str(self.target.database)))
        self.sessions = IscsiSessions(self.tree, admin, at_once)
        monkeypatch.setattr(plugin, "run", self._run)
        monkeypatch.setattr(scsi, "run", self._run)
        monkeypatch.setattr(scsi, "is_held", lambda device: Path(device).name in self.held)
        disks = {2: directory / "disks/sdx", 3: directory / "disks/sdy"}
        (directory / "disks").mkdir()
        for each in disks.values():
            each.touch()
        self.target.begin(IQN, [ONE, TWO], {lun: str(path) for lun, path in disks.items()})

    async def _run(
        self,
        program: str,
        args: Sequence[str],
        *,
        call: str,
        event_word: str = "",
        timeout: float | None = None,
        fine: Sequence[int] = (),
    ) -> str:
        if program != "iscsiadm":
            self.programs.append(f"{program} {' '.join(args)}")
            return ""
        status, stated = self.target.run(args)
        if status and status not in fine:
            text = f"exit status {status}"
            raise OperationFailed(FailureOutcome.UNCERTAIN, text, event_word=event_word, call=call)
        return stated

    def scanned(self, host: int) -> str:
        return (self.target.sys / f"class/scsi_host/host{host}/scan").read_text()

    def deleted(self, name: str) -> str:
        return (self.target.sys / f"block/{name}/device/delete").read_text()

    def map(self, name: str, *members: str) -> None:
        for each in members:
            (self.target.sys / f"block/{name}/slaves/{each}").mkdir(parents=True)


async def at_once(work: Callable[[], Any], call: str) -> Any:
    return work()


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(tmp_path, monkeypatch)


def disk(*portals: str, lun: int = 2, **changes: Any) -> IscsiDisk:
    return IscsiDisk("pv1", portals or (ONE,), IQN, lun, **changes)


async def test_attached_and_let_go(machine: Machine) -> None:
    device = await machine.sessions.attach(disk(), Chap())
    assert device == f"{machine.tree.dev}/disk/by-path/ip-{ONE}-iscsi-{IQN}-lun-2"
    assert machine.scanned(0) == "0 0 2", "only the LUN of the disk"
    record = next(machine.target.database.glob(f"nodes/{IQN}/10*/default")).read_text()
    assert "node.session.scan = manual" in record
    assert "node.startup = manual" in record
    assert await machine.sessions.device(disk()) == device

    await machine.sessions.detach(disk(), [])
    assert machine.target.sessions == []
    assert machine.deleted("sdx") == "1"
    assert machine.programs == [f"blockdev --flushbufs {machine.tree.dev}/sdx"]
    with pytest.raises(OperationFailed, match="LUN 2 of target"):
        await machine.sessions.device(disk())


async def test_a_session_that_is_there_is_used(machine: Machine) -> None:
    await machine.sessions.attach(disk(), Chap())
    before = len(machine.target.calls)
    await machine.sessions.attach(disk(lun=3), Chap())
    assert [call for call in machine.target.calls[before:] if "show" not in call] == []
    await machine.sessions.detach(disk(), [disk(lun=3)])
    assert machine.target.sessions == [ONE]
    assert (machine.deleted("sdx"), machine.deleted("sdy")) == ("1", "")


@pytest.mark.parametrize("other", [disk(), disk(iface="another")])
async def test_a_disk_that_another_volume_uses_stays(machine: Machine, other: IscsiDisk) -> None:
    await machine.sessions.attach(disk(), Chap())
    await machine.sessions.detach(disk(), [other])
    assert (machine.target.sessions, machine.deleted("sdx")) == ([ONE], "")


async def test_a_session_with_another_disk_in_use_stays(machine: Machine) -> None:
    await machine.sessions.attach(disk(), Chap())
    machine.held = {"sdy"}
    await machine.sessions.detach(disk(), [])
    assert (machine.target.sessions, machine.deleted("sdx")) == ([ONE], "1")


async def test_a_disk_that_is_in_use_is_not_let_go(machine: Machine) -> None:
    await machine.sessions.attach(disk(), Chap())
    machine.held = {"sdx"}
    with pytest.raises(OperationFailed, match="sdx is still in use") as raised:
        await machine.sessions.detach(disk(), [])
    assert raised.value.outcome is FailureOutcome.UNCERTAIN
    assert (machine.target.sessions, machine.deleted("sdx")) == ([ONE], "")
    machine.held = set()
    await machine.sessions.detach(disk(), [])
    assert machine.target.sessions == []


async def test_chap_secrets_are_written_into_records_and_never_shown(machine: Machine) -> None:
    machine.target.configure(chap=CHAP)
    chap = Chap(CHAP, CHAP)
    with pytest.raises(OperationFailed, match="24"):
        await machine.sessions.attach(disk(), Chap())
    await machine.sessions.attach(disk(), chap)
    assert machine.target.sessions == [ONE]
    assert PASSWORD not in "\n".join(machine.target.calls)
    assert PASSWORD not in repr(chap)
    files = {path.name: path for path in machine.target.database.rglob("*") if path.is_file()}
    assert PASSWORD not in files["st_config"].read_text(), "nobody needs it after the discovery"
    assert PASSWORD in files["default"].read_text()
    assert files["default"].stat().st_mode & 0o777 == 0o600


async def test_chap_without_a_record_is_refused(machine: Machine, tmp_path: Path) -> None:
    admin = Iscsiadm(at_once, (str(tmp_path / "elsewhere"),))
    with pytest.raises(OperationFailed, match="elsewhere: CHAP can't be set up"):
        await IscsiSessions(machine.tree, admin, at_once).attach(disk(), Chap(CHAP, CHAP))
    assert PASSWORD not in "\n".join(machine.target.calls)


async def test_an_iface_of_its_own(machine: Machine) -> None:
    own = disk(iface=f"{ONE}:pv1", base_iface="default", initiator="iqn.2026-01.me:x")
    await machine.sessions.attach(own, Chap())
    iface = machine.target.database / "ifaces" / own.iface
    assert "iface.initiatorname = iqn.2026-01.me:x" in iface.read_text()
    assert "iface.transport_name = tcp" in iface.read_text()
    await machine.sessions.attach(own, Chap())
    await machine.sessions.detach(own, [])
    assert (iface.exists(), machine.target.sessions) == (False, [])
    await machine.sessions.detach(own, [])


async def test_paths_and_their_map(machine: Machine) -> None:
    machine.map("dm-5", "sdx")
    device = await machine.sessions.attach(disk(ONE, TWO), Chap())
    assert device == f"{machine.tree.dev}/dm-5"
    assert machine.target.sessions == [ONE, TWO]
    assert await machine.sessions.device(disk(ONE, TWO)) == device
    await machine.sessions.detach(disk(ONE, TWO), [])
    assert machine.programs[0] == f"multipath -f {device}"
    assert (machine.deleted("sdx"), machine.target.sessions) == ("1", [])


@on_virtual_time
async def test_without_a_map_the_first_path_is_taken_after_a_while(machine: Machine) -> None:
    device, seconds = await timed(machine.sessions.attach(disk(ONE, TWO), Chap()))
    assert device.endswith(f"ip-{ONE}-iscsi-{IQN}-lun-2")
    assert MULTIPATH_S <= seconds < MULTIPATH_S + 1


@on_virtual_time
async def test_a_disk_that_does_not_come(machine: Machine) -> None:
    machine.target.configure(hidden=[ONE])
    begun = asyncio.get_running_loop().time()
    with pytest.raises(OperationFailed, match="timed out waiting for device") as raised:
        await machine.sessions.attach(disk(), Chap())
    assert DEVICE_S <= asyncio.get_running_loop().time() - begun < DEVICE_S + 1
    assert raised.value.event_word == "MountVolume.WaitForAttach"
    assert raised.value.outcome is FailureOutcome.UNCERTAIN


@on_virtual_time
async def test_one_path_of_two_is_tried_again_and_then_enough(machine: Machine) -> None:
    machine.target.configure(hidden=[TWO])
    device, seconds = await timed(machine.sessions.attach(disk(ONE, TWO), Chap()))
    assert device.endswith("lun-2")
    assert 5 * DEVICE_S <= seconds < 5 * DEVICE_S + MULTIPATH_S + 5


async def test_a_silent_portal(machine: Machine) -> None:
    own = disk("10.9.9.9:3260", iface="10.9.9.9:3260:pv1", initiator="iqn.2026-01.me:x")
    with pytest.raises(OperationFailed, match="exit status 4") as raised:
        await machine.sessions.attach(own, Chap())
    assert raised.value.call == "discovery of iSCSI portal 10.9.9.9:3260"
    assert not (machine.target.database / "ifaces" / own.iface).exists()
    assert not list(machine.target.database.glob("send_targets/*"))
