"""iSCSI volumes: sessions with targets by iscsiadm, disks by udev's links, and the plugin.

Source: docs/reference/behaviour-storage.md, sq; iscsiadm(8).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Collection, Iterable, Mapping
from functools import partial
from glob import escape
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

from kubeletpy.base.host.files import write_private
from kubeletpy.base.structs import Component, Hidden, HidesFields, Struct
from kubeletpy.kubeapi.protocol import KubeApi
from kubeletpy.volumes.claims.model import (
    FailureOutcome,
    Mode,
    OperationFailed,
    PodUse,
    StagedOnDisk,
    VolumeSource,
    VolumeSpec,
)
from kubeletpy.volumes.claims.plugin import read_secret
from kubeletpy.volumes.files import disk
from kubeletpy.volumes.intree import scsi
from kubeletpy.volumes.intree.base import InThread, run
from kubeletpy.volumes.intree.disks import AttachedDiskPlugin
from kubeletpy.volumes.intree.iscsi import target
from kubeletpy.volumes.intree.scsi import ScsiTree, Session

log = logging.getLogger(__name__)

PROGRAM = "iscsiadm"
DATABASES = ("/etc/iscsi", "/var/lib/iscsi")
"""Where distributions keep its records."""
EVENT_WORD = "MountVolume.WaitForAttach"
LOGIN_S = 150.0
"""Seconds for a login: by default, iscsid tries an unanswered one 8 times for 15 s each."""
_EXISTS = 15
_NO_SESSION, _NO_RECORD, _NO_IFACE = 2, 21, 7
MAX_RECORD = 1 << 16
MAX_FILE = 1 << 16
DEVICE_S = 30.0
"""How long udev may take to show a disk."""
MULTIPATH_S = 10.0
"""How long multipathd may take to map several paths."""
CHECK_S = 0.5


def iscsi_failure(
    message: str, call: str, outcome: FailureOutcome = FailureOutcome.UNCERTAIN
) -> OperationFailed:
    """The failure of a call on the way to an attached disk."""
    return OperationFailed(outcome, message, event_word=EVENT_WORD, call=call)


class Iscsiadm(Component):
    """Calls iscsiadm, and writes CHAP credentials into its records.

    Other processes can see arguments, so secrets are never among them: iscsiadm keeps its records
    in files that only root can read, and the credentials are written there.
    """

    in_thread: InThread
    databases: tuple[str, ...] = DATABASES

    async def transport(self, iface: str) -> str:
        """The transport of an iface: ``tcp``, … Raises OperationFailed."""
        call = f"iscsiadm: show iface {iface}"
        found = target.transport_in(await self._run(call, "-m", "iface", "-I", iface, "-o", "show"))
        if not found:
            raise iscsi_failure(f"iface {iface} has no transport", call, FailureOutcome.FINAL)
        return found

    async def make_iface(self, disk: target.IscsiDisk) -> None:
        """Make a volume's own iface: a copy of its source's iface with another initiator name.
        Raises OperationFailed.
        """
        call = f"iscsiadm: make iface {disk.iface}"
        reported = await self._run(call, "-m", "iface", "-I", disk.base_iface, "-o", "show")
        settings = {**target.settings_in(reported), "iface.initiatorname": disk.initiator}
        own = ("-m", "iface", "-I", disk.iface, "-o")
        await self._run(call, *own, "new", fine=(_EXISTS,))
        for key, value in sorted(settings.items()):
            await self._run(call, *own, "update", "-n", key, "-v", value)

    async def forget_iface(self, disk: target.IscsiDisk) -> None:
        """Remove a volume's own iface, if it exists. Raises OperationFailed."""
        if disk.owns_iface:
            call = f"iscsiadm: remove iface {disk.iface}"
            own = ("-m", "iface", "-I", disk.iface, "-o", "delete")
            await self._run(call, *own, fine=(_NO_SESSION, _NO_RECORD, _NO_IFACE))

    async def discover(
        self, disk: target.IscsiDisk, portal: str, chap: Mapping[str, str] | None
    ) -> None:
        """Discover the target at a portal. ``chap`` None: discovery needs none. Raises
        OperationFailed.
        """
        call = f"discovery of iSCSI portal {portal}"
        record = ("-m", "discoverydb", "-t", "sendtargets", "-p", portal, "-I", disk.iface)
        await self._run(call, *record, "-o", "new", fine=range(1, 256))
        place = f"send_targets/{_address(portal)}/st_config"
        if chap is not None:
            await self._update(call, record, "discovery.sendtargets.auth.authmethod", "CHAP")
            await self._write(
                call, (place,), {key: chap.get(key, "") for key in target.DISCOVERY_KEYS}
            )
        try:
            await self._run(call, *record, "--discover", timeout=LOGIN_S)
        except OperationFailed:
            await self._run(call, *record, "-o", "delete", fine=range(1, 256))
            raise
        if chap is not None:  # they are not needed there any more
            await self._write(call, (place,), dict.fromkeys(target.DISCOVERY_KEYS, ""))

    async def log_in(
        self, disk: target.IscsiDisk, portal: str, chap: Mapping[str, str] | None
    ) -> None:
        """Start a session through a discovered portal. Raises OperationFailed."""
        call = f"login to iSCSI target {disk.iqn} at {portal}"
        record = ("-m", "node", "-p", portal, "-T", disk.iqn, "-I", disk.iface)
        # other LUNs of the target do not concern this node: nobody would notice when they go
        await self._try(call, *record, "-o", "update", "-n", "node.session.scan", "-v", "manual")
        if chap is not None:
            await self._update(call, record, "node.session.auth.authmethod", "CHAP")
            node = f"nodes/{escape(disk.iqn)}/{escape(_address(portal))}*"
            places = (f"{node}/{escape(disk.iface)}", node)
            await self._write(call, places, {key: chap.get(key, "") for key in target.SESSION_KEYS})
        try:
            await self._run(call, *record, "--login", fine=(_EXISTS,), timeout=LOGIN_S)
        except OperationFailed:
            await self._run(call, *record, "-o", "delete", fine=range(1, 256))
            raise
        # a starting node must not wait for a target before the agent is running
        await self._try(call, *record, "-o", "update", "-n", "node.startup", "-v", "manual")

    async def log_out(self, disk: target.IscsiDisk, portal: str) -> None:
        """End the session through a portal, if there is one, and delete its record. Raises
        OperationFailed.
        """
        call = f"logout from iSCSI target {disk.iqn} at {portal}"
        record = ("-m", "node", "-p", portal, "-T", disk.iqn, "-I", disk.iface)
        removed = (_NO_SESSION, _NO_RECORD)
        await self._run(call, *record, "--logout", fine=removed, timeout=LOGIN_S)
        await self._run(call, *record, "-o", "delete", fine=removed)

    async def _update(self, call: str, record: tuple[str, ...], key: str, value: str) -> None:
        await self._run(call, *record, "-o", "update", "-n", key, "-v", value)

    async def _try(self, call: str, *args: str) -> None:
        """Apply a setting that old versions do not have."""
        try:
            await self._run(call, *args)
        except OperationFailed as error:
            log.warning(
                "iscsiadm did not take a setting", extra={"call": call, "why": error.message}
            )

    async def _run(
        self, call: str, *args: str, fine: Collection[int] = (), timeout: float | None = None
    ) -> str:
        return await run(
            PROGRAM, args, call=call, event_word=EVENT_WORD, fine=fine, timeout=timeout
        )

    async def _write(self, call: str, places: tuple[str, ...], values: Mapping[str, str]) -> None:
        found = await self.in_thread(partial(self._write_now, places, values), call)
        if not found:
            where = " and ".join(self.databases)
            message = f"iscsiadm's record {places[0]} is not in {where}: CHAP can't be set up"
            raise iscsi_failure(message, call, FailureOutcome.FINAL)

    def _write_now(self, places: tuple[str, ...], values: Mapping[str, str]) -> bool:
        """Write values into all records at these places; whether any exists. Blocks. OSError."""
        files = [
            path
            for database in self.databases
            for place in places
            for path in Path(database).glob(place)
            if path.is_file() and not path.is_symlink()
        ]
        for path in files:
            with path.open(encoding="utf-8", errors="surrogateescape") as file:
                record = file.read(MAX_RECORD)
            made = target.with_values(record, values)
            write_private(path, made.encode(errors="surrogateescape"))
        return bool(files)


