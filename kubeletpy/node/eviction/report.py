"""How evictions are reported: to explain and plan, and in events, annotations and statuses. Pure.

For explain, causes and remedies are members with their numbers; they become text where they are
shown. Times are Unix seconds; numbers are bytes, inodes or tasks, like the signal's.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import StrEnum

from kubeletpy.base.api import types as api
from kubeletpy.base.api.quantity import Quantity, spelled
from kubeletpy.base.structs import Struct, field, replace
from kubeletpy.node.eviction import decide
from kubeletpy.node.eviction import ranking as eviction_ranking
from kubeletpy.pods.pod import with_disruption

REPORTED = 5
"""How many pods of a ranking are kept."""


class EvictionRecord(Struct, frozen=True):
    """Something that was done about a crossing.

    Attributes:
        ranking: the first pods in eviction order; empty where no pod had to be evicted.
        pod: the one that was evicted.
        reclaimed: what the node cleared away itself; ``helped``: that was enough.
    """

    at: float
    crossing: decide.Crossing
    ranking: tuple[eviction_ranking.Ranked, ...] = ()
    pod: eviction_ranking.Ranked | None = None
    reclaimed: tuple[eviction_ranking.Reclaim, ...] = ()
    helped: bool = False


class EvictionOutcome(StrEnum):
    """The result of acting on a crossing."""

    EVICTED = "evicted"
    RECLAIMED = "reclaimed"
    RECLAIM_NOT_ENOUGH = "reclaim not enough"


class Remedy(StrEnum):
    """A remedy for the node's pressure."""

    FREE_MEMORY = "free memory"
    FREE_SPACE = "free space"
    REMOVE_FILES = "remove files"
    END_PROCESSES = "end processes"
    WAIT = "wait"
    """There is enough; the condition is held until its transition period is over."""


_REMEDIES = {
    decide.Condition.MEMORY: Remedy.FREE_MEMORY,
    decide.Condition.PID: Remedy.END_PROCESSES,
}


class RankingEntry(Struct, frozen=True):
    """A pod's place in a ranking, and what put it there."""

    namespace: str
    name: str
    uid: str
    priority: int
    critical: bool
    """It stays, whatever its place."""
    used: int | None
    """None: not known, which ranks first."""
    request: int
    over: bool
    """It uses more than it requested."""


class EvictionReport(Struct, frozen=True):
    """The response to a crossed threshold, with the numbers of that moment."""

    at: float
    outcome: EvictionOutcome
    signal: decide.Signal
    threshold: int
    available: int
    capacity: int
    grace: float
    """Seconds; 0 for a hard threshold."""
    since: float
    """When the threshold was crossed."""
    reclaimed: tuple[eviction_ranking.Reclaim, ...]
    pod: RankingEntry | None
    ranking: tuple[RankingEntry, ...]
    """The first of the ranking, including the pod that was evicted."""
    next: RankingEntry | None
    """The pod that would have been evicted next, as of then."""


class HeldCondition(Struct, frozen=True):
    """A condition that the node reports."""

    condition: decide.Condition
    since: float
    ends_at: float | None
    """None: the node is still under that pressure."""


class Level(Struct, frozen=True):
    """A threshold, and what is left of its signal."""

    signal: decide.Signal
    field: str
    threshold: int
    grace: float
    available: int
    capacity: int
    crossed_since: float | None


class Help(Struct, frozen=True):
    """A remedy, and how much of it."""

    remedy: Remedy
    signal: decide.Signal | None
    amount: int
    """Bytes, files or processes; 0 where all that helps is to wait."""


class PressureReport(Struct, frozen=True):
    """Everything about the pressure on a node."""

    at: float
    conditions: tuple[HeldCondition, ...]
    levels: tuple[Level, ...]
    doubts: tuple[tuple[decide.Signal, decide.Doubt], ...]
    """Implausible numbers that are ignored, and why."""
    evictions: tuple[EvictionReport, ...]
    """Oldest first."""
    helps: tuple[Help, ...]


def report(
    rules: decide.Rules,
    state: decide.EvictionState,
    doubts: Mapping[decide.Signal, decide.Doubt],
    done: Iterable[EvictionRecord],
    *,
    now: float,
    wall: float,
) -> PressureReport:
    """Report the state of a keeper.

    Args:
        now: event-loop seconds; ``wall``: the same moment in Unix seconds.
    """
    offset = wall - now
    seen = {decide.condition_of(threshold.signal) for threshold in state.first_seen}
    held = tuple(
        HeldCondition(
            each,
            state.since[each] + offset,
            None if each in seen else state.pressed[each] + rules.transition + offset,
        )
        for each in state.conditions
    )
    levels = tuple(
        _level(threshold, state.last[threshold.signal], state, offset)
        for threshold in rules.thresholds
        if threshold.signal in state.last
    )
    return PressureReport(
        at=wall,
        conditions=held,
        levels=levels,
        doubts=tuple(doubts.items()),
        evictions=tuple(_eviction_report(each, offset) for each in done),
        helps=tuple(_helps(rules, state, held)),
    )


