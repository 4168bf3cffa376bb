"""Runs volume operations, each as a task of its own, and records their results.

Whether it is time for an operation is decided by :mod:`kubeletpy.volumes.operations.plan`. A crash
of one operation does not affect the others. Source: docs/reference/behaviour-storage.md, sd, sf,
sg, so, sp.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Protocol

from kubeletpy.base.host.errors import exhausted
from kubeletpy.base.host.patient_threads import PatientThreads
from kubeletpy.base.structs import Struct, field, replace
from kubeletpy.base.tasks import background
from kubeletpy.pods.pod import Pod
from kubeletpy.volumes.claims import model as claims
from kubeletpy.volumes.claims.resolve import Attached
from kubeletpy.volumes.files.safe_path import Progress, belongs_to, give_to_group
from kubeletpy.volumes.operations import model as operations
from kubeletpy.volumes.operations.expander import Expander
from kubeletpy.volumes.operations.plan import (
    Left,
    OperationDone,
    after,
    claimed_size,
    is_published,
    pv_size,
)

log = logging.getLogger(__name__)

CarryOut = Callable[
    [operations.Operation, claims.VolumePlugin, Pod | None, bool, Attached | None],
    Awaitable[OperationDone],
]
"""Does one operation for a pod (None: it was removed). The last two arguments are whether no other
pod has the volume, and its attachment. Raises OperationFailed."""


class OperationListener(Protocol):
    """Is notified of the results of operations: events, metrics."""

    def ended(
        self,
        operation: operations.Operation,
        pod: Pod | None,
        seconds: float,
        failed: claims.OperationFailed | None,
    ) -> None:
        """Report an operation that has ended; ``failed`` None: it succeeded."""
        ...

    def leftovers_found(self, found: claims.Found) -> None:
        """Report a plugin's volumes that a previous agent has left."""
        ...

    def counted(
        self, demands: Sequence[operations.PodDemand], actual: Mapping[str, operations.Volume]
    ) -> None:
        """Count the desired and the existing volumes, after either may have changed."""
        ...


class Running(Struct):
    """An operation in progress."""

    operation: operations.Operation
    task: asyncio.Task[None]
    begun: float
    """Event-loop time."""


class VolumeState(Struct):
    """The node's desired volumes, existing volumes and operations in progress.

    Other threads read it too: nothing in it is changed in place while it is read.
    """

    plugins: Mapping[str, claims.VolumePlugin]
    """Name -> plugin."""
    demands: dict[str, operations.PodDemand] = field(default_factory=dict)
    """Pod uid -> the volumes that it needs; ``pods`` has the same keys."""
    pods: dict[str, Pod] = field(default_factory=dict)
    actual: dict[str, operations.Volume] = field(default_factory=dict)
    """Unique name -> volume."""
    running: dict[operations.Key, Running] = field(default_factory=dict)

    def has(self, uid: str) -> bool:
        """Whether a pod has or may have a volume, or one is being made for it."""
        return any(uid in volume.pods for volume in list(self.actual.values())) or bool(
            self.of_pod(uid)
        )

    def of_pod(self, uid: str) -> list[Running]:
        """A pod's operations in progress."""
        under_way = list(self.running.values())
        return [running for running in under_way if running.operation.pod_uid == uid]

    def spec(self, uid: str, volume: str) -> claims.VolumeSpec | None:
        """A volume that a pod needs, by its name in the pod."""
        demand = self.demands.get(uid)
        found = (spec for spec in demand.specs if spec.pod_volume == volume) if demand else ()
        return next(iter(found), None)

    def published(self, uid: str, spec: claims.VolumeSpec) -> claims.Published | None:
        """A pod's volume as it exists; None: it does not."""
        volume = self.actual.get(spec.unique_name)
        if volume is None or not is_published(volume, uid):
            return None
        return volume.pods[uid].published

    def all_published(self) -> list[tuple[str, claims.VolumeSpec, operations.PodMount]]:
        """All volumes that pods have for certain, each with the uid of its pod."""
        return [
            (demand.uid, spec, volume.pods[demand.uid])
            for demand in self.demands.values()
            for spec in demand.specs
            if (volume := self.actual.get(spec.unique_name)) is not None
            and is_published(volume, demand.uid)
        ]

    def paths(self, uid: str) -> set[str]:
        """Paths where a pod has or may have volumes, or is getting them."""
        there = list(self.actual.values())
        has = {volume.pods[uid].left.path for volume in there if uid in volume.pods}
        gets = {
            self.plugins[operation.plugin].published(operation.spec, uid).path
            for operation in (each.operation for each in self.of_pod(uid))
            if operation.spec is not None
        }
        return has | gets

    def hold_expansion(self, unique_name: str) -> None:
        """Record that a volume cannot be expanded while it is in use."""
        volume = self.actual.get(unique_name)
        if volume is not None:
            self.actual[unique_name] = replace(volume, expansion_held=True)

    def forget(self, uid: str) -> None:
        """Forget a pod that needs nothing any more and has nothing."""
        self.demands.pop(uid, None)
        self.pods.pop(uid, None)


