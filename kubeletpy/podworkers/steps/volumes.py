"""Steps that prepare a pod's files: its directories, volumes and pull secrets."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from kubeletpy.base.host.disk_errors import complete_errors
from kubeletpy.base.host.errors import cause_of
from kubeletpy.images.credentials import MalformedPullSecret, decode_pull_secret
from kubeletpy.kubeapi.errors import ApiError, Forbidden
from kubeletpy.kubeapi.events.reasons import AdmissionReason, Reason
from kubeletpy.kubeapi.events.recorder import WARNING, EventRecorder, pod_reference
from kubeletpy.kubeapi.protocol import SECRETS, KubeApi
from kubeletpy.metrics.trace.model import Step, TraceCall
from kubeletpy.metrics.trace.spans import span
from kubeletpy.pods.pod import Pod, PullSecret
from kubeletpy.pods.runtime_status import PodRuntimeStatus
from kubeletpy.podworkers.records import SyncOutcome
from kubeletpy.podworkers.status_composer import rejected_status
from kubeletpy.podworkers.syncer import PodSync, SyncStep
from kubeletpy.resources.admission.checks import Rejection
from kubeletpy.volumes.claims.model import VolumeError

if TYPE_CHECKING:
    from kubeletpy.volumes.node.node_volumes import NodeVolumes

log = logging.getLogger(__name__)

LIMIT_EXCEEDED = AdmissionReason.VOLUME_ATTACHMENT_LIMIT_EXCEEDED


class Volumes(SyncStep):
    """Mounts a pod's volumes before any container is made, and unmounts them at its end."""

    name = Step.VOLUMES

    # ``rejected(reason)`` is called for each pod that is refused.
    volumes: NodeVolumes
    recorder: EventRecorder
    rejected: Callable[[AdmissionReason], None] = lambda reason: None

    async def run(self, sync: PodSync) -> SyncOutcome | None:
        """Mount the pod's volumes; their mounts go into the containers."""
        try:
            sync.mounts = await self.volumes.set_up(sync.pod)
        except VolumeError as error:
            if error.node_is_full:
                return self._refused(sync.pod, Rejection(LIMIT_EXCEEDED, str(error)))
            message = f"Unable to attach or mount volumes: {error}"
            return self._failed(sync.pod, error, Reason.FAILED_MOUNT, message)
        return None

    async def keep_up(self, pod: Pod) -> None:
        """Renew tokens and update files; a volume that can't be updated stays as it is."""
        try:
            await self.volumes.refresh(pod)
        except VolumeError as error:
            log.info(
                "volumes of a terminating pod not updated",
                extra={"pod": pod.key, "why": str(error)},
            )

    async def release(self, pod: Pod) -> SyncOutcome | None:
        """Unmount the volumes of a pod that has ended."""
        try:
            with span(TraceCall.TAKE_VOLUMES_DOWN):
                await self.volumes.tear_down(pod.uid)
        except VolumeError as error:
            message = f"Unable to take down volumes: {error}"
            return self._failed(pod, error, Reason.FAILED_UNMOUNT, message)
        return None

    def _refused(self, pod: Pod, rejection: Rejection) -> SyncOutcome:
        """The pod can't run here: it fails, and its owner may create another elsewhere."""
        self.recorder.event(pod_reference(pod), WARNING, rejection.reason, rejection.message)
        self.rejected(rejection.reason)
        refusal = rejected_status(pod, rejection)
        return SyncOutcome(terminal=True, status_override=lambda status: {**status, **refusal})

    def _failed(self, pod: Pod, error: VolumeError, reason: Reason, message: str) -> SyncOutcome:
        if not error.reported:
            self.recorder.event(pod_reference(pod), WARNING, reason, message)
        return SyncOutcome(error=message, cause=error.cause or cause_of(error))


class Directories(SyncStep):
    """Makes ``{root}/pods/{uid}`` with what kubelet-aware tools expect in it.

    Housekeeping removes the directories (:mod:`kubeletpy.podworkers.pod_directories`).
    """

    name = Step.DIRECTORIES

    # Make directories below ``pods_dir``, which is ``{root}/pods``.
    pods_dir: Path
    recorder: EventRecorder

    async def run(self, sync: PodSync) -> SyncOutcome | None:
        """Make the directories that are missing."""
        uid = sync.pod.uid
        if (self.pods_dir / uid / "plugins").is_dir():
            return None
        try:
            await asyncio.to_thread(_create_directories, self.pods_dir, uid)
        except OSError as error:
            message = f"error making pod data directories: {error}"
            self.recorder.event(pod_reference(sync.pod), WARNING, Reason.FAILED, message)
            return SyncOutcome(error=message, cause=cause_of(error))
        return None