def _level(
    threshold: decide.Threshold,
    seen: decide.SignalObservation,
    state: decide.EvictionState,
    offset: float,
) -> Level:
    since = state.first_seen.get(threshold)
    return Level(
        threshold.signal,
        f"{threshold.at}.{threshold.signal}",
        threshold.amount.in_units(seen.capacity),
        threshold.grace,
        seen.available,
        seen.capacity,
        None if since is None else since + offset,
    )


def _helps(
    rules: decide.Rules, state: decide.EvictionState, held: tuple[HeldCondition, ...]
) -> Iterable[Help]:
    missing: dict[decide.Signal, int] = {}
    for threshold in rules.thresholds:
        seen = state.last.get(threshold.signal)
        if threshold in state.first_seen and seen is not None:
            signal = threshold.signal
            missing[signal] = max(threshold.missing(seen), missing.get(signal, 0))
    for signal, amount in missing.items():
        remedy = _REMEDIES.get(decide.condition_of(signal), Remedy.FREE_SPACE)
        if signal.endswith("inodesFree"):
            remedy = Remedy.REMOVE_FILES
        yield Help(remedy, signal, amount)
    if not missing and held:
        yield Help(Remedy.WAIT, None, 0)


def _eviction_report(done: EvictionRecord, offset: float) -> EvictionReport:
    crossing = done.crossing
    outcome = EvictionOutcome.EVICTED
    if done.pod is None:
        outcome = EvictionOutcome.RECLAIMED if done.helped else EvictionOutcome.RECLAIM_NOT_ENOUGH
    rest = [each for each in done.ranking if each is not done.pod]
    after = eviction_ranking.first_to_go(rest) if done.pod is not None else None
    return EvictionReport(
        at=done.at,
        outcome=outcome,
        signal=crossing.threshold.signal,
        threshold=crossing.quantity,
        available=crossing.seen.available,
        capacity=crossing.seen.capacity,
        grace=crossing.threshold.grace,
        since=crossing.since + offset,
        reclaimed=done.reclaimed,
        pod=None if done.pod is None else place_of(done.pod),
        ranking=tuple(place_of(each) for each in done.ranking),
        next=None if after is None else place_of(after),
    )


def place_of(ranked: eviction_ranking.Ranked) -> RankingEntry:
    """The entry for a pod in a ranking, as explain shows it."""
    namespace, _, name = ranked.pod.key.rpartition("/")
    return RankingEntry(
        namespace,
        name,
        ranked.pod.uid,
        ranked.pod.priority,
        ranked.pod.critical,
        ranked.used,
        ranked.request,
        ranked.over,
    )


# The order in which pods would be evicted if the node ran short now, for plan and explain.
#
# The ranking is the one that evicts (:mod:`.ranking`). Pods that exceed a limit of their own are
# evicted before all others, regardless of this order.

FIRST = 10
"""How many pods of an order are named; the requested pod always is."""


class Next(Struct, frozen=True):
    """A pod in the order: ``number`` 1 goes first."""

    number: int
    place: RankingEntry
    requested: bool = field(default=False, name="asked")
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

    signals: tuple[decide.Signal, ...]
    crossed: bool
    reclaims: tuple[eviction_ranking.Reclaim, ...]
    pods: tuple[Next, ...]
    count: int
    stay: int
    requested_stays: bool = field(default=False, name="asked_stays")
    beyond: int | None = None


def orders(
    watched: Iterable[decide.Signal],
    layout: decide.Layout | None,
    pods: Sequence[eviction_ranking.Candidate],
    crossed: Collection[decide.Signal] = (),
    requested: eviction_ranking.Candidate | None = None,
) -> tuple[EvictionOrder, ...]:
    """The orders for the signals that have thresholds; signals with the same order share one.

    Args:
        layout: None: the runtime does not report its file systems; then no pod is evicted for the
            disk.
        ``requested``: a pod to include; it replaces the one with its uid. Without a
            use it is assumed to use what it requests.
    """
    others = [pod for pod in pods if requested is None or pod.uid != requested.uid]
    found: dict[tuple[object, ...], EvictionOrder] = {}
    for signal in sorted(set(watched), key=decide.ORDER.__getitem__):
        if layout is None and signal in decide.DISK:
            continue
        on = layout or decide.Layout.ONE
        made = _order(signal, on, others, signal in crossed, requested)
        same = (
            decide.resource_of(signal),
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
    signal: decide.Signal,
    layout: decide.Layout,
    others: Sequence[eviction_ranking.Candidate],
    crossed: bool,
    requested: eviction_ranking.Candidate | None,
) -> EvictionOrder:
    beyond, uid, stays, assumed = None, "", False, False
    candidates = list(others)
    if requested is not None:
        uid, stays, assumed = requested.uid, requested.critical, requested.use is None
        candidates.append(_running(requested, signal, layout) if assumed else requested)
        if assumed and not stays and _requested(requested, signal):
            more = _going(
                eviction_ranking.rank(
                    [*others, _running(requested, signal, layout, 1)], signal, layout
                )
            )
            beyond = next(n for n, each in enumerate(more, 1) if each.pod.uid == uid)
    going = _going(eviction_ranking.rank(candidates, signal, layout))
    named = tuple(
        Next(number, place_of(each), each.pod.uid == uid, assumed and each.pod.uid == uid)
        for number, each in enumerate(going, 1)
        if number <= FIRST or each.pod.uid == uid
    )
    stay = len(candidates) - len(going) - stays
    what = eviction_ranking.reclaims(signal, layout)
    return EvictionOrder((signal,), crossed, what, named, len(going), stay, stays, beyond)


