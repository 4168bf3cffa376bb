"""Predicts the effect of a change to a pod that this node runs. Pure.

The plans of the runtime sync before and after the change are compared: what the sync would do
anyway is not the change's doing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kubeletpy.base.structs import Struct
from kubeletpy.images.policy import ImageAction
from kubeletpy.metrics.trace.model import TraceCall
from kubeletpy.observe.foresee.durations import Durations
from kubeletpy.observe.foresee.model import Act, ForeseenOutcome, ImageUse
from kubeletpy.observe.foresee.updates import Change, ChangeMethod
from kubeletpy.pods.pod import Pod
from kubeletpy.pods.qos import qos_class
from kubeletpy.pods.sync_results import SyncIntent

_SHOWN = 10


class Fate(Struct, frozen=True):
    """The effect of a change."""

    outcome: ForeseenOutcome
    reason: str = ""
    message: str = ""


def forbidden(before: Pod, after: Pod, found: Sequence[Change]) -> Fate | None:
    """Why the API server would not take a change; None: it would."""
    never = [f"spec.{change.path}" for change in found if change.way is ChangeMethod.NEVER]
    if never:
        more = f" and {len(never) - _SHOWN} more" if len(never) > _SHOWN else ""
        return Fate(
            ForeseenOutcome.FORBIDDEN,
            "Forbidden",
            f"the API server lets nobody change {', '.join(never[:_SHOWN])}{more} of a pod that "
            "exists: it has to be deleted and created anew",
        )
    if any(change.way is ChangeMethod.RESIZE for change in found) and qos_class(after) != qos_class(
        before
    ):
        return Fate(
            ForeseenOutcome.FORBIDDEN,
            "Invalid",
            f"a resize may not change the pod's QoS class from {qos_class(before)} to "
            f"{qos_class(after)}",
        )
    return None


_HINTS = {
    ChangeMethod.RESIZE: "resources are changed with `kubectl patch --subresource resize`",
    ChangeMethod.DEBUG: "ephemeral containers are added with `kubectl debug`",
}
_DEADLINE = "once activeDeadlineSeconds are over the pod is stopped and Failed"


def hints(found: Sequence[Change]) -> tuple[str, ...]:
    """How such a change is made, and what comes of it later."""
    present = {change.way for change in found}
    texts = [text for way, text in _HINTS.items() if way in present]
    if any(change.path == "activeDeadlineSeconds" for change in found):
        texts.append(_DEADLINE)
    return tuple(texts)


def restarted(before: SyncIntent, after: SyncIntent) -> tuple[str, ...]:
    """The containers that restart because of a change."""
    return tuple(name for name in after.started if name not in before.started)


def fate(before: SyncIntent, after: SyncIntent) -> Fate:
    """The effect of a change, by the plans of the runtime sync before and after it."""
    if after.ends and not before.ends:
        return Fate(ForeseenOutcome.ENDS)
    if after.new_sandbox and not before.new_sandbox:
        return Fate(ForeseenOutcome.RECREATES)
    if restarted(before, after):
        return Fate(ForeseenOutcome.RESTARTS)
    if set(after.resized) - set(before.resized):
        return Fate(ForeseenOutcome.IN_PLACE)
    return Fate(ForeseenOutcome.UNCHANGED)


def acts(
    before: SyncIntent, after: SyncIntent, images: Iterable[ImageUse], took: Durations
) -> list[Act]:
    """The node's acts because of the change, in order, with the reasons of the plan."""
    known = set(before.decisions)
    found = [Act(each.what, each.why) for each in after.decisions if each not in known]
    found += [
        took.act(TraceCall.PULL_IMAGE, use.image, use.why, like=use.image)
        for use in images
        if use.action == ImageAction.PULL
    ]
    for name in restarted(before, after):
        found.append(took.act(TraceCall.CREATE_CONTAINER, name))
        found.append(took.act(TraceCall.START_CONTAINER, name))
    return found