def _create_directories(pods_dir: Path, uid: str) -> None:
    for path in (pods_dir, pods_dir / uid, pods_dir / uid / "volumes", pods_dir / uid / "plugins"):
        with complete_errors(path):
            path.mkdir(mode=0o750, exist_ok=True)


FORBIDDEN_RETRIES = (0.03, 0.1, 0.3)
"""Seconds: the authorizer's graph may contain a new pod some milliseconds after we do."""
MAX_SECRETS = 100
"""How many names are fetched for one pod; the rest count as missing."""
MAX_PODS = 500
"""Maximum number of pods whose missing secrets are remembered."""


class PullSecrets(SyncStep):
    """Fetches the pull secrets that a pod names when a container may have to be started.

    One by one: the Node authorizer allows no list. A secret that is missing or unreadable costs an
    event once a pull has failed, never the pod. Credentials are neither logged nor kept.
    """

    name = Step.PULL_SECRETS

    # Fetch secrets from ``api``; None: the agent is standalone, and there are none.
    api: KubeApi | None
    recorder: EventRecorder

    def __post_init__(self) -> None:
        self._missing: dict[str, tuple[str, ...]] = {}
        """Pod uid -> secrets, for people; the longest known go first."""

    async def run(self, sync: PodSync) -> SyncOutcome | None:
        """Fetch the secrets, unless all containers run already."""
        if not _all_run(sync.pod, sync.status):
            found = await fetch_pull_secrets(self.api, sync.pod)
            sync.pull_secrets = found
            self._note(sync.pod.uid, _names(sync.pod), {each.name for each in found})
            if missing := self.missing(sync.pod.uid):
                sync.pull_failed = partial(self._report, sync.pod, missing)
        return None

    def missing(self, uid: str) -> tuple[str, ...]:
        """The secrets that a pod names and that could not be fetched when they were last needed."""
        return self._missing.get(uid, ())

    def _report(self, pod: Pod, missing: Sequence[str]) -> None:
        self.recorder.event(
            pod_reference(pod),
            WARNING,
            Reason.FAILED_TO_RETRIEVE_IMAGE_PULL_SECRET,
            f"Unable to retrieve some image pull secrets ({', '.join(missing)}); "
            "attempting to pull the image may not succeed.",
        )

    def _note(self, uid: str, names: Sequence[str], found: AbstractSet[str]) -> None:
        self._missing.pop(uid, None)
        if missing := tuple(name for name in names if name not in found):
            self._missing[uid] = missing
        while len(self._missing) > MAX_PODS:
            del self._missing[next(iter(self._missing))]


async def fetch_pull_secrets(api: KubeApi | None, pod: Pod) -> Sequence[PullSecret]:
    """The pull secrets of a pod that could be fetched."""
    if api is None:
        return ()
    fetched = [await _fetch(api, pod, name) for name in _names(pod)[:MAX_SECRETS]]
    return tuple(secret for secret in fetched if secret is not None)


def _all_run(pod: Pod, status: PodRuntimeStatus) -> bool:
    running = {container.name for container in status.running_containers}
    return all(container["name"] in running for container in pod.containers)


def _names(pod: Pod) -> list[str]:
    references = pod.spec.get("imagePullSecrets") or ()
    names = [ref.get("name") for ref in references if isinstance(ref, dict)]
    return list(dict.fromkeys(name for name in names if isinstance(name, str) and name))


async def _fetch(api: KubeApi, pod: Pod, name: str) -> PullSecret | None:
    for delay in (*FORBIDDEN_RETRIES, None):
        try:
            secret = await api.get(SECRETS, name, pod.namespace)
            return PullSecret(
                namespace=pod.namespace,
                name=name,
                uid=str((secret.get("metadata") or {}).get("uid") or ""),
                docker_config=decode_pull_secret(secret),
            )
        except Forbidden as error:
            if delay is None:
                log.info("pull secret refused", extra=_about(pod, name, error))
                return None
            await asyncio.sleep(delay)
        except (ApiError, MalformedPullSecret) as error:
            log.info("pull secret not usable", extra=_about(pod, name, error))
            return None
    return None


def _about(pod: Pod, name: str, error: Exception) -> dict[str, str]:
    return {"pod": pod.key, "secret": name, "error": str(error)}
