"""Why containers could not be started: what kubectl shows as their waiting reason. Pure.

Bounded; a start that worked removes the reason. Must never decide anything.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping

from kubeletpy.base.structs import replace
from kubeletpy.pods.runtime_status import PodSyncResult, StartError, SyncAction

CRASH_LOOP = "CrashLoopBackOff"
_STARTS = (SyncAction.START_CONTAINER, SyncAction.INIT_CONTAINER)


MAX_PODS = 1000


class ReasonCache:
    """(pod uid, container name) -> the last start error; the least recently used pods go first."""

    def __init__(self, max_pods: int = MAX_PODS) -> None:
        self._max_pods = max_pods
        self._pods: OrderedDict[str, dict[str, StartError]] = OrderedDict()

    def update(self, uid: str, result: PodSyncResult) -> None:
        """Take over what a runtime sync reports: failures replace, successes remove."""
        before = self._pods.get(uid, {})
        errors = dict(before)
        for step in result.results:
            if step.action in _STARTS and step.error is None:
                errors.pop(step.target, None)
        for name, error in result.start_errors.items():
            errors[name] = _with_cause(error, before.get(name))
        if not errors:
            self._pods.pop(uid, None)
            return
        self._pods[uid] = errors
        self._pods.move_to_end(uid)
        while len(self._pods) > self._max_pods:
            self._pods.popitem(last=False)

    def get(self, uid: str) -> Mapping[str, StartError]:
        """Container name -> start error of one pod."""
        return self._pods.get(uid, {})

    def forget(self, uid: str) -> None:
        """Drop all reasons of a pod."""
        self._pods.pop(uid, None)


def _with_cause(error: StartError, before: StartError | None) -> StartError:
    """A start held back by the failure of an earlier one keeps reporting how that one failed."""
    if error.code != CRASH_LOOP or before is None:
        return error
    cause = before.cause
    if before.code != CRASH_LOOP:
        cause = f"{before.code}: {before.message}"
    return replace(error, message=f"{error.message}: {cause}", cause=cause) if cause else error
