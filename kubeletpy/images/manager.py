"""Make sure that a container's image is on the node, or say why it is not.

The decision is :mod:`policy`'s, the order of credentials :mod:`credentials`'; this module asks the
runtime, waits for its turn to pull and tells people what happened. Must never put a credential
into an event, an error or the log.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kubeletpy.api import types as api
from kubeletpy.clock import Clock
from kubeletpy.events.recorder import NORMAL, WARNING, EventRecorder, EventType, pod_reference
from kubeletpy.images.backoff import PullBackoff
from kubeletpy.images.credentials import Credential, Keyring, find_credentials
from kubeletpy.images.durations import format_duration
from kubeletpy.images.errors import ImageError, ImageErrorCode, pull_failure, runtime_text
from kubeletpy.images.metrics import ImageMetrics
from kubeletpy.images.node_credentials import NodeCredentials
from kubeletpy.images.policy import ImageAction, decide, needs_lookup
from kubeletpy.images.pull_queue import PullQueue, PullRateExceeded
from kubeletpy.images.pull_secrets import PullSecretLike
from kubeletpy.images.reference import (
    InvalidReference,
    default_pull_policy,
    parse_reference,
    with_default_tag,
)
from kubeletpy.pods.pod import ContainerKind, Pod, field_path
from kubeletpy.remote.errors import CRIError, scrub
from kubeletpy.remote.generated import api_pb2 as cri
from kubeletpy.remote.protocol import ImageService
from kubeletpy.trace.spans import phase

logger = logging.getLogger(__name__)

SHOW_BACK_OFF_S = 1.0
"""Seconds after a failed pull at which the container's reason becomes ImagePullBackOff."""


@dataclass(frozen=True, slots=True)
class PullSettings:
    """KubeletConfiguration's fields about pulls."""

    serialize: bool = True
    max_parallel: int | None = None
    qps: float = 5
    burst: int = 10

    @property
    def parallel(self) -> int | None:
        """How many pulls may run together; None: no limit."""
        return 1 if self.serialize else self.max_parallel


@dataclass(frozen=True, slots=True)
class LocalImage:
    """An image that is on the node."""

    ref: str
    """What CreateContainer names it by: the runtime's image id."""
    uid: int | None = None
    """Numeric user of the image, when it has one."""
    username: str = ""
    """Named user of the image, when the user is no number."""


@dataclass(frozen=True, slots=True)
class _Wanted:
    pod: Pod
    image: str
    """As the spec has it: what messages and events show."""
    spec: cri.ImageSpec
    reference: api.ObjectReference
    policy: str


