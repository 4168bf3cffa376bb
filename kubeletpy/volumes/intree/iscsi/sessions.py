"""Starts sessions with iSCSI targets, finds their disks, and ends unused sessions.

Source: docs/reference/behaviour-storage.md, sq.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path

from kubeletpy.base.structs import Hidden, HidesFields, Struct
from kubeletpy.volumes.claims.operation import OperationFailed
from kubeletpy.volumes.intree import scsi
from kubeletpy.volumes.intree.base import InThread
from kubeletpy.volumes.intree.iscsi.iscsiadm import Iscsiadm, iscsi_failure
from kubeletpy.volumes.intree.iscsi.target import (
    IscsiDisk,
    PathsVerdict,
    link_name,
    shares_session,
    verdict,
)
from kubeletpy.volumes.intree.scsi import ScsiTree, Session
from kubeletpy.volumes.intree.scsi_disks import let_go

log = logging.getLogger(__name__)

DEVICE_S = 30.0
"""How long udev may take to show a disk."""
MULTIPATH_S = 10.0
"""How long multipathd may take to map several paths."""
LOOK_S = 0.5


class Chap(HidesFields, Struct, frozen=True):
    """The credentials that a target requests; None: it requests none."""

    discovery: Hidden[Mapping[str, str] | None] = None
    session: Hidden[Mapping[str, str] | None] = None


class IscsiSessions:
    """The iSCSI sessions of this node. The caller must have exclusive use of the target."""

    def __init__(self, tree: ScsiTree, admin: Iscsiadm, in_thread: InThread) -> None:
        self._tree = tree
        self._admin = admin
        self._in_thread = in_thread

    async def attach(self, disk: IscsiDisk, chap: Chap) -> str:
        """Attach a disk; returns its device, or its multipath map. Raises OperationFailed."""
        transport = await self._admin.transport(disk.base_iface)
        if disk.initiator:
            await self._admin.make_iface(disk)
        paths: dict[str, str] = {}
        problem: OperationFailed | None = None
        rounds, said = 0, PathsVerdict.AGAIN
        while said is PathsVerdict.AGAIN:
            rounds += 1
            for portal in disk.portals:
                if portal in paths:
                    continue
                try:
                    paths[portal] = await self._path(disk, portal, transport, chap)
                except OperationFailed as error:
                    problem = error
            said = verdict(len(paths), len(disk.portals), rounds)
        if said is PathsVerdict.FAILED:
            await self._admin.forget_iface(disk)
            assert problem is not None, "no path was found"
            raise problem
        if problem is not None and len(paths) < len(disk.portals):
            missing = [portal for portal in disk.portals if portal not in paths]
            extra = {"volume": disk.spec_name, "missing": missing, "why": problem.message}
            log.warning("an iSCSI volume has fewer paths than its target lists", extra=extra)
        patience = MULTIPATH_S if len(disk.portals) > 1 else 0.0
        return await self._map_of(list(paths.values()), patience)

    async def device(self, disk: IscsiDisk) -> str:
        """The device of an attached disk. Raises OperationFailed."""
        for portal in disk.portals:
            for transport in ("tcp", ""):
                found = await self._shown(link_name(disk, portal, transport))
                if found is not None:
                    return await self._map_of([found], 0.0)
        raise iscsi_failure(
            f"no disk of LUN {disk.lun} of target {disk.iqn} in {self._tree.dev}/disk/by-path",
            f"search for LUN {disk.lun} of iSCSI target {disk.iqn}",
        )

    async def detach(self, disk: IscsiDisk, others: Iterable[IscsiDisk]) -> None:
        """Detach a disk, and end its unused sessions. Raises OperationFailed.

        ``others``: this node's other iSCSI disks.
        """
        others = list(others)
        sessions = await self._sessions(disk)
        if any((each.iqn, each.lun) == (disk.iqn, disk.lun) for each in others):
            return
        await let_go(self._tree, scsi.disks_of_lun(sessions, disk.lun), self._in_thread)
        if any(shares_session(disk, each) for each in others):
            return
        held = partial(self._held, scsi.disks_of_other_luns(sessions, disk.lun))
        for name in await self._in_thread(held, f"check of disks of target {disk.iqn}"):
            extra = {"target": disk.iqn, "disk": name}
            log.warning("an iSCSI session stays: one of its disks is in use", extra=extra)
            return
        for portal in disk.portals:
            await self._admin.log_out(disk, portal)
        await self._admin.forget_iface(disk)

    async def _path(self, disk: IscsiDisk, portal: str, transport: str, chap: Chap) -> str:
        """The disk as seen through one portal. Raises OperationFailed."""
        host = scsi.host_of(await self._sessions(disk), portal)
        if host is None:
            await self._admin.discover(disk, portal, chap.discovery)
            await self._admin.log_in(disk, portal, chap.session)
            host = scsi.host_of(await self._sessions(disk), portal)
        call = f"search for LUN {disk.lun} of iSCSI target {disk.iqn} at {portal}"
        if host is None:
            message = f"logged in to {disk.iqn} at {portal}, but the kernel shows no such session"
            raise iscsi_failure(message, call)
        await self._in_thread(partial(scsi.scan_lun, self._tree, host, disk.lun), call)
        name = link_name(disk, portal, transport)
        until = asyncio.get_running_loop().time() + DEVICE_S
        while (found := await self._shown(name)) is None:
            if asyncio.get_running_loop().time() >= until:
                message = (
                    f"timed out waiting for device {self._tree.dev}/disk/by-path/{name} after "
                    f"{DEVICE_S:g} s: does target {disk.iqn} have LUN {disk.lun} for this node?"
                )
                raise iscsi_failure(message, call)
            await asyncio.sleep(LOOK_S)
        return found

    async def _map_of(self, paths: list[str], patience: float) -> str:
        """The multipath map of one of the paths; without a map the first path."""
        until = asyncio.get_running_loop().time() + patience
        while True:
            for path in paths:
                look = partial(scsi.multipath_of, self._tree, path)
                found = await self._in_thread(look, f"search for the map of {path}")
                if found is not None:
                    return found
            if asyncio.get_running_loop().time() >= until:
                return paths[0]
            await asyncio.sleep(LOOK_S)

    async def _sessions(self, disk: IscsiDisk) -> list[Session]:
        look = partial(scsi.sessions_of, self._tree, disk.iqn)
        return await self._in_thread(look, f"search for sessions with iSCSI target {disk.iqn}")

    async def _shown(self, name: str) -> str | None:
        """A disk in by-path; a name with ``*`` gives the first match."""
        look = partial(_first, f"{self._tree.dev}/disk/by-path", name)
        return await self._in_thread(look, f"search for {name}")

    def _held(self, names: list[str]) -> list[str]:
        return [name for name in names if scsi.is_held(f"{self._tree.dev}/{name}")]


def _first(directory: str, name: str) -> str | None:
    prefix, star, suffix = name.partition("*")
    if not star:
        path = Path(directory, name)
        return str(path) if path.exists() else None
    try:
        names = sorted(each.name for each in Path(directory).iterdir())
    except FileNotFoundError:
        return None
    fits = (each for each in names if each.startswith(prefix) and each.endswith(suffix))
    return next((f"{directory}/{each}" for each in fits), None)
