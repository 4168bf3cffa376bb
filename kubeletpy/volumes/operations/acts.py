"""Does one volume operation: the plugin's call, and the agent's work around it.

Must never decide whether it is time for it. Source: docs/reference/behaviour-storage.md, sf, so,
sp.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial

from kubeletpy.base.host.patient_threads import PatientThreads
from kubeletpy.base.tasks import background
from kubeletpy.pods.pod import Pod
from kubeletpy.volumes.claims.attached import Attached
from kubeletpy.volumes.claims.model import Mode, VolumeSpec
from kubeletpy.volumes.claims.on_disk import FailureOutcome, Published, StagedOnDisk
from kubeletpy.volumes.claims.operation import OperationFailed, PodUse
from kubeletpy.volumes.claims.plugin import VolumePlugin
from kubeletpy.volumes.files.ownership import Progress, belongs_to, give_to_group
from kubeletpy.volumes.operations.expander import Expander
from kubeletpy.volumes.operations.model import Operation, OperationKind
from kubeletpy.volumes.operations.notices import VolumeNotices
from kubeletpy.volumes.operations.outcome import OperationDone
from kubeletpy.volumes.operations.plan import claimed_size, pv_size

MAX_ENTRIES = 100_000_000
"""The most entries of a persistent volume that get the fsGroup: it delays its own volume only."""

FIRST_NOTICE_S = 30.0
NOTICE_S = 60.0
"""When an event reports that applying an fsGroup takes long. Source: behaviour-storage.md, sp2."""


class VolumeActs:
    """Carries out operations."""

    def __init__(
        self,
        expander: Expander,
        notices: VolumeNotices,
        owned: Callable[[str, float, bool], None] = lambda plugin, seconds, ok: None,
    ) -> None:
        """``owned(plugin, seconds, ok)`` is called after each walk that applied an fsGroup."""
        self._expander = expander
        self._notices = notices
        self._owned = owned
        self._patient = PatientThreads()

    async def carry_out(
        self,
        operation: Operation,
        plugin: VolumePlugin,
        pod: Pod | None,
        alone: bool,
        attached: Attached | None,
    ) -> OperationDone:
        """Do it. Raises OperationFailed."""
        if operation.kind in (OperationKind.UNPUBLISH, OperationKind.UNSTAGE):
            return await self._take_away(operation, plugin)
        spec = operation.spec
        if pod is None or spec is None:
            raise OperationFailed(
                FailureOutcome.TRANSIENT, "the pod was removed", call=operation.call
            )
        use = pod_use(pod, alone=alone, selinux_context=spec.selinux_context)
        metadata = attached.metadata if attached is not None else None
        if operation.kind is OperationKind.STAGE:
            await plugin.stage(spec, metadata, use)
            return OperationDone()
        if operation.kind is OperationKind.EXPAND:
            return OperationDone(
                size=await self._expander.expand(plugin, spec, use, at_mount=False)
            )
        remount = operation.kind is OperationKind.REPUBLISH
        published = await plugin.publish(spec, metadata, use, remount=remount)
        if spec.mode is Mode.BLOCK and not remount:
            self._notices.mapped(spec, use, published)
        if published.shared_group is not None:
            self._notices.shared(spec, use, published.shared_group)
        await self._give(plugin, spec, use, published)
        return OperationDone(published, await self._size(plugin, spec, use, remount=remount))

    async def _take_away(self, operation: Operation, plugin: VolumePlugin) -> OperationDone:
        """Unpublish or unstage; a refusal of one that is in use names who uses it."""
        left = operation.staged if operation.kind is OperationKind.UNSTAGE else operation.mount
        assert left is not None, "something is taken away"
        try:
            if isinstance(left, StagedOnDisk):
                await plugin.unstage(left)
            else:
                await plugin.unpublish(left)
        except OperationFailed as error:
            from kubeletpy.volumes.files.held_by import held_by

            error.message += await held_by(error.message, left.path)
            raise
        return OperationDone()

    async def _give(
        self, plugin: VolumePlugin, spec: VolumeSpec, use: PodUse, published: Published
    ) -> None:
        group = use.fs_group
        if group is None or not published.give_to_group or spec.read_only:
            return
        begun, done = time.perf_counter(), False
        try:
            progress, policy = Progress(), use.fs_group_change_policy
            async with self._watched(use, published.path, progress):
                await self._patient.run(partial(_give, published.path, group, policy, progress))
            done = True
        except OSError as error:
            raise OperationFailed(
                FailureOutcome.UNCERTAIN,
                f"applying fsGroup {group}: {error}",
                event_word="MountVolume.SetUp",
                call=f"giving the files of volume {spec.spec_name} to group {group}",
            ) from error
        finally:
            self._owned(plugin.metric_name(spec), time.perf_counter() - begun, done)

    @asynccontextmanager
    async def _watched(self, use: PodUse, path: str, progress: Progress) -> AsyncIterator[None]:
        """Emit events while it is going on."""

        async def report_progress() -> None:
            await asyncio.sleep(FIRST_NOTICE_S)
            self._notices.owning(use, path, None)
            while True:
                await asyncio.sleep(NOTICE_S)
                self._notices.owning(use, path, progress.files)

        async with background(report_progress(), f"ownership of {path}"):
            yield

    async def _size(
        self, plugin: VolumePlugin, spec: VolumeSpec, use: PodUse, *, remount: bool
    ) -> int:
        has, wanted = claimed_size(spec), pv_size(spec)
        if remount or spec.inline or not 0 < has < wanted:
            return has or wanted
        if spec.read_only:
            self._expander.refused(spec, use)
            return has
        return await self._expander.expand(plugin, spec, use, at_mount=True)


def pod_use(pod: Pod, *, alone: bool = True, selinux_context: str | None = None) -> PodUse:
    """The pod as plugins may see it."""
    context = pod.spec.get("securityContext") or {}
    return PodUse(
        pod.uid,
        pod.name,
        pod.namespace,
        pod.spec.get("serviceAccountName") or "default",
        context.get("fsGroup"),
        context.get("fsGroupChangePolicy"),
        selinux_context,
        pod,
        alone,
    )


def _give(path: str, group: int, policy: str | None, progress: Progress) -> None:
    """Blocks. Raises OSError."""
    if policy == "OnRootMismatch" and belongs_to(path, group, read_only=False):
        return
    give_to_group(path, group, read_only=False, max_entries=MAX_ENTRIES, progress=progress)
