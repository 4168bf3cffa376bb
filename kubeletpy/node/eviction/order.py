"""The order in which pods would be evicted if the node ran short now. Pure, for plan and explain.

The ranking is the one that evicts (:mod:`.ranking`); nothing here decides anything. Pods that
exceed a limit of their own are evicted before all others, regardless of this order.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from kubeletpy.base.structs import Struct, replace
from kubeletpy.node.eviction.pod_use import Candidate, DiskUse, Use
from kubeletpy.node.eviction.ranking import Ranked, Reclaim, counts_layers, rank, reclaims
from kubeletpy.node.eviction.report import RankingEntry, place_of
from kubeletpy.node.eviction.signals import DISK, INODES, ORDER, Layout, Signal, resource_of

FIRST = 10
"""How many pods of an order are named; the requested pod always is."""


class Next(Struct, frozen=True):
    """A pod in the order: ``number`` 1 goes first."""

    number: int
    place: RankingEntry
    asked: bool = False
    """It is the requested pod."""
    assumed: bool = False
    """It does not run yet: what it uses is what it requests, or as little as counts."""


class EvictionOrder(Struct, frozen=True):
    """The pods that would be evicted, one after the other.

    Attributes:
        signals: those for which this order holds.
        crossed: one of them is below its threshold now.
        reclaims: what the node reclaims before it evicts any pod.
        pods: the first FIRST, and the requested one.
        count: how many there are.
        stay: how many others are critical or static, and not evicted.
        asked_stays: the requested pod is among these.
        beyond: the number of the requested pod once it uses more than it requests; None: it
            runs, stays, or requests nothing, so that any use is more.
    """

    signals: tuple[Signal, ...]
    crossed: bool
    reclaims: tuple[Reclaim, ...]
    pods: tuple[Next, ...]
    count: int
    stay: int
    asked_stays: bool = False
    beyond: int | None = None


def orders(
    watched: Iterable[Signal],
    layout: Layout | None,
    pods: Sequence[Candidate],
    crossed: Collection[Signal] = (),
    asked: Candidate | None = None,
) -> tuple[EvictionOrder, ...]:
    """The orders for the signals that have thresholds; signals with the same order share one.

    Args:
        layout: None: the runtime does not report its file systems; then no pod is evicted for the
            disk.
        ``asked``: a pod to include; it replaces the one with its uid. Without a
            use it is assumed to use what it requests.
    """
    others = [pod for pod in pods if asked is None or pod.uid != asked.uid]
    found: dict[tuple[object, ...], EvictionOrder] = {}
    for signal in sorted(set(watched), key=ORDER.__getitem__):
        if layout is None and signal in DISK:
            continue
        on = layout or Layout.ONE
        made = _order(signal, on, others, signal in crossed, asked)
        same = (
            resource_of(signal),
            made.reclaims,
            *((each.number, each.place) for each in made.pods),
            made.beyond,
        )
        known = found.get(same)
        if known is not None:
            signals = (*known.signals, signal)
            made = replace(known, signals=signals, crossed=known.crossed or made.crossed)
        found[same] = made
    return tuple(sorted(found.values(), key=lambda each: not each.crossed))


def _order(
    signal: Signal,
    layout: Layout,
    others: Sequence[Candidate],
    crossed: bool,
    asked: Candidate | None,
) -> EvictionOrder:
    beyond, uid, stays, assumed = None, "", False, False
    candidates = list(others)
    if asked is not None:
        uid, stays, assumed = asked.uid, asked.critical, asked.use is None
        candidates.append(_running(asked, signal, layout) if assumed else asked)
        if assumed and not stays and _requested(asked, signal):
            more = _going(rank([*others, _running(asked, signal, layout, 1)], signal, layout))
            beyond = next(n for n, each in enumerate(more, 1) if each.pod.uid == uid)
    going = _going(rank(candidates, signal, layout))
    named = tuple(
        Next(number, place_of(each), each.pod.uid == uid, assumed and each.pod.uid == uid)
        for number, each in enumerate(going, 1)
        if number <= FIRST or each.pod.uid == uid
    )
    stay = len(candidates) - len(going) - stays
    what = reclaims(signal, layout)
    return EvictionOrder((signal,), crossed, what, named, len(going), stay, stays, beyond)


def _going(ranking: Sequence[Ranked]) -> list[Ranked]:
    return [each for each in ranking if not each.pod.critical]


def _requested(pod: Candidate, signal: Signal) -> int:
    return pod.requests.get(resource_of(signal), 0)


def _running(pod: Candidate, signal: Signal, layout: Layout, more: int = 0) -> Candidate:
    """A pod that uses what it requests and ``more``; one that requests nothing uses something."""
    amount = (_requested(pod, signal) or 1) + more
    pair = (0, amount) if signal in INODES else (amount, 0)
    on_layers = counts_layers(signal, layout)
    disk = DiskUse(layers=pair) if on_layers else DiskUse(volumes=pair)
    return replace(pod, use=Use(memory=amount, tasks=1, disk=disk))
