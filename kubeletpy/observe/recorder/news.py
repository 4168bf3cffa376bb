"""Which decisions are news: the same one about the same pod and the same containers is not. Pure.

Each pod is synced once a minute, and nearly always nothing has changed; to encode what went into
these decisions would cost as much as to make them.
"""

from __future__ import annotations

from kubeletpy.observe.recorder.model import LineKind
from kubeletpy.pods.pod import Pod
from kubeletpy.pods.runtime_status import PodRuntimeStatus


class News:
    """The last decisions about each pod, with only the objects that they were made about."""

    def __init__(self) -> None:
        self._last: dict[str, dict[LineKind, tuple[Pod, PodRuntimeStatus, object]]] = {}

    def has(self, kind: LineKind, pod: Pod, status: PodRuntimeStatus, out: object) -> bool:
        """Whether a decision differs from the pod's last one of that kind, or was made about other
        objects; ``out``: what was decided, comparable."""
        of_pod = self._last.setdefault(pod.uid, {})
        before = of_pod.get(kind)
        if before is not None and before[0] is pod and before[1] is status and before[2] == out:
            return False
        of_pod[kind] = pod, status, out
        return True

    def gone(self, uid: str) -> None:
        """Nothing more is decided about a pod."""
        self._last.pop(uid, None)

    def begin(self) -> None:
        """All is news: a new file can be read without those before."""
        self._last.clear()
