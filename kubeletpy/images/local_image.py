"""An image that is on the node, as containers are made of it. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from kubeletpy.remote.generated import api_pb2 as cri


@dataclass(frozen=True, slots=True)
class LocalImage:
    """An image that is on the node."""

    ref: str
    """What CreateContainer names it by: the runtime's image id."""
    uid: int | None = None
    """Numeric user of the image, when it has one."""
    username: str = ""
    """Named user of the image, when the user is no number."""


def local_image(answer: cri.ImageStatusResponse) -> LocalImage | None:
    """The image of an ImageStatus answer; None when the node has none."""
    if not answer.HasField("image") or not answer.image.id:
        return None
    image = answer.image
    uid = image.uid.value if image.HasField("uid") else None
    return LocalImage(image.id, uid, image.username)
