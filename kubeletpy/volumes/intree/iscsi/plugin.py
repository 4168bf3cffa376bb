"""iSCSI volumes: sessions of portals by iscsiadm, disks by udev's links.

Source: docs/reference/behaviour-storage.md, sq.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

from kubeletpy.base.host.files import write_private
from kubeletpy.kubeapi.protocol import KubeApi
from kubeletpy.volumes.claims.model import Mode, VolumeSource, VolumeSpec
from kubeletpy.volumes.claims.on_disk import FailureOutcome, StagedOnDisk
from kubeletpy.volumes.claims.operation import OperationFailed, PodUse
from kubeletpy.volumes.claims.secrets import read_secret
from kubeletpy.volumes.files import disk
from kubeletpy.volumes.intree.attached_disk import AttachedDiskPlugin
from kubeletpy.volumes.intree.iscsi import target
from kubeletpy.volumes.intree.iscsi.iscsiadm import DATABASES, EVENT_WORD, Iscsiadm
from kubeletpy.volumes.intree.iscsi.sessions import Chap, IscsiSessions
from kubeletpy.volumes.intree.iscsi.target import DISCOVERY_KEYS, SESSION_KEYS, IscsiDisk, disk_of
from kubeletpy.volumes.intree.scsi import ScsiTree

MAX_FILE = 1 << 16


class IscsiPlugin(AttachedDiskPlugin):
    """``iscsi`` in a pod or a PersistentVolume."""

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
        """Args:
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
        return disk_of(spec.source, spec.spec_name).place

    def name_at(self, place: str) -> str:
        """Derived from the names of directories: the portal has its port there."""
        found = target.disk_at(place, "")
        if found is None:
            return ""
        return f"{self.name}/{found.portals[0]}:{found.iqn}:{found.lun}"

    async def attach(self, spec: VolumeSpec, use: PodUse, directory: str) -> str:
        """Log in to the portals without a session, and wait for the disk."""
        wanted = disk_of(spec.source, spec.spec_name)
        chap = await self._chap(spec, use)
        async with self._alone(wanted.iqn):
            # first, so that after a kill the next agent can find what to log out of
            work = partial(_remember, directory, target.to_file(wanted))
            await self.in_thread(work, f"{target.FILE} of {directory}")
            return await self._sessions.attach(wanted, chap)

    async def device(self, spec: VolumeSpec) -> str:
        """The disk's device, found by its link."""
        return await self._sessions.device(disk_of(spec.source, spec.spec_name))

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
        problem = target.chap_problem(secret, (*DISCOVERY_KEYS, *SESSION_KEYS))
        if problem:
            raise OperationFailed(FailureOutcome.FINAL, f"CHAP: {problem}", event_word=EVENT_WORD)
        return Chap(
            secret if source.get("chapAuthDiscovery") else None,
            secret if source.get("chapAuthSession") else None,
        )

    def _alone(self, iqn: str) -> asyncio.Lock:
        """Serialises logins to a target and logouts from it."""
        lock = self._targets.get(iqn)
        if lock is None:
            lock = self._targets[iqn] = asyncio.Lock()
        return lock

    def _others(self, path: str) -> list[IscsiDisk]:
        """All other disks of this node. Blocks."""
        found = []
        for mode in Mode:
            for place in self.places(mode):
                at, directory = target.disk_at(place, ""), self.directory_of(place, mode)
                if at is not None and directory != path:
                    found.append(self._read(directory, at))
        return found

    def _read(self, directory: str, at: IscsiDisk) -> IscsiDisk:
        """A disk from the file in its place, which a mount hides. Blocks."""
        with contextlib.suppress(OSError, UnicodeDecodeError):
            if not disk.is_mounted(directory):
                with Path(directory, target.FILE).open("rb") as file:
                    return target.from_file(file.read(MAX_FILE).decode(), at)
        return at


def _remember(directory: str, text: str) -> None:
    """Blocks. Raises OSError."""
    disk.make_directory(directory)
    if not disk.is_mounted(directory):  # an existing file was written before the disk was mounted
        write_private(Path(directory, target.FILE), text)
