"""Grows a volume on this node and reports it in its claim's status.

Source: docs/reference/behaviour-storage.md, so.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from kubeletpy.base.api import types as api_types
from kubeletpy.base.api.quantity import spelled
from kubeletpy.base.api.times import format_time
from kubeletpy.base.api.types import JSON
from kubeletpy.base.clock import Clock
from kubeletpy.base.structs import Struct, replace
from kubeletpy.kubeapi.errors import ApiError, Conflict
from kubeletpy.kubeapi.events.reasons import Reason
from kubeletpy.kubeapi.events.recorder import NORMAL, WARNING, EventRecorder, pod_reference
from kubeletpy.kubeapi.protocol import PERSISTENTVOLUMECLAIMS, KubeApi
from kubeletpy.volumes.claims.model import (
    ExpansionFailed,
    ExpansionProblem,
    FailureOutcome,
    OperationFailed,
    PodUse,
    VolumePlugin,
    VolumeSpec,
)
from kubeletpy.volumes.operations import plan
from kubeletpy.volumes.operations.plan import Flow, claimed_size, pv_size, requested_size

log = logging.getLogger(__name__)
_EVENT_WORD = "NodeExpandVolume.NodeExpandVolume"
CLAIM_REPORTED = 1024
"""Characters of a message in a claim's condition."""
CLAIM_READINGS = 4
"""How often a claim is read in one attempt, when others change it at the same time."""


class _Grown(Struct):
    """The size requested from the driver so far, and the resulting size; bytes."""

    requested: int = 0
    reached: int = 0


class _ClaimChanged(Exception):
    """The claim has changed since it was read."""


