"""Ensures that a container's image is on the node and its pod may use it, or states why not.

:mod:`policy` decides, :mod:`records` has who may use what, and :class:`ImageManager` reports the
outcome. Where a pull is needed, it waits for a slot, tries the credentials and records who may use
the image. Must never put a credential into an event, an error or the log.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from kubeletpy.base.api import types as api
from kubeletpy.base.api.times import format_duration
from kubeletpy.base.clock import Clock, steady_now
from kubeletpy.base.host.errors import Cause, CauseKind
from kubeletpy.base.structs import Component, Struct, field, replace
from kubeletpy.base.text import reported_image, scrub
from kubeletpy.config import KubeletSettings
from kubeletpy.images import policy as images_policy
from kubeletpy.images.credentials import Credential, distinct
from kubeletpy.images.pod_credentials import CredentialProviders, NodeCredentials, PodCredentials
from kubeletpy.images.policy import PullProgress
from kubeletpy.images.progress import PullMonitor, stall
from kubeletpy.images.records.ledger import (
    UNCERTAIN,
    IntentNotRecorded,
    PullInProgress,
    PullRecords,
)
from kubeletpy.images.reference import (
    InvalidReference,
    LocalImage,
    default_pull_policy,
    local_image,
    parse_reference,
    with_default_tag,
)
from kubeletpy.images.uses import ImageUses, PullQueue, PullRateExceeded, Start, Ticket
from kubeletpy.kubeapi.events.reasons import Reason
from kubeletpy.kubeapi.events.recorder import NORMAL, WARNING, EventRecorder, pod_reference
from kubeletpy.metrics.resources import ImageMetrics
from kubeletpy.metrics.trace.model import TraceCall
from kubeletpy.metrics.trace.spans import note, span
from kubeletpy.pods.pod import ContainerKind, Pod, PullSecret, field_path
from kubeletpy.remote.errors import CRIError, ResourceExhausted
from kubeletpy.remote.generated import api_pb2 as cri
from kubeletpy.remote.protocol import ImageService

logger = logging.getLogger(__name__)

SHOW_BACK_OFF_S = 1.0
"""Seconds after a failed pull at which the container's reason becomes ImagePullBackOff."""


class PullSettings(Struct, frozen=True):
    """KubeletConfiguration's fields about pulls."""

    serialize: bool = True
    max_parallel: int | None = None
    qps: float = 5
    burst: int = 10

    @classmethod
    def from_settings(cls, settings: KubeletSettings) -> PullSettings:
        """Return the fields about pulls of a node's settings."""
        return cls(
            serialize=settings.serialize_image_pulls,
            max_parallel=settings.max_parallel_image_pulls,
            qps=settings.registry_pull_qps,
            burst=settings.registry_burst,
        )

    @property
    def parallel(self) -> int | None:
        """How many pulls may run together; None: no limit."""
        return 1 if self.serialize else self.max_parallel


class DesiredImage(Struct, frozen=True):
    """An image that a container needs."""

    pod: Pod
    image: str
    """The name in the spec, for messages and events."""
    spec: cri.ImageSpec
    reference: api.ObjectReference
    policy: str
    start: Start

    @property
    def purpose(self) -> str:
        """The container and the image pulled for it."""
        return f"{self.reference.get('fieldPath', '')} {self.image}"


def _auth_config(credential: Credential) -> cri.AuthConfig:
    return cri.AuthConfig(
        username=credential.username,
        password=credential.password,
        identity_token=credential.identity_token,
    )


def _milliseconds(seconds: float) -> str:
    """A duration, truncated to whole milliseconds as in the kubelet."""
    return format_duration(max(0, int(seconds * 1000 + 1e-6)) / 1000)


