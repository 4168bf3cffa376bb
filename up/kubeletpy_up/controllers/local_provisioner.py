"""Creates directories for claims, and removes them with the claim unless they are retained.

Event driven; what touches the disk runs in threads, one thing at a time for each volume. Must never
touch a directory that is not directly below its own, nor that of a volume it did not create.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from pathlib import Path

from kubeletpy.base.api.types import JSON
from kubeletpy.base.host.files import remove_tree
from kubeletpy.base.tasks import Lasting, cancel_tasks
from kubeletpy_up.controllers import claim_matching as matching
from kubeletpy_up.controllers import local_volumes as local
from kubeletpy_up.controllers.reconciler import RETRY_S, Key, Reconciler, key_of
from kubeletpy_up.errors import ApiError
from kubeletpy_up.kinds.storage import CLAIMS, CLASSES, VOLUMES, class_of, is_default
from kubeletpy_up.registry.registry import Registry
from kubeletpy_up.requests import CONTROLLER, DeleteOptions
from kubeletpy_up.storage.history import Change

logger = logging.getLogger(__name__)

_CLAIM, _VOLUME = "PersistentVolumeClaim", "PersistentVolume"
_ALL_MAY = 0o777
"""Mode of a volume: any pod that mounts it has access, whatever user the pod runs as."""


class LocalProvisioner(Reconciler):
    """Provisions a registry's claims while it runs.

    Args:
        directory: the parent of all volumes; created, for root alone, with the first one.
        node_name: of the machine.
    """

    component = local.PROVISIONER

    def __init__(self, registry: Registry, directory: Path, node_name: str) -> None:
        super().__init__(registry)
        self._directory = directory
        self._node_name = node_name
        self._working: dict[Key, asyncio.Task[None]] = {}
        self._missed: set[Key] = set()
        self._threads = Lasting()

    def start(self) -> None:
        """Start, and create the StorageClass unless the API has one of that name."""
        classes = self.all_of(CLASSES)
        if all(known["metadata"]["name"] != local.CLASS_NAME for known in classes):
            made = local.storage_class(is_default=not any(is_default(c) for c in classes))
            self.registry.create(CONTROLLER, CLASSES, made)
        super().start()

    async def stop(self) -> None:
        """Stop once threads have finished; the next start checks everything again."""
        await super().stop()
        await cancel_tasks(self._working.values())
        self._working.clear()
        await self._threads.close()
        self._missed.clear()

    def everything(self) -> Iterable[Key]:
        """All volumes and claims."""
        return [key_of(each, obj) for each in (VOLUMES, CLAIMS) for obj in self.all_of(each)]

    def concerned(self, change: Change) -> Iterable[Key]:
        """Claims and volumes that change; all pending claims when the node or a class appears."""
        if change.resource in (CLAIMS, VOLUMES) and change.type != "DELETED":
            yield key_of(change.resource, change.object)
        elif change.resource == CLASSES or (change.resource == "nodes" and change.type == "ADDED"):
            yield from (
                key_of(CLAIMS, claim)
                for claim in self.all_of(CLAIMS)
                if not matching.is_completed(claim)
            )

    def check(self, key: Key) -> None:
        """Reconcile a claim or a volume."""
        found = self.find(key)
        if key in self._working:
            self._missed.add(key)
            return
        if found is None:
            return
        if key[0] == VOLUMES:
            if local.is_to_be_deleted(found):
                self._work(key, partial(self._delete, key, found))
            elif _is_left(found):
                self.write(VOLUMES, local.released(found), old=found)
        elif matching.is_completed(found):
            self._grow(found)
        else:
            self._claim(key, found)

    # claims

    def _claim(self, key: Key, claim: JSON) -> None:
        if matching.volume_name(claim) or claim["metadata"].get("deletionTimestamp"):
            return
        storage_class = self.registry.find(CLASSES, "", class_of(claim) or "")
        if storage_class is None or storage_class.get("provisioner") != local.PROVISIONER:
            return
        if matching.annotation(claim, matching.PROVISIONER) != local.PROVISIONER:
            return  # the binder requests the volume when the claim may have one
        if self.registry.find(VOLUMES, "", local.name_for(claim)) is not None:
            return
        node = self.registry.find("nodes", "", self._node_name)
        selected = matching.annotation(claim, matching.SELECTED_NODE)
        why = local.problem(claim, storage_class, node)
        if selected not in (None, self._node_name):
            why = f"node {selected} is not this machine ({self._node_name})"
        if why or node is None:
            self._failed(claim, why)
            return
        path = self._directory / local.name_for(claim)
        volume = local.volume(claim, storage_class, node, str(path))
        self._work(key, partial(self._make, key, claim, volume, path))

    def _failed(self, claim: JSON, why: str) -> None:
        name = class_of(claim)
        message = f'failed to provision volume with StorageClass "{name}": {why}'
        self.report(_CLAIM, claim, "Warning", "ProvisioningFailed", message)

    async def _make(self, key: Key, claim: JSON, volume: JSON, path: Path) -> None:
        try:
            await self._threads.finish(asyncio.to_thread(_make_directory, path))
        except OSError as error:
            self._failed(claim, f"{path}: {error.strerror or error}")
            self.later(key, RETRY_S)
            return
        now = self.find(key)
        if now is None or now["metadata"]["uid"] != claim["metadata"]["uid"]:
            await self._threads.finish(asyncio.to_thread(_remove_directory, path))
            return
        self.registry.create(CONTROLLER, VOLUMES, volume)
        name = volume["metadata"]["name"]
        message = f"Successfully provisioned volume {name}"
        self.report(_CLAIM, claim, "Normal", "ProvisioningSucceeded", message)

    def _grow(self, claim: JSON) -> None:
        """Expand a volume. A directory has no size of its own: only the objects change."""
        volume = self.registry.find(VOLUMES, "", matching.volume_name(claim))
        if volume is None:
            return
        larger = local.larger(volume, claim)
        if larger is not None:
            volume = self.write(VOLUMES, larger, old=volume)
        elif not local.is_ours(volume) or not matching.belongs_to(volume, claim):
            return
        status, size = claim.get("status") or {}, volume["spec"]["capacity"]["storage"]
        if status.get("phase") != "Bound" or (status.get("capacity") or {}).get("storage") == size:
            return
        changed = {**claim, "status": {**status, "capacity": {"storage": size}}}
        self.write(CLAIMS, changed, old=claim, status=True)
        message = f"Resize volume succeeded: {size}"
        self.report(_CLAIM, claim, "Normal", "VolumeResizeSuccessful", message)

    # volumes

    async def _delete(self, key: Key, volume: JSON) -> None:
        name = volume["metadata"]["name"]
        path = self._directory / name
        supplied = ((volume["spec"].get("local") or {}).get("path")) or ""
        why = ""
        if not local.is_name(name) or supplied != str(path):
            why = (
                f"{supplied} is not where this provisioner makes the volume {name}: "
                "remove it by hand"
            )
        else:
            try:
                await self._threads.finish(asyncio.to_thread(_remove_directory, path))
            except OSError as error:
                why = f"{error.filename or path}: {error.strerror or error}"
                self.later(key, RETRY_S)
        if why:
            self.report(_VOLUME, volume, "Warning", "VolumeFailedDelete", why)
            logger.warning("A volume is not deleted", extra={"volume": name, "error": why})
            return
        now = self.find(key)
        if now is None or now["metadata"]["uid"] != volume["metadata"]["uid"]:
            return
        if not now["metadata"].get("deletionTimestamp"):
            options = DeleteOptions(uid=now["metadata"]["uid"])
            now = self.registry.delete(CONTROLLER, VOLUMES, name, options=options)
        self.write(VOLUMES, local.released(now), old=now)

    def _work(self, key: Key, work: Callable[[], Awaitable[None]]) -> None:
        self._working[key] = asyncio.create_task(self._guarded(key, work))

    async def _guarded(self, key: Key, work: Callable[[], Awaitable[None]]) -> None:
        try:
            await work()
        except ApiError as error:
            about = {"resource": key[0], "object": key[2], "error": str(error)}
            logger.warning("A volume's object can't be written", extra=about)
            self.later(key, RETRY_S)
        finally:
            self._working.pop(key, None)
        if key in self._missed:  # it changed meanwhile
            self._missed.discard(key)
            self.again([key])


def _is_left(volume: JSON) -> bool:
    """Whether an unbound volume is being deleted; its directory is kept."""
    phase = (volume.get("status") or {}).get("phase")
    return bool(volume["metadata"].get("deletionTimestamp")) and phase != "Bound"


def _make_directory(path: Path) -> None:
    """Create an empty directory in a parent that only root may enter; an existing one is reused."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        path.mkdir(mode=0o700)
    except FileExistsError:
        if path.is_symlink() or not path.is_dir():
            raise
    directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        os.fchmod(directory, _ALL_MAY)
    finally:
        os.close(directory)


def _remove_directory(path: Path) -> None:
    """Remove a volume's directory and its contents, following no links; an absent one is fine."""
    with contextlib.suppress(FileNotFoundError):
        remove_tree(str(path))