class Expander:
    """Expands volumes on this node, and patches the status of their claims."""

    def __init__(
        self,
        api: KubeApi | None,
        recorder: EventRecorder,
        clock: Clock,
        node_name: str,
        *,
        hold: Callable[[str], None] = lambda unique_name: None,
    ) -> None:
        """``hold`` is called with a volume that can't be expanded while it is in use."""
        self._api = api
        self._recorder = recorder
        self._clock = clock
        self._node_name = node_name
        self._hold = hold
        self._refused: set[str] = set()
        """Volumes (unique names) whose last expansion their drivers have refused (table so3)."""

    def refused(self, spec: VolumeSpec, use: PodUse) -> None:
        """Report that a volume cannot be expanded because the pod has it read-only."""
        message = f"volume {spec.spec_name} can't be expanded: the pod uses it read-only"
        self._emit_events(spec, use, WARNING, Reason.FILE_SYSTEM_RESIZE_FAILED, message)

    async def expand(
        self, plugin: VolumePlugin, spec: VolumeSpec, use: PodUse, *, at_mount: bool
    ) -> int:
        """Do this node's part of an expansion; returns the volume's new size in bytes.

        Raises:
            OperationFailed: it could not be expanded, and must be retried.
        """
        grown = _Grown()
        for _ in range(CLAIM_READINGS):
            try:
                return await self._expand(plugin, spec, use, grown, at_mount=at_mount)
            except _ClaimChanged:
                # the cached claim may be older than its controller's last write
                spec = replace(spec, claim=await self._read(spec))
        raise _not_written(spec, "it is changed by others again and again")

    async def _expand(
        self, plugin: VolumePlugin, spec: VolumeSpec, use: PodUse, grown: _Grown, *, at_mount: bool
    ) -> int:
        flow, size = plan.flow(spec)
        if flow in (Flow.NOTHING, Flow.WAIT):
            return size if flow is Flow.NOTHING else claimed_size(spec)
        if flow is Flow.RECOVERY and spec.claim is not None:
            spec = await self._patch(spec, plan.in_progress(spec.claim))
        if grown.requested < size:
            try:
                grown.reached = await plugin.expand(spec, size, use, at_mount=at_mount)
            except ExpansionFailed as error:
                return await self._not_expanded(spec, use, flow, error, size)
            grown.requested = size
            self._refused.discard(spec.unique_name)
            text = (
                f'MountVolume.NodeExpandVolume succeeded for volume "{spec.spec_name}" '
                f"{self._node_name}"
            )
            self._emit_events(spec, use, NORMAL, Reason.FILE_SYSTEM_RESIZE_SUCCESSFUL, text)
        if flow is not Flow.EXPAND_ONLY and spec.claim is not None:
            await self._patch(spec, plan.finished(spec.claim, _quantity(spec, size)))
        return max(grown.reached, size)

    async def _not_expanded(
        self, spec: VolumeSpec, use: PodUse, flow: Flow, error: ExpansionFailed, size: int
    ) -> int:
        if error.problem is ExpansionProblem.UNSUPPORTED and (
            flow is not Flow.RECOVERY or claimed_size(spec) >= size
        ):
            # its controller has nothing more to do
            if flow is Flow.LEGACY and spec.claim is not None:
                await self._patch(spec, plan.finished(spec.claim, _quantity(spec, size)))
            return size
        infeasible = error.problem is ExpansionProblem.INFEASIBLE
        if error.problem is ExpansionProblem.REFUSED:
            # the user has given this size up: the controller may try the one requested now
            infeasible = spec.unique_name in self._refused and requested_size(spec) != size
            self._refused.add(spec.unique_name)
        if infeasible:
            self._refused.discard(spec.unique_name)
        message = f"failed to expand pvc with {error.message}"[:CLAIM_REPORTED]
        now = format_time(self._clock.now())
        recovers = flow is Flow.RECOVERY
        await self._patch(
            spec, plan.failed(message, now, infeasible=infeasible and recovers), quiet=True
        )
        if error.problem is ExpansionProblem.IN_USE:
            self._hold(spec.unique_name)
            return claimed_size(spec)
        raise OperationFailed(
            FailureOutcome.UNCERTAIN, error.message, event_word=_EVENT_WORD, call=error.call
        ) from error

    async def _patch(
        self, spec: VolumeSpec, patch: dict[str, Any], *, quiet: bool = False
    ) -> VolumeSpec:
        """Patch the claim's status; returns the volume with the updated claim."""
        if self._api is None or spec.claim is None:
            return spec
        metadata = spec.claim["metadata"]
        try:
            claim = await self._api.patch(
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

    async def _read(self, spec: VolumeSpec) -> JSON:
        """The current claim; it is the same object."""
        assert self._api is not None, "a conflict comes of an API"
        assert spec.claim is not None, "a conflict is about a claim"
        metadata = spec.claim["metadata"]
        try:
            claim = await self._api.get(
                PERSISTENTVOLUMECLAIMS, metadata["name"], metadata["namespace"]
            )
        except ApiError as error:
            raise _not_written(spec, str(error)) from error
        if claim["metadata"].get("uid") != metadata.get("uid"):
            raise _not_written(spec, "another claim has its name now")
        return claim

    def _emit_events(
        self, spec: VolumeSpec, use: PodUse, kind: Any, reason: Reason, message: str
    ) -> None:
        self._recorder.event(pod_reference(use.pod), kind, reason, message)
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
        self._recorder.event(claim, kind, reason, message)


def _not_written(spec: VolumeSpec, why: str) -> OperationFailed:
    name = (spec.claim or {}).get("metadata", {}).get("name", "")
    return OperationFailed(
        FailureOutcome.UNCERTAIN,
        f"the claim's status could not be written: {why}",
        event_word=_EVENT_WORD,
        call=f'PATCH of the status of persistentvolumeclaim "{name}"',
    )


def _quantity(spec: VolumeSpec, size: int) -> str:
    """The size with the text of the PV's capacity, if it is that; else as the API writes bytes."""
    capacity = ((spec.pv or {}).get("spec") or {}).get("capacity") or {}
    text = capacity.get("storage")
    if text is not None and pv_size(spec) == size:
        return str(text)
    return spelled(size, binary=True)
