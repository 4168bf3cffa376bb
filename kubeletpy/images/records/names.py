"""One canonical name for an image, so that its aliases are recognized as the same. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from kubeletpy.images.reference import DEFAULT_TAG, InvalidReference, parse_reference
from kubeletpy.remote.generated import api_pb2 as cri


def full_name(image: str) -> str:
    """``docker.io/library/busybox:latest`` for ``busybox``; by digest if there is one.

    Anything that is not an image name is returned unchanged.
    """
    try:
        reference = parse_reference(image)
    except InvalidReference:
        return image
    if reference.digest:
        return f"{reference.repository}@{reference.digest}"
    return f"{reference.repository}:{reference.tag or DEFAULT_TAG}"


def ids_by_name(images: Iterable[cri.Image]) -> dict[str, str]:
    """Full name -> the runtime's id, for all tags and digests on the node."""
    return {
        full_name(name): image.id
        for image in images
        for name in (*image.repo_tags, *image.repo_digests)
        if image.id
    }
