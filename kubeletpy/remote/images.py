"""The CRI's image service over gRPC. Must never let credentials into an error or a log line."""

from __future__ import annotations

import base64
import binascii
from collections.abc import AsyncIterator, Sequence

from kubeletpy.remote import verify
from kubeletpy.remote.calls import Calls
from kubeletpy.remote.generated import api_pb2 as cri
from kubeletpy.remote.lists import MOST_STREAMED


class RemoteImageService:
    """remote.protocol.ImageService over the calls of "ImageService"."""

    def __init__(self, calls: Calls) -> None:
        self._image_calls = calls

    async def list_images(self, filter: cri.ImageFilter | None = None) -> Sequence[cri.Image]:
        """See protocol. Entries without an id are left out."""
        answer = await self._image_calls.unary(
            "ListImages",
            cri.ListImagesRequest(filter=filter),
            cri.ListImagesResponse,
        )
        return verify.believable_images(answer.images)

    async def stream_images(
        self, filter: cri.ImageFilter | None = None
    ) -> AsyncIterator[cri.Image]:
        """See protocol."""
        async for answer in self._image_calls.stream(
            "StreamImages",
            cri.StreamImagesRequest(filter=filter),
            cri.StreamImagesResponse,
            most=MOST_STREAMED,
        ):
            for image in verify.believable_images(answer.images):
                yield image

    async def image_status(
        self, image: cri.ImageSpec, verbose: bool = False
    ) -> cri.ImageStatusResponse:
        """See protocol."""
        return await self._image_calls.unary(
            "ImageStatus",
            cri.ImageStatusRequest(image=image, verbose=verbose),
            cri.ImageStatusResponse,
            target=image.image,
            check=verify.wrong_image_status,
        )

    async def pull_image(
        self,
        image: cri.ImageSpec,
        auth: cri.AuthConfig | None = None,
        sandbox_config: cri.PodSandboxConfig | None = None,
    ) -> str:
        """See protocol."""
        answer = await self._image_calls.unary(
            "PullImage",
            cri.PullImageRequest(image=image, auth=auth, sandbox_config=sandbox_config),
            cri.PullImageResponse,
            target=image.image,
            check=lambda answer: verify.unset(answer, "image_ref"),
            secrets=secrets_of(auth),
        )
        return answer.image_ref

    async def remove_image(self, image: cri.ImageSpec) -> None:
        """See protocol."""
        await self._image_calls.unary(
            "RemoveImage",
            cri.RemoveImageRequest(image=image),
            cri.RemoveImageResponse,
            target=image.image,
        )

    async def image_fs_info(self) -> cri.ImageFsInfoResponse:
        """See protocol."""
        return await self._image_calls.unary(
            "ImageFsInfo",
            cri.ImageFsInfoRequest(),
            cri.ImageFsInfoResponse,
        )


def secrets_of(auth: cri.AuthConfig | None) -> tuple[str, ...]:
    """The strings of a credential that must not be shown, also the password inside ``auth``."""
    if auth is None:
        return ()
    try:
        inside = base64.b64decode(auth.auth, validate=True).decode().partition(":")[2]
    except (binascii.Error, UnicodeDecodeError, ValueError):
        inside = ""
    return (auth.password, auth.auth, auth.identity_token, auth.registry_token, inside)
