"""Carries out single volume operations: the plugin's call, and the agent's work around it.

An fsGroup is applied after a publish. A volume that should be larger is grown, and the result is
written to its claim's status. Source: docs/reference/behaviour-storage.md, sf, so, sp.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from kubeletpy.base.api import types as api_types
from kubeletpy.base.api.quantity import spelled
from kubeletpy.base.api.times import format_time
from kubeletpy.base.api.types import JSON
from kubeletpy.base.clock import Clock
from kubeletpy.base.host.patient_threads import PatientThreads
from kubeletpy.base.structs import Component, Struct, replace
from kubeletpy.base.tasks import background
from kubeletpy.kubeapi.errors import ApiError, Conflict
from kubeletpy.kubeapi.events.reasons import Reason
from kubeletpy.kubeapi.events.recorder import NORMAL, WARNING, EventRecorder, pod_reference
from kubeletpy.kubeapi.protocol import PERSISTENTVOLUMECLAIMS, KubeApi
from kubeletpy.pods.pod import Pod
from kubeletpy.volumes.claims import model as claims
from kubeletpy.volumes.claims.plugin import VolumePlugin
from kubeletpy.volumes.claims.resolve import Attached
from kubeletpy.volumes.files.safe_path import Progress, belongs_to, give_to_group
from kubeletpy.volumes.operations import model as operations
from kubeletpy.volumes.operations import plan
from kubeletpy.volumes.operations.plan import (
    Flow,
    OperationDone,
    claimed_size,
    pv_size,
    requested_size,
)
from kubeletpy.volumes.operations.reporter import Reporter

log = logging.getLogger(__name__)

MAX_ENTRIES = 100_000_000
"""The most entries of a persistent volume that get the fsGroup: it delays its own volume only."""

FIRST_NOTICE_S = 30.0
NOTICE_S = 60.0
"""When an event reports that applying an fsGroup takes long. Source: behaviour-storage.md, sp2."""


class VolumeActs(Component):
    """Carries out single operations: calls the plugin, applies the fsGroup, expands."""

    expander: Expander
    reporter: Reporter

    def __post_init__(self) -> None:
        self._patient = PatientThreads()

    async def carry_out(
        self,
        operation: operations.Operation,
        plugin: VolumePlugin,
        pod: Pod | None,
        alone: bool,
        attached: Attached | None,
    ) -> OperationDone:
        """Do one operation; ``alone``: no other pod has the volume. Raises OperationFailed."""
        if operation.kind in (operations.OperationKind.UNPUBLISH, operations.OperationKind.UNSTAGE):
            return await self._tear_down(operation, plugin)
        spec = operation.spec
        if pod is None or spec is None:
            raise claims.not_tried("the pod was removed", call=operation.call)
        use = pod_use(pod, alone=alone, selinux_context=spec.selinux_context)
        metadata = attached.metadata if attached is not None else None
        if operation.kind is operations.OperationKind.STAGE:
            await plugin.stage(spec, metadata, use)
            return OperationDone()
        if operation.kind is operations.OperationKind.EXPAND:
            return await self.expander.expand(plugin, spec, use)
        remount = operation.kind is operations.OperationKind.REPUBLISH
        published = await plugin.publish(spec, metadata, use, remount=remount)
        if spec.mode is claims.Mode.BLOCK and not remount:
            self.reporter.mapped(spec, use, published)
        if published.shared_group is not None:
            self.reporter.shared(spec, use, published.shared_group)
        await self._apply_group(plugin, spec, use, published)
        has, desired = claimed_size(spec), pv_size(spec)
        if remount or spec.inline or not 0 < has < desired:
            return OperationDone(published, has or desired)
        if spec.read_only:
            self.expander.refused(spec, use)
            return OperationDone(published, has)
        return replace(await self.expander.expand(plugin, spec, use), published=published)

    async def _tear_down(
        self, operation: operations.Operation, plugin: VolumePlugin
    ) -> OperationDone:
        """Unpublish or unstage; a refusal of one that is in use names who uses it."""
        left = operation.staged or operation.mount
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
        plugin: VolumePlugin,
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
            raise claims.maybe_done(
                f"applying fsGroup {group}: {error}",
                event_word="MountVolume.SetUp",
                call=f"giving the files of volume {spec.spec_name} to group {group}",
            ) from error
        finally:
            self.reporter.owned(plugin.metric_name(spec), time.perf_counter() - begun, done)

    @asynccontextmanager
    async def _watched(
        self, use: claims.PodUse, path: str, progress: Progress
    ) -> AsyncIterator[None]:
        """Emit events while the fsGroup is being applied."""

        async def report_progress() -> None:
            await asyncio.sleep(FIRST_NOTICE_S)
            self.reporter.owning(use, path, None)
            while True:
                await asyncio.sleep(NOTICE_S)
                self.reporter.owning(use, path, progress.files)

        async with background(report_progress(), f"ownership of {path}"):
            yield


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


# Growing a volume on this node, and the status of its claim (table so).

_EVENT_WORD = "NodeExpandVolume.NodeExpandVolume"
CLAIM_REPORTED = 1024
"""Characters of a message in a claim's condition."""
CLAIM_READINGS = 4
"""How often a claim is read in one attempt, when others change it at the same time."""