def _going(ranking: Sequence[eviction_ranking.Ranked]) -> list[eviction_ranking.Ranked]:
    return [each for each in ranking if not each.pod.critical]


def _requested(pod: eviction_ranking.Candidate, signal: decide.Signal) -> int:
    return pod.requests.get(decide.resource_of(signal), 0)


def _running(
    pod: eviction_ranking.Candidate, signal: decide.Signal, layout: decide.Layout, more: int = 0
) -> eviction_ranking.Candidate:
    """A pod that uses what it requests and ``more``; one that requests nothing uses something."""
    amount = (_requested(pod, signal) or 1) + more
    pair = (0, amount) if signal in decide.INODES else (amount, 0)
    on_layers = eviction_ranking.counts_layers(signal, layout)
    disk = (
        eviction_ranking.DiskUse(layers=pair)
        if on_layers
        else eviction_ranking.DiskUse(volumes=pair)
    )
    return replace(pod, use=eviction_ranking.Use(memory=amount, tasks=1, disk=disk))


# Message, annotations and status of an eviction. Source: docs/reference/events.csv: Evicted,
# EvictionThresholdMet; docs/reference/reasons.csv: Evicted, DisruptionTarget;
# docs/reference/behaviour-resources.md, rd.

REASON = "Evicted"


def reclaiming(resource: str) -> str:
    """The node's event when action is about to be taken."""
    return f"Attempting to reclaim {resource}"


def message(pod: eviction_ranking.Candidate, crossings: Sequence[decide.Crossing]) -> str:
    """Why a pod is evicted.

    Args:
        pod: that one.
        crossings: all crossed thresholds; the first is acted on.
    """
    first = crossings[0]
    resource = decide.resource_of(first.threshold.signal)
    parts = [
        f"The node was low on resource: {resource}. ",
        f"Threshold quantity: {_number(first.quantity)}, "
        f"available: {_number(first.seen.available)}. ",
    ]
    if pod.use is None:
        return "".join(parts)
    if resource == eviction_ranking.MEMORY_REQUEST and pod.pod_level is not None:
        parts.append(
            f"Pod {pod.key.rpartition('/')[2]} was using {_number(pod.use.memory)}, request is "
            f"{pod.pod_level}, has larger consumption of {resource}. "
        )
    for container, used, request in _offending(pod.use, resource):
        parts.append(
            f"Container {container.name} was using {_number(used)}, request is "
            f"{request or 0}, has larger consumption of {resource}. "
        )
    return "".join(parts)


def event_annotations(pod: eviction_ranking.Candidate, crossing: decide.Crossing) -> dict[str, str]:
    """The annotations of an eviction event."""
    if pod.use is None:
        return {}
    resource = decide.resource_of(crossing.threshold.signal)
    found = _offending(pod.use, resource)
    made = {
        "offending_containers": ",".join(container.name for container, _, _ in found),
        "offending_containers_usage": ",".join(_number(used) for _, used, _ in found),
        "starved_resource": resource,
    }
    if resource == eviction_ranking.MEMORY_REQUEST and pod.pod_level is not None:
        made["offending_pod"] = pod.key.rpartition("/")[2]
        made["offending_pod_usage"] = _number(pod.use.memory)
    return made


def evicted_status(status: api.PodStatus, text: str, now: float, generation: int) -> api.PodStatus:
    """The status of a pod evicted for the node's sake. ``now`` in Unix seconds."""
    conditions = with_disruption(status, text, now, generation)
    return {
        **status,
        "phase": "Failed",
        "reason": REASON,
        "message": text,
        "conditions": conditions,
    }


def _offending(
    use: eviction_ranking.Use, resource: str
) -> list[tuple[eviction_ranking.ContainerUse, int, Quantity | None]]:
    """Containers that use more than they requested, with both amounts."""
    found = []
    for container in use.containers:
        used = {
            eviction_ranking.MEMORY_REQUEST: container.memory,
            eviction_ranking.STORAGE: container.storage,
        }.get(resource)
        request = container.requests.get(resource)
        if used is not None and used > (request.amount if request else 0):
            found.append((container, used, request))
    return found


def _number(amount: int) -> str:
    return spelled(amount, binary=True)