class OperationRunner:
    """Starts operations as tasks, and records what each result implies for its volume.

    Use it inside a running event loop.
    """

    def __init__(
        self,
        state: VolumeState,
        backoffs: operations.Backoffs,
        carry_out: CarryOut,
        listener: OperationListener,
        *,
        attachment: Callable[[claims.VolumeSpec], Attached | claims.Waits],
        ended: Callable[[operations.Operation], None],
    ) -> None:
        """``attachment`` answers whether a volume is attached; ``ended`` is called after each."""
        self._state = state
        self._backoffs = backoffs
        self._carry_out = carry_out
        self._listener = listener
        self._attachment = attachment
        self._ended = ended

    def start(self, operation: operations.Operation) -> None:
        """Start an operation with exclusive use of its volume, or of its pod's part of it."""
        log.debug("volume operation", extra={"call": operation.call, "why": operation.reason})
        loop = asyncio.get_running_loop()
        name = f"{operation.kind} {operation.unique_name}"
        task = loop.create_task(self._run(operation), name=name)
        self._state.running[operation.key] = Running(operation, task, loop.time())

    async def _run(self, operation: operations.Operation) -> None:
        loop = asyncio.get_running_loop()
        begun = loop.time()
        state = self._state
        plugin = state.plugins[operation.plugin]
        pod = state.pods.get(operation.pod_uid)
        volume = state.actual.get(operation.unique_name)
        alone = volume is None or not (volume.pods.keys() - {operation.pod_uid})
        failed: claims.OperationFailed | None = None
        result: OperationDone | claims.FailureOutcome
        try:
            attachment = None
            if operation.spec is not None:
                found = self._attachment(operation.spec)
                attachment = None if isinstance(found, claims.Waits) else found
            result = await self._carry_out(operation, plugin, pod, alone, attachment)
        except claims.OperationFailed as error:
            failed, result = error, error.outcome
        except asyncio.CancelledError:
            raise
        except Exception as error:  # a plugin's bug must not stop all other volumes
            log.exception("volume operation broke", extra={"call": operation.call})
            why = str(exhausted(error) or f"{type(error).__name__}: {error}")
            failed = claims.OperationFailed(
                claims.FailureOutcome.UNCERTAIN, why, call=operation.call
            )
            result = failed.outcome
        finally:
            state.running.pop(operation.key, None)
        now = loop.time()
        self._record_result(operation, plugin, result, now)
        self._record_failure(operation, failed, now)
        self._listener.ended(operation, pod, now - begun, failed)
        self._ended(operation)

    def _record_result(
        self,
        operation: operations.Operation,
        plugin: claims.VolumePlugin,
        result: OperationDone | claims.FailureOutcome,
        now: float,
    ) -> None:
        left = Left(operation.mount, operation.staged)
        if operation.spec is not None and operation.kind is operations.OperationKind.STAGE:
            left = Left(staged=plugin.staged(operation.spec))
        elif operation.spec is not None:
            left = Left(plugin.published(operation.spec, operation.pod_uid))
        actual, name = self._state.actual, operation.unique_name
        actual[name] = after(actual.get(name), operation, result, left, now)

    def _record_failure(
        self, operation: operations.Operation, failed: claims.OperationFailed | None, now: float
    ) -> None:
        if failed is None:
            self._backoffs.ended(operation.kind, operation.key)
            return
        about = operation.spec or operation.mount or operation.staged
        failed.call = failed.call or operation.call
        driver = about.driver if about is not None else ""
        self._backoffs.failed((operation.kind, operation.key), failed, driver, now)


# One operation: the plugin's call, and the agent's work around it.

MAX_ENTRIES = 100_000_000
"""The most entries of a persistent volume that get the fsGroup: it delays its own volume only."""

FIRST_NOTICE_S = 30.0
NOTICE_S = 60.0
"""When an event reports that applying an fsGroup takes long. Source: behaviour-storage.md, sp2."""