def _address(portal: str) -> str:
    """A portal as spelled in names of records."""
    address, _, port = portal.rpartition(":")
    return f"{address.removeprefix('[').removesuffix(']')},{port}"


class Chap(HidesFields, Struct, frozen=True):
    """The credentials that a target requests; None: it requests none."""

    discovery: Hidden[Mapping[str, str] | None] = None
    session: Hidden[Mapping[str, str] | None] = None


class IscsiSessions(Component):
    """Starts sessions with targets, finds their disks, and ends unused sessions.

    The caller must have exclusive use of the target.
    """

    tree: ScsiTree
    admin: Iscsiadm
    in_thread: InThread

    async def attach(self, disk: target.IscsiDisk, chap: Chap) -> str:
        """Attach a disk; returns its device, or its multipath map. Raises OperationFailed."""
        transport = await self.admin.transport(disk.base_iface)
        if disk.initiator:
            await self.admin.make_iface(disk)
        paths: dict[str, str] = {}
        problem: OperationFailed | None = None
        rounds, verdict = 0, target.PathsVerdict.AGAIN
        while verdict is target.PathsVerdict.AGAIN:
            rounds += 1
            for portal in disk.portals:
                if portal in paths:
                    continue
                try:
                    paths[portal] = await self._path(disk, portal, transport, chap)
                except OperationFailed as error:
                    problem = error
            verdict = target.verdict(len(paths), len(disk.portals), rounds)
        if verdict is target.PathsVerdict.FAILED:
            await self.admin.forget_iface(disk)
            assert problem is not None, "no path was found"
            raise problem
        if problem is not None and len(paths) < len(disk.portals):
            missing = [portal for portal in disk.portals if portal not in paths]
            extra = {"volume": disk.spec_name, "missing": missing, "why": problem.message}
            log.warning("an iSCSI volume has fewer paths than its target lists", extra=extra)
        patience = MULTIPATH_S if len(disk.portals) > 1 else 0.0
        return await self._map_of(list(paths.values()), patience)

    async def device(self, disk: target.IscsiDisk) -> str:
        """The device of an attached disk. Raises OperationFailed."""
        for portal in disk.portals:
            for transport in ("tcp", ""):
                found = await self._reported(target.link_name(disk, portal, transport))
                if found is not None:
                    return await self._map_of([found], 0.0)
        raise iscsi_failure(
            f"no disk of LUN {disk.lun} of target {disk.iqn} in {self.tree.dev}/disk/by-path",
            f"search for LUN {disk.lun} of iSCSI target {disk.iqn}",
        )

    async def detach(self, disk: target.IscsiDisk, others: Iterable[target.IscsiDisk]) -> None:
        """Detach a disk, and end its unused sessions. Raises OperationFailed.

        ``others``: this node's other iSCSI disks.
        """
        others = list(others)
        sessions = await self._sessions(disk)
        if any((each.iqn, each.lun) == (disk.iqn, disk.lun) for each in others):
            return
        await scsi.remove_disks(self.tree, scsi.disks_of_lun(sessions, disk.lun), self.in_thread)
        if any(target.shares_session(disk, each) for each in others):
            return
        held = partial(self._held, scsi.disks_of_other_luns(sessions, disk.lun))
        for name in await self.in_thread(held, f"check of disks of target {disk.iqn}"):
            extra = {"target": disk.iqn, "disk": name}
            log.warning("an iSCSI session stays: one of its disks is in use", extra=extra)
            return
        for portal in disk.portals:
            await self.admin.log_out(disk, portal)
        await self.admin.forget_iface(disk)

    async def _path(self, disk: target.IscsiDisk, portal: str, transport: str, chap: Chap) -> str:
        """The disk as seen through one portal. Raises OperationFailed."""
        host = scsi.host_of(await self._sessions(disk), portal)
        if host is None:
            await self.admin.discover(disk, portal, chap.discovery)
            await self.admin.log_in(disk, portal, chap.session)
            host = scsi.host_of(await self._sessions(disk), portal)
        call = f"search for LUN {disk.lun} of iSCSI target {disk.iqn} at {portal}"
        if host is None:
            message = f"logged in to {disk.iqn} at {portal}, but the kernel shows no such session"
            raise iscsi_failure(message, call)
        await self.in_thread(partial(scsi.scan_lun, self.tree, host, disk.lun), call)
        name = target.link_name(disk, portal, transport)
        until = asyncio.get_running_loop().time() + DEVICE_S
        while (found := await self._reported(name)) is None:
            if asyncio.get_running_loop().time() >= until:
                message = (
                    f"timed out waiting for device {self.tree.dev}/disk/by-path/{name} after "
                    f"{DEVICE_S:g} s: does target {disk.iqn} have LUN {disk.lun} for this node?"
                )
                raise iscsi_failure(message, call)
            await asyncio.sleep(CHECK_S)
        return found

    async def _map_of(self, paths: list[str], patience: float) -> str:
        """The multipath map of one of the paths; without a map the first path."""
        until = asyncio.get_running_loop().time() + patience
        while True:
            for path in paths:
                check = partial(scsi.multipath_of, self.tree, path)
                found = await self.in_thread(check, f"search for the map of {path}")
                if found is not None:
                    return found
            if asyncio.get_running_loop().time() >= until:
                return paths[0]
            await asyncio.sleep(CHECK_S)

    async def _sessions(self, disk: target.IscsiDisk) -> list[Session]:
        check = partial(scsi.sessions_of, self.tree, disk.iqn)
        return await self.in_thread(check, f"search for sessions with iSCSI target {disk.iqn}")

    async def _reported(self, name: str) -> str | None:
        """A disk in by-path; a name with ``*`` gives the first match."""
        check = partial(_first, f"{self.tree.dev}/disk/by-path", name)
        return await self.in_thread(check, f"search for {name}")

    def _held(self, names: list[str]) -> list[str]:
        return [name for name in names if scsi.is_held(f"{self.tree.dev}/{name}")]


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


