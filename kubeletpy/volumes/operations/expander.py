"""Grows a volume on this node and tells its claim.

Source: docs/reference/behaviour-storage.md, so.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from kubeletpy.api import types as api_types
from kubeletpy.api.times import format_time
from kubeletpy.clock import Clock
from kubeletpy.events.reasons import Reason
from kubeletpy.events.recorder import NORMAL, WARNING, EventRecorder, pod_reference
from kubeletpy.kubeapi.errors import ApiError
from kubeletpy.kubeapi.protocol import PERSISTENTVOLUMECLAIMS, KubeApi
from kubeletpy.volumes.claims.model import VolumeSpec
from kubeletpy.volumes.on_disk import Outcome
from kubeletpy.volumes.operations import expansion
from kubeletpy.volumes.operations.expansion import Flow
from kubeletpy.volumes.operations.plan import claimed_size, wanted_size
from kubeletpy.volumes.plugin import (
    ExpansionFailed,
    ExpansionProblem,
    OperationFailed,
    PodUse,
    VolumePlugin,
)

log = logging.getLogger(__name__)
_STEP = "MountVolume.Setup failed while expanding volume"
CLAIM_SHOWN = 1024
"""Characters of a message in a claim's condition."""


class Expander:
    """Node expansion."""

    def __init__(
        self,
        api: KubeApi | None,
        recorder: EventRecorder,
        clock: Clock,
        node_name: str,
        hold: Callable[[str], None] = lambda unique_name: None,
    ) -> None:
        """``hold(unique name)``: the volume can't be expanded while it is in use."""
        self._api = api
        self._recorder = recorder
        self._clock = clock
        self._node_name = node_name
        self.hold = hold

    def refused(self, spec: VolumeSpec, use: PodUse) -> None:
        """The pod has the volume read-only."""
        message = f"volume {spec.spec_name} can't be expanded: the pod uses it read-only"
        self._tell(spec, use, WARNING, Reason.FILE_SYSTEM_RESIZE_FAILED, message)

    async def expand(
        self, plugin: VolumePlugin, spec: VolumeSpec, use: PodUse, *, at_mount: bool
    ) -> int:
        """Do what is this node's part; the size in bytes that the volume has then.

        Raises:
            OperationFailed: it could not be expanded, and has to be tried again.
        """
        flow, size = expansion.flow(spec)
        if flow in (Flow.NOTHING, Flow.WAIT):
            return size if flow is Flow.NOTHING else claimed_size(spec)
        if flow is Flow.RECOVERY and spec.claim is not None:
            await self._patch(spec, expansion.in_progress(spec.claim))
        try:
            reached = await plugin.expand(spec, size, use, at_mount=at_mount)
        except ExpansionFailed as error:
            return await self._not_expanded(spec, use, flow, error, size)
        told = (
            f'MountVolume.NodeExpandVolume succeeded for volume "{spec.spec_name}" '
            f"{self._node_name}"
        )
        self._tell(spec, use, NORMAL, Reason.FILE_SYSTEM_RESIZE_SUCCESSFUL, told)
        if flow is not Flow.EXPAND_ONLY and spec.claim is not None:
            await self._patch(spec, expansion.finished(spec.claim, _quantity(spec, size)))
        return max(reached, size)

    async def _not_expanded(
        self, spec: VolumeSpec, use: PodUse, flow: Flow, error: ExpansionFailed, size: int
    ) -> int:
        if error.problem is ExpansionProblem.UNSUPPORTED and (
            flow is not Flow.RECOVERY or claimed_size(spec) >= size
        ):
            # its controller has done all that there is to do
            if flow is Flow.LEGACY and spec.claim is not None:
                await self._patch(spec, expansion.finished(spec.claim, _quantity(spec, size)))
            return size
        infeasible = error.problem is ExpansionProblem.INFEASIBLE
        message = f"failed to expand pvc with {error.message}"[:CLAIM_SHOWN]
        now = format_time(self._clock.now())
        recovers = flow is Flow.RECOVERY
        await self._patch(
            spec, expansion.failed(message, now, infeasible=infeasible and recovers), quiet=True
        )
        if error.problem is ExpansionProblem.IN_USE:
            self.hold(spec.unique_name)
            return claimed_size(spec)
        raise OperationFailed(
            Outcome.UNCERTAIN, error.message, step=_STEP, call=error.call
        ) from error

    async def _patch(self, spec: VolumeSpec, patch: dict[str, Any], *, quiet: bool = False) -> None:
        if self._api is None or spec.claim is None:
            return
        metadata = spec.claim["metadata"]
        try:
            await self._api.patch(
                PERSISTENTVOLUMECLAIMS,
                metadata["name"],
                patch,
                namespace=metadata["namespace"],
                subresource="status",
            )
        except ApiError as error:
            if quiet:
                log.warning(
                    "a claim could not be told of a failed expansion",
                    extra={"claim": metadata["name"], "why": str(error)},
                )
                return
            raise OperationFailed(
                Outcome.UNCERTAIN,
                f"the claim's status could not be written: {error}",
                step=_STEP,
                call=f'PATCH of the status of persistentvolumeclaim "{metadata["name"]}"',
            ) from error

    def _tell(self, spec: VolumeSpec, use: PodUse, kind: Any, reason: Reason, message: str) -> None:
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


def _quantity(spec: VolumeSpec, size: int) -> str:
    """The size as the PV spells it, where it is that."""
    capacity = ((spec.pv or {}).get("spec") or {}).get("capacity") or {}
    spelled = capacity.get("storage")
    return str(spelled) if spelled is not None and wanted_size(spec) == size else str(size)