class ImageManager(Component):
    """Ensures images, within the node's pull limits and with memory of failures."""

    service: ImageService
    recorder: EventRecorder
    clock: Clock
    metrics: ImageMetrics
    settings: PullSettings = field(default_factory=PullSettings)
    node_credentials: NodeCredentials = field(default_factory=NodeCredentials)
    providers: CredentialProviders | None = None
    records: PullRecords | None = None
    """None if any image on the node may be used, no matter who pulled it."""
    pull_times: images_policy.PullTimes = field(default_factory=images_policy.NoPullTimes)
    pulled: Callable[[str], None] = lambda image_id: None
    """Called with the id of each image that arrives."""
    uses: ImageUses = field(default_factory=ImageUses)
    """Keeps the images of starts from being removed."""
    monitor: PullMonitor | None = None
    """Measures pulls; None: this runtime does not report how far they are."""

    def __post_init__(self) -> None:
        self._backoff = images_policy.PullBackoff()
        self._queue = PullQueue(
            parallel=self.settings.parallel, qps=self.settings.qps, burst=self.settings.burst
        )

    def pulls(self, uid: str) -> dict[str, images_policy.PullPosition]:
        """Image -> where its pull for a pod (by uid) stands."""
        found = self._queue.positions()
        pulls = {ticket.what: position for ticket, position in found if ticket.pod == uid}
        for image, position in pulls.items():
            if position.ahead is None:
                progress = None if self.monitor is None else self.monitor.progress(image)
                measurable = self.monitor is not None and self.monitor.supported
                pulls[image] = replace(position, progress=progress, measurable=measurable)
        return pulls

    def release(self, pod: Pod, name: str) -> None:
        """A container has been created, or will not be: its images may be removed if unused."""
        self.uses.release((pod.uid, name))

    async def ensure_image_exists(
        self,
        pod: Pod,
        container: api.Container,
        kind: ContainerKind,
        secrets: Sequence[PullSecret] = (),
        sandbox_config: cri.PodSandboxConfig | None = None,
    ) -> LocalImage:
        """Get the container's image onto the node, recording the kubelet's events.

        It is not removed until :meth:`release`. Cancelling it abandons a pull; the runtime keeps
        the layers pulled so far.

        Raises:
            ImageError: with the container's waiting reason and message.
        """
        image = container.get("image") or ""
        desired_policy = container.get("imagePullPolicy") or default_pull_policy(image)
        reference = pod_reference(pod, field_path(kind, container["name"]))
        try:
            full = with_default_tag(image)
        except InvalidReference as error:
            message = f'Failed to apply default image tag "{reported_image(image)}": {error}'
            self.metrics.image_requested(desired_policy, None, None)
            note(TraceCall.CHECK_UP_IMAGE, reported_image(image), error=message)
            raise self._reported(
                reference, Reason.INSPECT_FAILED, images_policy.ImageErrorCode.INVALID_NAME, message
            ) from error
        spec = cri.ImageSpec(image=full, annotations=_text_only(pod.annotations))
        start = pod.uid, container["name"]
        desired = DesiredImage(pod, image, spec, reference, desired_policy, start)
        credentials = PodCredentials(self.node_credentials, self.providers, pod, full, secrets)
        found: LocalImage | None = None
        present: bool | None = None
        if images_policy.needs_lookup(desired_policy):
            found = await self._find_local_image(desired)
            present = found is not None
        accessible = True
        if found is not None and self.records is not None:
            accessible = await self.records.may_use(image, found.ref, credentials.get)
        action = images_policy.decide(desired_policy, present=bool(present), accessible=accessible)
        self.metrics.image_requested(
            desired_policy, present, _pull_required(action, present=bool(present))
        )
        if action is images_policy.ImageAction.REFUSE:
            message = images_policy.never_pulled(
                image, present=bool(present), policy=desired_policy
            )
            note(TraceCall.CHECK_UP_IMAGE, image, error=message)
            raise self._reported(
                reference,
                Reason.ERR_IMAGE_NEVER_PULL,
                images_policy.ImageErrorCode.NEVER_PULL,
                message,
                Cause(CauseKind.NOT_VERIFIED) if present else None,
            )
        if action is images_policy.ImageAction.USE and found is not None:
            message = (
                f'Container image "{image}" already present on machine and can be accessed by '
                "the pod"
            )
            self.recorder.event(reference, NORMAL, Reason.PULLED, message)
            self.pull_times.image_present(pod.uid, desired.purpose)
            return found
        return await self._pull(desired, credentials, sandbox_config)

    async def _find_local_image(self, desired: DesiredImage) -> LocalImage | None:
        try:
            with span(TraceCall.CHECK_UP_IMAGE, desired.image):
                while True:
                    since = self.uses.removals
                    found = local_image(await self.service.image_status(desired.spec))
                    if found is None or await self.uses.hold(desired.start, found.ref, since):
                        return found
        except CRIError as error:
            message = f'Failed to inspect image "": {images_policy.runtime_text(error)}'
            self.metrics.image_requested(desired.policy, None, None)
            raise self._reported(
                desired.reference,
                Reason.INSPECT_FAILED,
                images_policy.ImageErrorCode.INSPECT,
                message,
            ) from error

    def _reported(
        self,
        reference: api.ObjectReference,
        reason: Reason,
        code: images_policy.ImageErrorCode,
        message: str,
        cause: Cause | None = None,
    ) -> images_policy.ImageError:
        self.recorder.event(reference, WARNING, reason, message)
        return images_policy.ImageError(code, message, cause=cause)

    async def _pull(
        self,
        desired: DesiredImage,
        pod_credentials: PodCredentials,
        sandbox_config: cri.PodSandboxConfig | None,
    ) -> LocalImage:
        """Pull, unless the last failure is too recent.

        Raises:
            ImageError: with the container's waiting reason and message.
        """
        key = f"{desired.pod.uid}_{desired.image}"
        if (blocked := self._backoff.blocked_until(key, steady_now())) is not None:
            left, cause = blocked[0] - steady_now(), blocked[1]
            until = self.clock.now() + left
            message = f'Back-off pulling image "{desired.image}"'
            self.recorder.event(desired.reference, NORMAL, Reason.BACK_OFF, message)
            note(TraceCall.BACK_OFF, desired.image, lasts=left)
            raise images_policy.ImageError(
                images_policy.ImageErrorCode.BACK_OFF, f"{message}: {cause}", until
            )
        self.pull_times.pull_began(desired.pod.uid, desired.purpose)
        self.recorder.event(
            desired.reference, NORMAL, Reason.PULLING, f'Pulling image "{desired.image}"'
        )
        credentials = distinct(await pod_credentials.get())
        loop = asyncio.get_running_loop()
        queued_at = loop.time()
        try:
            with span(TraceCall.PULL_IMAGE, desired.image, milestone=True):
                ticket = Ticket(desired.pod.uid, desired.image)
                async with (
                    self._queue.slot(ticket),
                    self._recorded(desired) as record,
                    self._monitored(desired),
                ):
                    started_at = loop.time()
                    held = False
                    while not held:
                        since = self.uses.removals
                        ref, used = await self._pull_with_any(
                            desired.spec, credentials, sandbox_config
                        )
                        image, image_id, size = await self._inspect_pulled(desired.spec, ref)
                        held = await self.uses.hold(desired.start, image_id, since)
                    ended_at = loop.time()
                    self.pulled(image_id)
                    if record is not None:
                        await record.succeeded(image_id, used)
        except (CRIError, PullRateExceeded, IntentNotRecorded) as error:
            raise self._failed(desired, key, error) from error
        self.pull_times.image_present(desired.pod.uid, desired.purpose)
        waited, pulled = ended_at - queued_at, ended_at - started_at
        self.recorder.event(
            desired.reference,
            NORMAL,
            Reason.PULLED,
            f'Successfully pulled image "{desired.image}" in {_milliseconds(pulled)} '
            f"({_milliseconds(waited)} including waiting). Image size: {size} bytes.",
        )
        self.metrics.image_pulled(waited, size)
        self._backoff.forget_expired(steady_now())
        return image

    @asynccontextmanager
    async def _monitored(self, desired: DesiredImage) -> AsyncIterator[None]:
        def stalled(progress: PullProgress | None) -> None:
            message = f'Pull of image "{desired.image}" has stalled: {stall(progress)}'
            self.recorder.event(desired.reference, WARNING, Reason.PULL_STALLED, message)

        if self.monitor is None:
            yield
            return
        with self.monitor.watching(desired.image, parse_reference(desired.spec.image), stalled):
            yield

    @asynccontextmanager
    async def _recorded(self, desired: DesiredImage) -> AsyncIterator[PullInProgress | None]:
        if self.records is None:
            yield None
            return
        before = await self._image_id(desired.spec)
        async with self.records.pulling(desired.image) as record:
            try:
                yield record
            except CRIError:
                # an error may follow a completed pull: compare the image's id
                record.changed_nothing = before is not None and before == await self._image_id(
                    desired.spec
                )
                raise

    async def _image_id(self, spec: cri.ImageSpec) -> str | None:
        """The id of an image, "" when it is not on the node; None: unknown."""
        try:
            found = local_image(await self.service.image_status(spec))
        except CRIError:
            return None
        return found.ref if found is not None else ""

    def _failed(
        self, desired: DesiredImage, key: str, error: Exception
    ) -> images_policy.ImageError:
        text = images_policy.runtime_text(error) if isinstance(error, CRIError) else str(error)
        self.recorder.event(
            desired.reference,
            WARNING,
            Reason.FAILED,
            f'Failed to pull image "{desired.image}": {text}',
        )
        failure = images_policy.pull_failure(desired.image, text)
        now = self.clock.now()
        steady = steady_now()
        due = self._backoff.failed(key, steady, f"{failure.code}: {failure.message}")
        failure.tries_at = now + due - steady
        failure.retry_at = now + SHOW_BACK_OFF_S
        return failure

    async def _pull_with_any(
        self,
        spec: cri.ImageSpec,
        credentials: Sequence[Credential],
        sandbox_config: cri.PodSandboxConfig | None,
    ) -> tuple[str, Credential | None]:
        """Pull with each credential in turn, or anonymously when there is none."""
        failures: list[CRIError] = []
        for credential in credentials or (None,):
            auth = None if credential is None else _auth_config(credential)
            try:
                self._queue.take_token()
                return await self.service.pull_image(spec, auth, sandbox_config), credential
            except PullRateExceeded as error:
                if not failures:
                    raise
                failures.append(ResourceExhausted("PullImage", str(error)))
                break
            except CRIError as error:
                # with its traceback, which holds this list, neither would go by its references
                failures.append(error.with_traceback(None))
        if len(failures) == 1 and not credentials:
            raise failures.pop()
        hidden = [text for credential in credentials for text in credential.secrets]
        texts = dict.fromkeys(
            scrub(images_policy.runtime_text(error), hidden) for error in failures
        )
        text = next(iter(texts)) if len(texts) == 1 else f"[{', '.join(texts)}]"
        # one pull that may go on in the runtime is not ended by another's refusal
        code = next((f.code for f in failures if f.code in UNCERTAIN), failures[-1].code)
        raise CRIError("PullImage", text, target=spec.image, code=code)

    async def _inspect_pulled(self, spec: cri.ImageSpec, ref: str) -> tuple[LocalImage, str, int]:
        """The id and size of what was pulled; the pull counts even if these are unknown."""
        try:
            answer = await self.service.image_status(spec)
        except CRIError as error:
            logger.warning(
                "image was pulled but not found", extra={"image": spec.image, "error": str(error)}
            )
            return LocalImage(ref), ref, 0
        found = local_image(answer)
        if found is None:
            return LocalImage(ref), ref, 0
        return LocalImage(ref, found.uid, found.username), found.ref, answer.image.size


def _pull_required(action: images_policy.ImageAction, *, present: bool) -> bool | None:
    """Label pull_required of the request; None is "unknown"."""
    if action is images_policy.ImageAction.REFUSE and not present:
        return None
    return action is not images_policy.ImageAction.USE


def _text_only(annotations: Any) -> dict[str, str]:
    """Annotations that fit into a message: one bad value must not stop a pod."""
    return {
        key: value
        for key, value in annotations.items()
        if isinstance(key, str) and isinstance(value, str)
    }
