"""Use, pull or refuse: applies a pull policy to an image, and states why it is unavailable. Pure.

Also when an image whose pull failed may be pulled again. Must never carry credentials: messages
reach pod statuses and events. Source: docs/reference/behaviour.md, g1.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Protocol

from kubeletpy.base.host.errors import Cause, CausedError
from kubeletpy.base.structs import Struct
from kubeletpy.pods.backoff import ExponentialBackoff
from kubeletpy.remote.errors import CRIError

ALWAYS = "Always"
IF_NOT_PRESENT = "IfNotPresent"
NEVER = "Never"


class ImageAction(StrEnum):
    """The decision about an image."""

    USE = "use"
    PULL = "pull"
    REFUSE = "refuse"
    """The policy is Never or unknown, and the image is not available to this pod."""


def needs_lookup(pull_policy: str) -> bool:
    """Whether the decision depends on what is on the node: not for Always."""
    return pull_policy != ALWAYS


def decide(pull_policy: str, *, present: bool, accessible: bool = True) -> ImageAction:
    """Decide by policy.

    ``accessible``: whether the pod may use the present image without presenting its credentials to
    the registry. A present image that it may not use is treated as absent. An unknown policy is
    refused: it may have been meant to be stricter than the known ones.
    """
    if pull_policy == ALWAYS:
        return ImageAction.PULL
    if present and accessible and pull_policy in (IF_NOT_PRESENT, NEVER):
        return ImageAction.USE
    return ImageAction.PULL if pull_policy == IF_NOT_PRESENT else ImageAction.REFUSE


# Errors: why an image is not available to a container


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


def never_pulled(image: str, *, present: bool, policy: str = "Never") -> str:
    """Return the message of NEVER_PULL; ``present``: the image is there, but not for this pod."""
    if present:
        return (
            f'Container image "{image}" is on the node, but no pull has verified this pod\'s '
            f"credentials for it, and the pull policy of {policy} allows no pull"
        )
    return f'Container image "{image}" is not present with pull policy of {policy}'


class ImageError(CausedError):
    """An image that cannot be used now.

    ``code`` is the waiting reason, the text its message. ``retry_at`` is the Unix time in seconds
    at which a retry makes sense, None when something else must change first. ``tries_at`` is when
    it is really tried again, where the retry is earlier only to show that it backs off.
    """

    def __init__(
        self,
        code: ImageErrorCode,
        message: str,
        retry_at: float | None = None,
        cause: Cause | None = None,
    ) -> None:
        super().__init__(message, cause)
        self.code = code
        self.message = message
        self.retry_at = retry_at
        self.tries_at: float | None = None


def pull_failure(image: str, error_text: str) -> ImageError:
    """Return the error for a failed pull: runtimes mark two causes by the first word."""
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


# Backoff after a failed pull, and the position of a pull

BASE = 10.0
MAXIMUM = 300.0
FORGET_AFTER = 2 * MAXIMUM


class PullBackoff:
    """Remembers by key (pod and image) when the last pull failed, and why.

    The delay is 10 s doubling to 5 min, counted from the last failure; it is forgotten after ten
    minutes without a failure (docs/reference/behaviour.md, d). Times are arguments, in seconds of
    one monotonic clock.
    """

    def __init__(self) -> None:
        self._backoff = ExponentialBackoff(BASE, MAXIMUM, FORGET_AFTER)
        self._causes: dict[str, str] = {}

    def blocked_until(self, key: str, now: float) -> tuple[float, str] | None:
        """Return the end of the backoff and the last failure's text, or None to pull now."""
        state = self._backoff.state(key, now)
        if state is None or now >= state.raised_at + state.delay:
            return None
        return state.raised_at + state.delay, self._causes.get(key, "")

    def failed(self, key: str, now: float, cause: str) -> float:
        """Record a failure; returns when the next pull may start."""
        self._causes[key] = cause
        due = now + self._backoff.next(key, now, now)
        if len(self._causes) > len(self._backoff):
            self.forget_expired(now)
        return due

    def forget_expired(self, now: float) -> None:
        """Drop what has not failed for ten minutes; called after a successful pull."""
        self._backoff.collect(now)
        self._causes = {
            key: cause for key, cause in self._causes.items() if self._backoff.state(key, now)
        }


STUCK_S = 10.0
"""Seconds without a byte after which a layer counts as stuck."""


class PullProgress(Struct, frozen=True):
    """How far a pull is. Sizes in bytes, times in seconds."""

    done: int
    total: int
    layers: int
    finished: int
    """Layers that have arrived."""
    still_for: float = 0.0
    """Time since the last byte arrived, or since the pull no longer waits for others."""
    rate: float | None = None
    """Bytes per second; None: unknown."""
    left: float | None = None
    """Time until the image can be used; None: unknown."""
    stuck_layer: int = 0
    """Its number, from 1; 0: none is stuck."""
    stuck_for: float = 0.0
    waiting: bool = False
    """The runtime downloads layers of other pulls first."""

    @property
    def unpacking(self) -> bool:
        """Whether all has arrived, and the runtime still unpacks it."""
        return self.done == self.total


class PullPosition(Struct, frozen=True):
    """The position of a pull: in the queue, or under way.

    Attributes:
        since: event-loop seconds at which it was queued, or began.
        ahead: how many pulls come before it; None if it is under way.
        running: how many pulls are under way.
        limit: how many may be; None for no limit.
        progress: how much has arrived; None if that is not known.
        measurable: whether the runtime shows how much has arrived, as far as is known.
    """

    since: float
    ahead: int | None
    running: int
    limit: int | None
    progress: PullProgress | None = None
    measurable: bool = True


# How long pods wait for images


class PullTimes(Protocol):
    """Observes how long pods wait for images."""

    def pull_began(self, uid: str, what: str) -> None:
        """A pull for a pod begins; ``what``: container and image."""

    def image_present(self, uid: str, what: str) -> None:
        """The pod has the image, pulled now or found on the node."""


class NoPullTimes:
    """PullTimes for an agent that does not observe how long pods wait for images."""

    def pull_began(self, uid: str, what: str) -> None:
        """Ignore the pull, as nothing is observed."""

    def image_present(self, uid: str, what: str) -> None:
        """Ignore the image, as nothing is observed."""
