"""Which volumes of a pod only wait for the API's first answer. Pure: time is an argument.

On a busy node the first answer about a config map may take longer than a reader waits for it
(docs/reference/constants.csv: objects, watch first sync wait). The kubelet sends an event for each
such volume that mounting has failed; a moment later the pod starts. This agent sends an event only
after EVENT_AFTER_S without an answer; ``kubeletpy explain`` shows the wait at once.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from kubeletpy.kubeapi.errors import NoAnswerYet

EVENT_AFTER_S = 10.0
"""Seconds without an answer before an event is sent."""


class Unanswered:
    """The volumes of one pod."""

    def __init__(self) -> None:
        self._since: dict[str, float] = {}

    def seen(self, volumes: Collection[str], now: float) -> None:
        """These wait now, and no others. ``now`` in seconds, of any origin."""
        self._since = {name: self._since.get(name, now) for name in volumes}

    def is_event(self, volume: str, now: float) -> bool:
        """Whether the problem of a volume is to be an event."""
        since = self._since.get(volume)
        return since is None or now - since >= EVENT_AFTER_S


def waits_only(sources: Sequence[object]) -> bool:
    """Whether a volume lacks nothing but answers.

    Args:
        sources: what is known of each; errors, and None for what does not exist.
    """
    silent = [each for each in sources if isinstance(each, NoAnswerYet)]
    wrong = [each for each in sources if each is None or isinstance(each, Exception)]
    return bool(silent) and len(silent) == len(wrong)
