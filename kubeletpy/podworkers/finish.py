"""The verb *finish*: release what an ended pod held, and settle its status.

May be repeated until it succeeds; then the pod may be deleted from the API. Source:
docs/reference/behaviour.md, a9.
"""

from __future__ import annotations

from kubeletpy.cgroups.errors import CgroupError
from kubeletpy.events.recorder import WARNING, pod_reference
from kubeletpy.pods.pod import Pod
from kubeletpy.pods.runtime_status import PodRuntimeStatus
from kubeletpy.podworkers.api_status import StatusWriter
from kubeletpy.podworkers.protocol import SyncOutcome
from kubeletpy.podworkers.services import SyncServices
from kubeletpy.trace.spans import phase
from kubeletpy.volumes.protocol import VolumeError


async def finish(
    services: SyncServices, writer: StatusWriter, pod: Pod, status: PodRuntimeStatus
) -> SyncOutcome:
    """Store the last status, take the volumes down, and let the status manager finish the pod."""
    writer.store(pod, None, status, terminated=True)
    try:
        with phase("take volumes down"):
            await services.volumes.tear_down(pod.uid)
    except VolumeError as error:
        message = f"Unable to take down volumes: {error}"
        if not error.told:
            services.recorder.event(pod_reference(pod), WARNING, "FailedUnMount", message)
        return SyncOutcome(error=message, step="volumes")
    try:
        with phase("remove cgroup"):
            await services.cgroups.destroy(pod)
    except CgroupError as error:
        message = f"cgroup not removed: {error}"
        services.recorder.event(pod_reference(pod), WARNING, "FailedRemovePodContainer", message)
        return SyncOutcome(error=message, step="pod_cgroup")
    services.probes.remove_pod(pod.uid)
    services.reasons.forget(pod.uid)
    services.statuses.finish(pod)
    return SyncOutcome()
