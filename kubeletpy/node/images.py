"""The node's images, as its status lists them."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from kubeletpy.node.build import ImageSummary
from kubeletpy.remote.errors import CRIError
from kubeletpy.remote.generated import api_pb2 as cri
from kubeletpy.remote.protocol import ImageService

LARGEST_SIZE = 2**63 - 1
"""Bytes of an image: the API has int64, the CRI uint64. An image that is larger would have each
status of the node refused."""
LONGEST_NAME = 1024
"""Characters of an image's name; a longer one is left out of the node's status, whose size the API
limits."""

log = logging.getLogger(__name__)


async def image_summaries(images: ImageService) -> Sequence[ImageSummary]:
    """All images; none when the runtime does not list them."""
    try:
        found = await images.list_images()
    except CRIError as error:
        log.debug("images not listed", extra={"why": str(error)})
        return ()
    return [_summary(image) for image in found]


def _summary(image: cri.Image) -> ImageSummary:
    """An image as the API accepts it, whatever the runtime reports."""
    names = (*image.repo_digests, *image.repo_tags)
    return ImageSummary(
        [name for name in names if len(name) <= LONGEST_NAME], min(image.size, LARGEST_SIZE)
    )