class VolumeActs:
    """Carries out single operations: calls the plugin, applies the fsGroup, expands."""

    def __init__(
        self,
        expander: Expander,
        notices: operations.VolumeNotices,
        owned: Callable[[str, float, bool], None] = lambda plugin, seconds, ok: None,
    ) -> None:
        """``owned(plugin, seconds, ok)`` is called after each walk that applied an fsGroup."""
        self._expander = expander
        self._notices = notices
        self._owned = owned
        self._patient = PatientThreads()

    async def carry_out(
        self,
        operation: operations.Operation,
        plugin: claims.VolumePlugin,
        pod: Pod | None,
        alone: bool,
        attached: Attached | None,
    ) -> OperationDone:
        """Do one operation; ``alone``: no other pod has the volume. Raises OperationFailed."""
        if operation.kind in (operations.OperationKind.UNPUBLISH, operations.OperationKind.UNSTAGE):
            return await self._tear_down(operation, plugin)
        spec = operation.spec
        if pod is None or spec is None:
            raise claims.OperationFailed(
                claims.FailureOutcome.TRANSIENT, "the pod was removed", call=operation.call
            )
        use = pod_use(pod, alone=alone, selinux_context=spec.selinux_context)
        metadata = attached.metadata if attached is not None else None
        if operation.kind is operations.OperationKind.STAGE:
            await plugin.stage(spec, metadata, use)
            return OperationDone()
        if operation.kind is operations.OperationKind.EXPAND:
            return OperationDone(
                size=await self._expander.expand(plugin, spec, use, at_mount=False)
            )
        remount = operation.kind is operations.OperationKind.REPUBLISH
        published = await plugin.publish(spec, metadata, use, remount=remount)
        if spec.mode is claims.Mode.BLOCK and not remount:
            self._notices.mapped(spec, use, published)
        if published.shared_group is not None:
            self._notices.shared(spec, use, published.shared_group)
        await self._apply_group(plugin, spec, use, published)
        return OperationDone(published, await self._size(plugin, spec, use, remount=remount))

    async def _tear_down(
        self, operation: operations.Operation, plugin: claims.VolumePlugin
    ) -> OperationDone:
        """Unpublish or unstage; a refusal of one that is in use names who uses it."""
        left = (
            operation.staged
            if operation.kind is operations.OperationKind.UNSTAGE
            else operation.mount
        )
        assert left is not None, "teardown has something to remove"
        try:
            if isinstance(left, claims.StagedOnDisk):
                await plugin.unstage(left)
            else:
                await plugin.unpublish(left)
        except claims.OperationFailed as error:
            from kubeletpy.volumes.files.disk import held_by

            error.message += await held_by(error.message, left.path)
            raise
        return OperationDone()

    async def _apply_group(
        self,
        plugin: claims.VolumePlugin,
        spec: claims.VolumeSpec,
        use: claims.PodUse,
        published: claims.Published,
    ) -> None:
        group = use.fs_group
        if group is None or not published.give_to_group or spec.read_only:
            return
        begun, done = time.perf_counter(), False
        try:
            progress, policy = Progress(), use.fs_group_change_policy
            work = partial(_apply_group, published.path, group, policy, progress)
            async with self._watched(use, published.path, progress):
                await self._patient.run(work)
            done = True
        except OSError as error:
            raise claims.OperationFailed(
                claims.FailureOutcome.UNCERTAIN,
                f"applying fsGroup {group}: {error}",
                event_word="MountVolume.SetUp",
                call=f"giving the files of volume {spec.spec_name} to group {group}",
            ) from error
        finally:
            self._owned(plugin.metric_name(spec), time.perf_counter() - begun, done)

    @asynccontextmanager
    async def _watched(
        self, use: claims.PodUse, path: str, progress: Progress
    ) -> AsyncIterator[None]:
        """Emit events while the fsGroup is being applied."""

        async def report_progress() -> None:
            await asyncio.sleep(FIRST_NOTICE_S)
            self._notices.owning(use, path, None)
            while True:
                await asyncio.sleep(NOTICE_S)
                self._notices.owning(use, path, progress.files)

        async with background(report_progress(), f"ownership of {path}"):
            yield

    async def _size(
        self,
        plugin: claims.VolumePlugin,
        spec: claims.VolumeSpec,
        use: claims.PodUse,
        *,
        remount: bool,
    ) -> int:
        has, desired = claimed_size(spec), pv_size(spec)
        if remount or spec.inline or not 0 < has < desired:
            return has or desired
        if spec.read_only:
            self._expander.refused(spec, use)
            return has
        return await self._expander.expand(plugin, spec, use, at_mount=True)


def pod_use(pod: Pod, *, alone: bool = True, selinux_context: str | None = None) -> claims.PodUse:
    """The pod as plugins may see it."""
    context = pod.spec.get("securityContext") or {}
    return claims.PodUse(
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


def _apply_group(path: str, group: int, policy: str | None, progress: Progress) -> None:
    """Apply a group to a volume's files, unless the policy finds it applied. Blocks; OSError."""
    if policy == "OnRootMismatch" and belongs_to(path, group, read_only=False):
        return
    give_to_group(path, group, read_only=False, max_entries=MAX_ENTRIES, progress=progress)