class IscsiPlugin(AttachedDiskPlugin):
    """The plugin for ``iscsi`` in a pod or a PersistentVolume."""

    name = target.PLUGIN
    kinds = frozenset({"iscsi"})
    directory = "kubernetes.io~iscsi"
    depth = 2
    file = target.FILE

    def __init__(
        self,
        root: Path,
        kube_api: KubeApi | None = None,
        *,
        controller: bool = True,
        tree: ScsiTree | None = None,
        databases: tuple[str, ...] = DATABASES,
    ) -> None:
        """Use the disks of one node.

        Args:
            root: the kubelet's root directory.
            kube_api: for secrets; None: standalone.
            controller: the attach controller decides when a disk may be used.
            tree: the device directories.
            databases: where iscsiadm keeps its records.
        """
        super().__init__(root, controller=controller, tree=tree)
        self._api = kube_api
        self._sessions = IscsiSessions(
            self._tree, Iscsiadm(self.in_thread, databases), self.in_thread
        )
        self._targets: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def problem(self, source: VolumeSource) -> str:
        """Portals, target and LUN become command arguments and path components."""
        return target.problem(source.source, source.spec_name)

    def full_name(self, source: VolumeSource) -> str:
        """Portal, target and LUN."""
        return target.unique_name(source.source)

    def place(self, spec: VolumeSpec) -> str:
        """Its iface, portal, target and LUN."""
        return target.disk_of(spec.source, spec.spec_name).place

    def name_at(self, place: str) -> str:
        """Derived from the names of directories: the portal has its port there."""
        found = target.disk_at(place, "")
        if found is None:
            return ""
        return f"{self.name}/{found.portals[0]}:{found.iqn}:{found.lun}"

    async def attach(self, spec: VolumeSpec, use: PodUse, directory: str) -> str:
        """Log in to the portals without a session, and wait for the disk."""
        desired = target.disk_of(spec.source, spec.spec_name)
        chap = await self._chap(spec, use)
        async with self._alone(desired.iqn):
            # first, so that after a kill the next agent can find what to log out of
            work = partial(_remember, directory, target.to_file(desired))
            await self.in_thread(work, f"{target.FILE} of {directory}")
            return await self._sessions.attach(desired, chap)

    async def device(self, spec: VolumeSpec) -> str:
        """The disk's device, found by its link."""
        return await self._sessions.device(target.disk_of(spec.source, spec.spec_name))

    async def detach(self, left: StagedOnDisk, place: str) -> None:
        """Detach the disk, and log out when this node needs its session no more."""
        at = target.disk_at(place, left.spec_name)
        if at is None:
            return
        read = partial(self._read, left.path, at)
        known = await self.in_thread(read, f"{target.FILE} of {left.path}")
        async with self._alone(known.iqn):
            others = await self.in_thread(
                partial(self._others, left.path), "search for other disks"
            )
            await self._sessions.detach(known, others)

    async def _chap(self, spec: VolumeSpec, use: PodUse) -> Chap:
        """The credentials that the target requests. Raises OperationFailed."""
        source: Mapping[str, Any] = spec.source
        if not (source.get("chapAuthDiscovery") or source.get("chapAuthSession")):
            return Chap()
        reference = source.get("secretRef")
        own = reference.get("namespace") if isinstance(reference, Mapping) else None
        secret = await read_secret(self._api, reference, "" if own else use.namespace)
        problem = target.chap_problem(secret, (*target.DISCOVERY_KEYS, *target.SESSION_KEYS))
        if problem:
            raise OperationFailed(FailureOutcome.FINAL, f"CHAP: {problem}", event_word=EVENT_WORD)
        return Chap(
            secret if source.get("chapAuthDiscovery") else None,
            secret if source.get("chapAuthSession") else None,
        )

    def _alone(self, iqn: str) -> asyncio.Lock:
        """Serializes logins to a target and logouts from it."""
        lock = self._targets.get(iqn)
        if lock is None:
            lock = self._targets[iqn] = asyncio.Lock()
        return lock

    def _others(self, path: str) -> list[target.IscsiDisk]:
        """All other disks of this node. Blocks."""
        found = []
        for mode in Mode:
            for place in self.places(mode):
                at, directory = target.disk_at(place, ""), self.directory_of(place, mode)
                if at is not None and directory != path:
                    found.append(self._read(directory, at))
        return found

    def _read(self, directory: str, at: target.IscsiDisk) -> target.IscsiDisk:
        """A disk from the file in its place, which a mount hides. Blocks."""
        with contextlib.suppress(OSError, UnicodeDecodeError):
            if not disk.is_mounted(directory):
                with Path(directory, target.FILE).open("rb") as file:
                    return target.from_file(file.read(MAX_FILE).decode(), at)
        return at


def _remember(directory: str, text: str) -> None:
    """Write the file of a disk, unless the disk is mounted over it. Blocks. Raises OSError."""
    disk.make_directory(directory)
    if not disk.is_mounted(directory):  # an existing file was written before the disk was mounted
        write_private(Path(directory, target.FILE), text)
