"""Why an image is not available to a container, as the reasons that kubectl shows. Pure.

Must never carry credentials: messages reach pod statuses and events.
"""

from __future__ import annotations

from enum import StrEnum

from kubeletpy.remote.errors import CRIError


class ImageErrorCode(StrEnum):
    """Waiting reasons of a container whose image is missing.

    Source: docs/reference/reasons.csv: container-waiting.
    """

    PULL = "ErrImagePull"
    BACK_OFF = "ImagePullBackOff"
    NEVER_PULL = "ErrImageNeverPull"
    INSPECT = "ImageInspectError"
    INVALID_NAME = "InvalidImageName"
    REGISTRY_UNAVAILABLE = "RegistryUnavailable"
    SIGNATURE = "SignatureValidationFailed"


NOT_VERIFIED = "is on the node, but no pull has verified this pod's credentials for it"
"""Part of the message of NEVER_PULL where the image is there, and the pod may not use it."""


def never_pulled(image: str, *, present: bool, policy: str = "Never") -> str:
    """The message of NEVER_PULL. ``present``: the image is on the node, but not for this pod."""
    if present:
        return (
            f'Container image "{image}" {NOT_VERIFIED}, '
            f"and the pull policy of {policy} allows no pull"
        )
    return f'Container image "{image}" is not present with pull policy of {policy}'


class ImageError(Exception):
    """An image that cannot be used now.

    ``code`` is the waiting reason, the text its message. ``retry_at`` is the Unix time in seconds
    at which a retry makes sense, None when something else must change first. ``tries_at`` is when
    it is really tried again, where the retry is earlier only to show that it backs off.
    """

    def __init__(self, code: ImageErrorCode, message: str, retry_at: float | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.retry_at = retry_at
        self.tries_at: float | None = None


def pull_failure(image: str, error_text: str) -> ImageError:
    """The error for a failed pull: runtimes mark two causes by the first word."""
    for code, cause in (
        (ImageErrorCode.REGISTRY_UNAVAILABLE, "the registry is unavailable"),
        (ImageErrorCode.SIGNATURE, "the signature validation failed"),
    ):
        if error_text.startswith(code):
            rest = error_text.removeprefix(code)
            return ImageError(code, f"image pull failed for {image} because {cause}{rest}")
    return ImageError(ImageErrorCode.PULL, error_text)


def runtime_text(error: CRIError) -> str:
    """The runtime's message, without our own prefix naming the call."""
    return error.details or str(error.code)
