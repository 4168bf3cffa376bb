"""Mounts everything before any container is made, and takes it down when the pod has ended."""

from __future__ import annotations

import logging
from collections.abc import Callable

from kubeletpy.base.host.errors import machine_fault
from kubeletpy.kubeapi.events.reasons import AdmissionReason, Reason
from kubeletpy.kubeapi.events.recorder import WARNING, EventRecorder, pod_reference
from kubeletpy.metrics.trace.model import Step, TraceCall
from kubeletpy.metrics.trace.spans import span
from kubeletpy.pods.pod import Pod
from kubeletpy.podworkers.protocol import SyncOutcome
from kubeletpy.podworkers.status_composer import rejected_status
from kubeletpy.podworkers.sync_step import PodSync, SyncStep
from kubeletpy.resources.admission.verdict import Rejection
from kubeletpy.volumes.protocol import VolumeError, VolumeManager

log = logging.getLogger(__name__)

LIMIT_EXCEEDED = AdmissionReason.VOLUME_ATTACHMENT_LIMIT_EXCEEDED


class Volumes(SyncStep):
    """Calls the volume manager."""

    name = Step.VOLUMES

    def __init__(
        self,
        volumes: VolumeManager,
        recorder: EventRecorder,
        rejected: Callable[[AdmissionReason], None] = lambda reason: None,
    ) -> None:
        """``rejected(reason)`` is called for each pod that is refused."""
        self._volumes = volumes
        self._recorder = recorder
        self._rejected = rejected

    async def run(self, sync: PodSync) -> SyncOutcome | None:
        """Set them up."""
        try:
            sync.mounts = await self._volumes.set_up(sync.pod)
        except VolumeError as error:
            if error.node_is_full:
                return self._refused(sync.pod, Rejection(LIMIT_EXCEEDED, str(error)))
            message = f"Unable to attach or mount volumes: {error}"
            return self._failed(sync.pod, error, Reason.FAILED_MOUNT, message)
        return None

    async def keep_up(self, pod: Pod) -> None:
        """Renew tokens and update files; a volume that can't be updated stays as it is."""
        try:
            await self._volumes.refresh(pod)
        except VolumeError as error:
            log.info(
                "volumes of a terminating pod not updated",
                extra={"pod": pod.key, "why": str(error)},
            )

    async def release(self, pod: Pod) -> SyncOutcome | None:
        """Take them down."""
        try:
            with span(TraceCall.TAKE_VOLUMES_DOWN):
                await self._volumes.tear_down(pod.uid)
        except VolumeError as error:
            message = f"Unable to take down volumes: {error}"
            return self._failed(pod, error, Reason.FAILED_UNMOUNT, message)
        return None

    def _refused(self, pod: Pod, rejection: Rejection) -> SyncOutcome:
        """The pod can't run here: it fails, and its owner may create another elsewhere."""
        self._recorder.event(pod_reference(pod), WARNING, rejection.reason, rejection.message)
        self._rejected(rejection.reason)
        refusal = rejected_status(pod, rejection)
        return SyncOutcome(terminal=True, status_override=lambda status: {**status, **refusal})

    def _failed(self, pod: Pod, error: VolumeError, reason: Reason, message: str) -> SyncOutcome:
        if not error.reported:
            self._recorder.event(pod_reference(pod), WARNING, reason, message)
        return SyncOutcome(error=message, fault=error.fault or machine_fault(error))
