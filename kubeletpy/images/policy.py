"""Use, pull or refuse: applies a pull policy to an image that is, or is not, on the node. Pure.

Source: docs/reference/behaviour.md, g1. Must never call the runtime.
"""

from __future__ import annotations

from enum import StrEnum

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
