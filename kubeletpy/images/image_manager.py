"""Ensures that a container's image is on the node and its pod may use it, or states why not.

:mod:`policy` decides, :mod:`records` has who may use what, :mod:`puller` pulls; this module calls
the runtime and reports what it found. Must never put a credential into an event, an error or the
log.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from kubeletpy.base.api import types as api
from kubeletpy.base.clock import Clock
from kubeletpy.base.text import shown_image
from kubeletpy.images.errors import ImageError, ImageErrorCode, never_pulled, runtime_text
from kubeletpy.images.local_image import LocalImage, local_image
from kubeletpy.images.metrics import ImageMetrics, NoPullTimes, PullTimes
from kubeletpy.images.node_credentials import NodeCredentials
from kubeletpy.images.pod_credentials import CredentialProviders, CredentialSources, PodCredentials
from kubeletpy.images.policy import ImageAction, decide, needs_lookup
from kubeletpy.images.pull_secrets import PullSecretLike
from kubeletpy.images.puller import ImagePuller, PullSettings, WantedImage
from kubeletpy.images.records.ledger import PullRecords
from kubeletpy.images.reference import InvalidReference, default_pull_policy, with_default_tag
from kubeletpy.images.uses import ImageUses
from kubeletpy.kubeapi.events.reasons import Reason
from kubeletpy.kubeapi.events.recorder import NORMAL, WARNING, EventRecorder, pod_reference
from kubeletpy.metrics.trace.names import TraceCall
from kubeletpy.metrics.trace.spans import note, span
from kubeletpy.pods.pod import ContainerKind, Pod, field_path
from kubeletpy.remote.errors import CRIError
from kubeletpy.remote.generated import api_pb2 as cri
from kubeletpy.remote.protocol import ImageService

if TYPE_CHECKING:
    from kubeletpy.images.pull_position import PullPosition

__all__ = ["ImageManager", "LocalImage", "PullSettings"]


class ImageManager:
    """Ensures images, within the node's pull limits and with memory of failures."""

    def __init__(
        self,
        service: ImageService,
        recorder: EventRecorder,
        clock: Clock,
        metrics: ImageMetrics,
        *,
        settings: PullSettings | None = None,
        node_credentials: NodeCredentials | None = None,
        providers: CredentialProviders | None = None,
        records: PullRecords | None = None,
        pull_times: PullTimes | None = None,
        pulled: Callable[[str], None] = lambda image_id: None,
        uses: ImageUses | None = None,
    ) -> None:
        """``records`` None: any image on the node may be used, no matter who pulled it. ``pulled``
        is called with the id of each image that arrives. ``uses`` keeps the images of starts from
        being removed; None: nothing removes images."""
        self._service = service
        self._recorder = recorder
        self._metrics = metrics
        self._records = records
        self._pull_times = pull_times or NoPullTimes()
        self._uses = uses or ImageUses()
        self._sources = CredentialSources(node_credentials or NodeCredentials(()), providers)
        self._puller = ImagePuller(
            service,
            recorder,
            clock,
            metrics,
            settings=settings or PullSettings(),
            records=records,
            pull_times=self._pull_times,
            pulled=pulled,
            uses=self._uses,
        )

    def pulls(self, uid: str) -> dict[str, PullPosition]:
        """Image -> where its pull for a pod (by uid) stands."""
        return self._puller.positions(uid)

    def release(self, pod: Pod, name: str) -> None:
        """A container has been created, or will not be: its images may be removed if unused."""
        self._uses.release((pod.uid, name))

    async def ensure_image_exists(
        self,
        pod: Pod,
        container: api.Container,
        kind: ContainerKind,
        secrets: Sequence[PullSecretLike] = (),
        sandbox_config: cri.PodSandboxConfig | None = None,
    ) -> LocalImage:
        """Get the container's image onto the node, recording the kubelet's events.

        It is not removed until :meth:`release`. Cancelling it abandons a pull; the runtime keeps
        the layers pulled so far.

        Raises:
            ImageError: with the container's waiting reason and message.
        """
        image = container.get("image") or ""
        wanted_policy = container.get("imagePullPolicy") or default_pull_policy(image)
        reference = pod_reference(pod, field_path(kind, container["name"]))
        try:
            full = with_default_tag(image)
        except InvalidReference as error:
            message = f'Failed to apply default image tag "{shown_image(image)}": {error}'
            self._metrics.image_requested(wanted_policy, None, None)
            note(TraceCall.LOOK_UP_IMAGE, shown_image(image), error=message)
            raise self._reported(
                reference, Reason.INSPECT_FAILED, ImageErrorCode.INVALID_NAME, message
            ) from error
        spec = cri.ImageSpec(image=full, annotations=_text_only(pod.annotations))
        start = pod.uid, container["name"]
        wanted = WantedImage(pod, image, spec, reference, wanted_policy, start)
        credentials = PodCredentials(self._sources, pod, full, secrets)
        found: LocalImage | None = None
        present: bool | None = None
        if needs_lookup(wanted_policy):
            found = await self._find_local_image(wanted)
            present = found is not None
        accessible = True
        if found is not None and self._records is not None:
            accessible = await self._records.may_use(image, found.ref, credentials.get)
        action = decide(wanted_policy, present=bool(present), accessible=accessible)
        self._metrics.image_requested(
            wanted_policy, present, _pull_required(action, present=bool(present))
        )
        if action is ImageAction.REFUSE:
            message = never_pulled(image, present=bool(present), policy=wanted_policy)
            note(TraceCall.LOOK_UP_IMAGE, image, error=message)
            raise self._reported(
                reference, Reason.ERR_IMAGE_NEVER_PULL, ImageErrorCode.NEVER_PULL, message
            )
        if action is ImageAction.USE and found is not None:
            message = (
                f'Container image "{image}" already present on machine and can be accessed by '
                "the pod"
            )
            self._recorder.event(reference, NORMAL, Reason.PULLED, message)
            self._pull_times.image_there(pod.uid, wanted.purpose)
            return found
        return await self._puller.pull(wanted, credentials, sandbox_config)

    async def _find_local_image(self, wanted: WantedImage) -> LocalImage | None:
        try:
            with span(TraceCall.LOOK_UP_IMAGE, wanted.image):
                while True:
                    since = self._uses.removals
                    found = local_image(await self._service.image_status(wanted.spec))
                    if found is None or await self._uses.hold(wanted.start, found.ref, since):
                        return found
        except CRIError as error:
            message = f'Failed to inspect image "": {runtime_text(error)}'
            self._metrics.image_requested(wanted.policy, None, None)
            raise self._reported(
                wanted.reference, Reason.INSPECT_FAILED, ImageErrorCode.INSPECT, message
            ) from error

    def _reported(
        self, reference: api.ObjectReference, reason: Reason, code: ImageErrorCode, message: str
    ) -> ImageError:
        self._recorder.event(reference, WARNING, reason, message)
        return ImageError(code, message)


def _pull_required(action: ImageAction, *, present: bool) -> bool | None:
    """Label pull_required of the request; None is "unknown"."""
    if action is ImageAction.REFUSE and not present:
        return None
    return action is not ImageAction.USE


def _text_only(annotations: Any) -> dict[str, str]:
    """Annotations that fit into a message: one bad value must not stop a pod."""
    return {
        key: value
        for key, value in annotations.items()
        if isinstance(key, str) and isinstance(value, str)
    }
