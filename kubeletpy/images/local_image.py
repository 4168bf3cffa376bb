"""An image on the node, as containers are created from it. Pure."""

from __future__ import annotations

from kubeletpy.base.structs import Struct
from kubeletpy.remote.generated import api_pb2 as cri


class LocalImage(Struct, frozen=True):
    """An image on the node."""

    ref: str
    """Its name in CreateContainer: the runtime's image id."""
    uid: int | None = None
    """Numeric user of the image, when it has one."""
    username: str = ""
    """Named user of the image, when the user is not a number."""


def local_image(answer: cri.ImageStatusResponse) -> LocalImage | None:
    """The image in an ImageStatus answer; None when it is not on the node."""
    if not answer.image.id:
        return None
    image = answer.image
    uid = image.uid.value if image.HasField("uid") else None
    return LocalImage(image.id, uid, image.username)