class _Grown(Struct):
    """The size requested from the driver so far, and the resulting size; bytes."""

    requested: int = 0
    reached: int = 0
    held: bool = False
    """It can grow only while it is not in use."""


class _ClaimChanged(Exception):
    """The claim has changed since it was read."""


class Expander(Component):
    """Expands volumes on this node, and patches the status of their claims."""

    api: KubeApi | None
    recorder: EventRecorder
    clock: Clock
    node_name: str

    def __post_init__(self) -> None:
        self._refused: set[str] = set()
        """Volumes (unique names) whose last expansion their drivers have refused (table so3)."""

    def refused(self, spec: claims.VolumeSpec, use: claims.PodUse) -> None:
        """Report that a volume cannot be expanded because the pod has it read-only."""
        message = f"volume {spec.spec_name} can't be expanded: the pod uses it read-only"
        self._emit_events(spec, use, WARNING, Reason.FILE_SYSTEM_RESIZE_FAILED, message)

    async def expand(
        self, plugin: VolumePlugin, spec: claims.VolumeSpec, use: claims.PodUse
    ) -> OperationDone:
        """Do this node's part of an expansion; returns the volume's new size.

        Raises:
            OperationFailed: it could not be expanded, and must be retried.
        """
        grown = _Grown()
        for _ in range(CLAIM_READINGS):
            try:
                size = await self._expand(plugin, spec, use, grown)
                return OperationDone(size=size, held=grown.held)
            except _ClaimChanged:
                # the cached claim may be older than its controller's last write
                spec = replace(spec, claim=await self._read(spec))
        raise _not_written(spec, "it is changed by others again and again")

    async def _expand(
        self, plugin: VolumePlugin, spec: claims.VolumeSpec, use: claims.PodUse, grown: _Grown
    ) -> int:
        flow, size = plan.flow(spec)
        if flow in (Flow.NOTHING, Flow.WAIT):
            return size if flow is Flow.NOTHING else claimed_size(spec)
        if flow is Flow.RECOVERY and spec.claim is not None:
            spec = await self._patch(spec, plan.in_progress(spec.claim))
        if grown.requested < size:
            try:
                grown.reached = await plugin.expand(spec, size, use)
            except claims.ExpansionFailed as error:
                return await self._not_expanded(spec, grown, flow, error, size)
            grown.requested = size
            self._refused.discard(spec.unique_name)
            text = (
                f'MountVolume.NodeExpandVolume succeeded for volume "{spec.spec_name}" '
                f"{self.node_name}"
            )
            self._emit_events(spec, use, NORMAL, Reason.FILE_SYSTEM_RESIZE_SUCCESSFUL, text)
        if flow is not Flow.EXPAND_ONLY and spec.claim is not None:
            await self._patch(spec, plan.finished(spec.claim, _quantity(spec, size)))
        return max(grown.reached, size)

    async def _not_expanded(
        self,
        spec: claims.VolumeSpec,
        grown: _Grown,
        flow: Flow,
        error: claims.ExpansionFailed,
        size: int,
    ) -> int:
        if error.problem is claims.ExpansionProblem.UNSUPPORTED and (
            flow is not Flow.RECOVERY or claimed_size(spec) >= size
        ):
            # its controller has nothing more to do
            if flow is Flow.LEGACY and spec.claim is not None:
                await self._patch(spec, plan.finished(spec.claim, _quantity(spec, size)))
            return size
        infeasible = error.problem is claims.ExpansionProblem.INFEASIBLE
        if error.problem is claims.ExpansionProblem.REFUSED:
            # the user has given this size up: the controller may try the one requested now
            infeasible = spec.unique_name in self._refused and requested_size(spec) != size
            self._refused.add(spec.unique_name)
        if infeasible:
            self._refused.discard(spec.unique_name)
        message = f"failed to expand pvc with {error.message}"[:CLAIM_REPORTED]
        now = format_time(self.clock.now())
        recovers = flow is Flow.RECOVERY
        await self._patch(
            spec, plan.failed(message, now, infeasible=infeasible and recovers), quiet=True
        )
        if error.problem is claims.ExpansionProblem.IN_USE:
            grown.held = True
            return claimed_size(spec)
        raise claims.maybe_done(error.message, event_word=_EVENT_WORD, call=error.call) from error

    async def _patch(
        self, spec: claims.VolumeSpec, patch: dict[str, Any], *, quiet: bool = False
    ) -> claims.VolumeSpec:
        """Patch the claim's status; returns the volume with the updated claim."""
        if self.api is None or spec.claim is None:
            return spec
        metadata = spec.claim["metadata"]
        try:
            claim = await self.api.patch(
                PERSISTENTVOLUMECLAIMS,
                metadata["name"],
                patch,
                namespace=metadata["namespace"],
                subresource="status",
            )
        except Conflict as error:
            raise _ClaimChanged from error
        except ApiError as error:
            if quiet:
                log.warning(
                    "a failed expansion could not be written to its claim",
                    extra={"claim": metadata["name"], "why": str(error)},
                )
                return spec
            raise _not_written(spec, str(error)) from error
        return replace(spec, claim=claim)

    async def _read(self, spec: claims.VolumeSpec) -> JSON:
        """The current claim; it is the same object."""
        assert self.api is not None, "a conflict comes of an API"
        assert spec.claim is not None, "a conflict is about a claim"
        metadata = spec.claim["metadata"]
        try:
            claim = await self.api.get(
                PERSISTENTVOLUMECLAIMS, metadata["name"], metadata["namespace"]
            )
        except ApiError as error:
            raise _not_written(spec, str(error)) from error
        if claim["metadata"].get("uid") != metadata.get("uid"):
            raise _not_written(spec, "another claim has its name now")
        return claim

    def _emit_events(
        self, spec: claims.VolumeSpec, use: claims.PodUse, kind: Any, reason: Reason, message: str
    ) -> None:
        self.recorder.event(pod_reference(use.pod), kind, reason, message)
        if spec.claim is None:
            return
        metadata = spec.claim["metadata"]
        claim: api_types.ObjectReference = {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "namespace": metadata["namespace"],
            "name": metadata["name"],
            "uid": metadata["uid"],
        }
        self.recorder.event(claim, kind, reason, message)


def _not_written(spec: claims.VolumeSpec, why: str) -> claims.OperationFailed:
    name = (spec.claim or {}).get("metadata", {}).get("name", "")
    return claims.maybe_done(
        f"the claim's status could not be written: {why}",
        event_word=_EVENT_WORD,
        call=f'PATCH of the status of persistentvolumeclaim "{name}"',
    )


def _quantity(spec: claims.VolumeSpec, size: int) -> str:
    """The size with the text of the PV's capacity, if it is that; else as the API writes bytes."""
    capacity = ((spec.pv or {}).get("spec") or {}).get("capacity") or {}
    text = capacity.get("storage")
    if text is not None and pv_size(spec) == size:
        return str(text)
    return spelled(size, binary=True)
