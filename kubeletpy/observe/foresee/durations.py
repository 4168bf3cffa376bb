"""How long steps and calls took on this node, as far as their traces are kept. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from kubeletpy.metrics.trace.model import Name, PodTrace, TraceCall
from kubeletpy.observe.foresee.model import Act


class Durations:
    """The times of what succeeded, by step or call; of pulls also by image."""

    def __init__(self, traces: Iterable[PodTrace]) -> None:
        self._by_name: dict[tuple[Name, str], list[float]] = defaultdict(list)
        for trace in traces:
            for span in trace.start:
                if span.ended is None or span.error or span.name is TraceCall.BACK_OFF:
                    continue
                took = span.ended - span.began
                self._by_name[span.name, ""].append(took)
                if span.name is TraceCall.PULL_IMAGE:
                    self._by_name[span.name, span.detail].append(took)

    def act(self, name: Name, what: str = "", why: str = "", *, like: str = "") -> Act:
        """Something to be done, with the median of earlier times.

        ``like``: an image: its own pulls count, if there were any; else those of all images.
        """
        from statistics import median  # used with a request; 2 ms of imports

        times = self._by_name.get((name, like)) or self._by_name.get((name, "")) or []
        text = f"{name} {what}" if what else str(name)
        return Act(text, why, median(times) if times else None, len(times))


def total(acts: Iterable[Act]) -> float | None:
    """How long they take one after the other; None if there is nothing to go by."""
    known = [act.seconds for act in acts]
    seconds = [each for each in known if each is not None]
    return sum(seconds) if seconds and len(seconds) == len(known) else None
