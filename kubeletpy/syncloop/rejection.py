"""The sync loop's interface to admission (docs/reference/behaviour.md, a5).

Pure. Whether a pod is refused is decided elsewhere (admission).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from kubeletpy.base.structs import Struct
from kubeletpy.pods.pod import Pod
from kubeletpy.resources.admission.checks import Rejection

Others = Callable[[], Sequence[Pod]]
"""The other active pods of the node, as of the time of the call."""


class Deferred(Struct, frozen=True):
    """The answer takes a while: await ``settle``; the pod must not be started before that."""

    settle: Callable[[Others], Awaitable[Rejection | None]]


Admit = Callable[[Pod, Sequence[Pod]], Rejection | Deferred | None]
"""Judges a pod alongside the other active pods of the node; None: it may run."""