class ImageManager:
    """Ensures images, with the node's pull limits and memory of failures."""

    def __init__(
        self,
        service: ImageService,
        recorder: EventRecorder,
        clock: Clock,
        metrics: ImageMetrics,
        *,
        settings: PullSettings | None = None,
        node_credentials: NodeCredentials | None = None,
    ) -> None:
        self._service = service
        self._recorder = recorder
        self._clock = clock
        self._metrics = metrics
        self._node_credentials = node_credentials or NodeCredentials(())
        self._backoff = PullBackoff()
        settings = settings or PullSettings()
        self._queue = PullQueue(parallel=settings.parallel, qps=settings.qps, burst=settings.burst)

    async def ensure_image_exists(
        self,
        pod: Pod,
        container: api.Container,
        kind: ContainerKind,
        secrets: Sequence[PullSecretLike] = (),
        sandbox_config: cri.PodSandboxConfig | None = None,
    ) -> LocalImage:
        """Have the container's image on the node; records the kubelet's events on the way.

        Cancelling it gives up a pull, whose layers so far the runtime keeps.

        Raises:
            ImageError: with the waiting reason and message of the container.
        """
        image = container.get("image") or ""
        wanted_policy = container.get("imagePullPolicy") or default_pull_policy(image)
        reference = pod_reference(pod, field_path(kind, container["name"]))
        try:
            full = with_default_tag(image)
        except InvalidReference as error:
            message = f'Failed to apply default image tag "{image}": {error}'
            self._metrics.image_requested(wanted_policy, None, None)
            raise self._reported(
                reference, "InspectFailed", ImageErrorCode.INVALID_NAME, message
            ) from error
        wanted = _Wanted(
            pod,
            image,
            cri.ImageSpec(image=full, annotations=_text_only(pod.annotations)),
            reference,
            wanted_policy,
        )
        found = await self._look_up(wanted) if needs_lookup(wanted_policy) else None
        present = found is not None if needs_lookup(wanted_policy) else None
        action = decide(wanted_policy, present=bool(present))
        self._metrics.image_requested(
            wanted_policy, present, None if action is ImageAction.REFUSE else found is None
        )
        if action is ImageAction.REFUSE:
            message = f'Container image "{image}" is not present with pull policy of Never'
            raise self._reported(reference, "ErrImageNeverPull", ImageErrorCode.NEVER_PULL, message)
        if action is ImageAction.USE and found is not None:
            self._event(
                reference,
                NORMAL,
                "Pulled",
                f'Container image "{image}" already present on machine and can be accessed by '
                "the pod",
            )
            return found
        return await self._pull(wanted, secrets, sandbox_config)

    async def _look_up(self, wanted: _Wanted) -> LocalImage | None:
        try:
            with phase("look image up", wanted.image):
                answer = await self._service.image_status(wanted.spec)
        except CRIError as error:
            message = f'Failed to inspect image "": {runtime_text(error)}'
            self._metrics.image_requested(wanted.policy, None, None)
            raise self._reported(
                wanted.reference, "InspectFailed", ImageErrorCode.INSPECT, message
            ) from error
        return local_image(answer)

    async def _pull(
        self,
        wanted: _Wanted,
        secrets: Sequence[PullSecretLike],
        sandbox_config: cri.PodSandboxConfig | None,
    ) -> LocalImage:
        key = f"{wanted.pod.uid}_{wanted.image}"
        if (blocked := self._backoff.blocked_until(key, self._clock.now())) is not None:
            until, cause = blocked
            message = f'Back-off pulling image "{wanted.image}"'
            self._event(wanted.reference, NORMAL, "BackOff", message)
            raise ImageError(ImageErrorCode.BACK_OFF, f"{message}: {cause}", until)
        self._event(wanted.reference, NORMAL, "Pulling", f'Pulling image "{wanted.image}"')
        credentials = await self._credentials(wanted.spec.image, secrets)
        loop = asyncio.get_running_loop()
        asked_at = loop.time()
        try:
            with phase("pull image", wanted.image, milestone=True):
                async with self._queue.place():
                    started_at = loop.time()
                    ref = await self._pull_with_any(wanted.spec, credentials, sandbox_config)
                    image, size = await self._inspect_pulled(wanted.spec, ref)
                    ended_at = loop.time()
        except (CRIError, PullRateExceeded) as error:
            raise self._pull_failed(wanted, key, error) from error
        waited, pulled = ended_at - asked_at, ended_at - started_at
        self._event(
            wanted.reference,
            NORMAL,
            "Pulled",
            f'Successfully pulled image "{wanted.image}" in {format_duration(pulled)} '
            f"({format_duration(waited)} including waiting). Image size: {size} bytes.",
        )
        self._metrics.image_pulled(waited, size)
        self._backoff.forget_expired(self._clock.now())
        return image

    def _pull_failed(self, wanted: _Wanted, key: str, error: Exception) -> ImageError:
        text = runtime_text(error) if isinstance(error, CRIError) else str(error)
        self._event(
            wanted.reference,
            WARNING,
            "Failed",
            f'Failed to pull image "{wanted.image}": {text}',
        )
        failure = pull_failure(wanted.image, text)
        now = self._clock.now()
        self._backoff.failed(key, now, f"{failure.code}: {failure.message}")
        failure.retry_at = now + SHOW_BACK_OFF_S
        return failure

    async def _credentials(self, image: str, secrets: Sequence[PullSecretLike]) -> list[Credential]:
        repository = parse_reference(image).repository
        pod_keyring = Keyring(secret.docker_config for secret in secrets)
        return find_credentials((pod_keyring, await self._node_credentials.keyring()), repository)

    async def _pull_with_any(
        self,
        spec: cri.ImageSpec,
        credentials: Sequence[Credential],
        sandbox_config: cri.PodSandboxConfig | None,
    ) -> str:
        """Pull with each credential in turn, or anonymously when there is none."""
        failures: list[CRIError] = []
        for credential in credentials or (None,):
            self._queue.take_token()
            auth = None if credential is None else _auth_config(credential)
            try:
                return await self._service.pull_image(spec, auth, sandbox_config)
            except CRIError as error:
                failures.append(error)
        if len(failures) == 1 and not credentials:
            raise failures[0]
        hidden = [text for credential in credentials for text in credential.secrets]
        texts = dict.fromkeys(scrub(runtime_text(error), hidden) for error in failures)
        text = next(iter(texts)) if len(texts) == 1 else f"[{', '.join(texts)}]"
        raise CRIError("PullImage", text, target=spec.image, code=failures[-1].code)

    async def _inspect_pulled(self, spec: cri.ImageSpec, ref: str) -> tuple[LocalImage, int]:
        """User and size of what was pulled; the pull stands even if this cannot be told."""
        try:
            answer = await self._service.image_status(spec)
        except CRIError as error:
            logger.warning(
                "image was pulled but not found",
                extra={"image": spec.image, "error": str(error)},
            )
            return LocalImage(ref), 0
        found = local_image(answer)
        if found is None:
            return LocalImage(ref), 0
        return LocalImage(ref, found.uid, found.username), answer.image.size

    def _event(
        self, reference: api.ObjectReference, event_type: EventType, reason: str, message: str
    ) -> None:
        self._recorder.event(reference, event_type, reason, message)

    def _reported(
        self, reference: api.ObjectReference, reason: str, code: ImageErrorCode, message: str
    ) -> ImageError:
        self._event(reference, WARNING, reason, message)
        return ImageError(code, message)


def local_image(answer: cri.ImageStatusResponse) -> LocalImage | None:
    """The image of an ImageStatus answer; None when the node has none."""
    if not answer.HasField("image") or not answer.image.id:
        return None
    image = answer.image
    uid = image.uid.value if image.HasField("uid") else None
    return LocalImage(image.id, uid, image.username)


def _auth_config(credential: Credential) -> cri.AuthConfig:
    return cri.AuthConfig(
        username=credential.username,
        password=credential.password,
        identity_token=credential.identity_token,
    )


def _text_only(annotations: Any) -> dict[str, str]:
    """Annotations that a message can hold: one wrong value must not stop a pod."""
    return {
        key: value
        for key, value in annotations.items()
        if isinstance(key, str) and isinstance(value, str)
    }
