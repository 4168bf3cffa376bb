"""The node's images, as its status lists them."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from kubeletpy.node.build import ImageSummary
from kubeletpy.remote.errors import CRIError
from kubeletpy.remote.protocol import ImageService

log = logging.getLogger(__name__)


async def image_summaries(images: ImageService) -> Sequence[ImageSummary]:
    """All images; none when the runtime does not list them."""
    try:
        found = await images.list_images()
    except CRIError as error:
        log.debug("images not listed", extra={"why": str(error)})
        return ()
    return [ImageSummary([*image.repo_digests, *image.repo_tags], image.size) for image in found]
