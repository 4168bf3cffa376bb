"""Keeps the last facts about removed pods for an hour, within limits of number and size. Pure."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING

from kubeletpy.base.structs import Struct, replace

if TYPE_CHECKING:
    from kubeletpy.observe.explain.facts import PodFacts
    from kubeletpy.observe.explain.model import PodExplanation

KEPT_S = 3600.0
MAX_PODS = 100
MAX_SIZE = 4 << 20
"""Maximum of all kept pod objects, in characters of JSON. A typical pod has 2,000 to 10,000."""
MAX_POD = MAX_SIZE // 4
"""A larger pod is not kept: a tenant could fill the node's memory with pods that were removed."""


class _RemovedPod(Struct, frozen=True):
    facts: PodFacts
    size: int
    """Characters of the pod's object as JSON."""


class RemovedPods:
    """Namespace and name -> facts at the end; the pods that ended first go first."""

    def __init__(self, facts: Callable[[str], PodFacts]) -> None:
        """``facts`` of a pod now, by uid."""
        self._facts = facts
        self._ended: OrderedDict[tuple[str, str], _RemovedPod] = OrderedDict()

    def finished(self, uid: str) -> None:
        """A worker is done with a pod, or forgets one: remember how it was, the first time."""
        facts = self._facts(uid)
        key = facts.namespace, facts.name
        earlier = self._ended.get(key)
        if facts.pod is None or (earlier is not None and earlier.facts.uid == uid):
            return
        self._ended.pop(key, None)
        size = len(json.dumps(facts.pod.object))  # what counts values takes 40 times as long
        if size > MAX_POD:
            return
        self._ended[key] = _RemovedPod(replace(facts, trace=None), size)
        while (
            len(self._ended) > MAX_PODS
            or sum(each.size for each in self._ended.values()) > MAX_SIZE
        ):
            self._ended.popitem(last=False)

    def find(self, namespace: str, name: str, now: float) -> tuple[PodFacts, float] | None:
        """The facts of then, and how many seconds ago; None: nothing is known any more.

        ``name`` may be a uid. ``now``: Unix seconds.
        """
        by_uid = (each for each in self._ended.values() if each.facts.uid == name)
        found = self._ended.get((namespace, name)) or next(by_uid, None)
        if found is None or now - found.facts.now > KEPT_S:
            return None
        return found.facts, now - found.facts.now


def explain_removed(facts: PodFacts) -> PodExplanation:
    """Explanation of a removed pod from its last facts.

    A pod that was healthy until its end was requested has no other cause.
    """
    from kubeletpy.observe.explain.codes import CauseCode
    from kubeletpy.observe.explain.gather import explain
    from kubeletpy.observe.explain.hints import hint

    found, record = explain(facts), facts.record
    if record is None or not record.termination_requested:
        return found
    found = replace(found, final=True)
    ordinary = (CauseCode.RUNNING, CauseCode.SUCCEEDED, CauseCode.ENDING, CauseCode.TAINT)
    if found.cause not in ordinary:
        return found
    code = CauseCode.GONE if facts.deleted_for is None else CauseCode.TAINT
    since = found.first_seen or record.terminating_at
    return replace(found, cause=code, first_seen=since, hint=hint(facts, code, ""))
