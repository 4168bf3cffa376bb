"""Decides what a node under pressure does next, and which conditions it reports. Pure.

The order here is that of a round: signals and their observations, the thresholds from the settings,
the decision, and when to observe again. The limits that pods have for local storage follow. A
threshold counts only when two consecutive observations found it crossed: a single outlier evicts
nothing. Pods that exceed a limit of their own are evicted first, and no pod is evicted for the disk
before they are. Time is an argument. Source: docs/reference/behaviour-resources.md, rc.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from enum import StrEnum
from typing import Any

from kubeletpy.base.api import types as api
from kubeletpy.base.api.quantity import parse_quantity, value
from kubeletpy.base.structs import Struct, field, replace
from kubeletpy.config.settings import KubeletSettings
from kubeletpy.node.stats.disk_plan import PodStorage
from kubeletpy.pods.pod import Pod, is_sidecar
from kubeletpy.pods.resources import pod_quantities

# Signals and their observations. Source: docs/reference/behaviour.md, p4;
# docs/reference/behaviour-resources.md, ra.

STALE_S = 15.0
"""An older number no longer counts: a file system may have kept us waiting."""


class Signal(StrEnum):
    """The API's names, in the order in which they are acted on: memory runs out fastest."""

    MEMORY = "memory.available"
    ALLOCATABLE_MEMORY = "allocatableMemory.available"
    NODEFS = "nodefs.available"
    NODEFS_INODES = "nodefs.inodesFree"
    IMAGEFS = "imagefs.available"
    IMAGEFS_INODES = "imagefs.inodesFree"
    CONTAINERFS = "containerfs.available"
    CONTAINERFS_INODES = "containerfs.inodesFree"
    PIDS = "pid.available"


ORDER = {signal: place for place, signal in enumerate(Signal)}
MEMORY = frozenset({Signal.MEMORY, Signal.ALLOCATABLE_MEMORY})
INODES = frozenset({Signal.NODEFS_INODES, Signal.IMAGEFS_INODES, Signal.CONTAINERFS_INODES})
CONTAINER_FS = frozenset({Signal.CONTAINERFS, Signal.CONTAINERFS_INODES})
DISK = frozenset(Signal) - MEMORY - {Signal.PIDS}


class Condition(StrEnum):
    """A condition of the node that reports pressure."""

    MEMORY = "MemoryPressure"
    DISK = "DiskPressure"
    PID = "PIDPressure"


def condition_of(signal: Signal) -> Condition:
    """The condition that a signal below its threshold makes true."""
    if signal in MEMORY:
        return Condition.MEMORY
    return Condition.PID if signal is Signal.PIDS else Condition.DISK


def resource_of(signal: Signal) -> str:
    """Its name in events, messages and annotations."""
    if signal in MEMORY:
        return "memory"
    if signal is Signal.PIDS:
        return "pids"
    return "inodes" if signal in INODES else "ephemeral-storage"


class Layout(StrEnum):
    """Where images and writable layers are."""

    ONE = "one"
    """On the file system of --root-dir, both."""
    APART = "apart"
    """Both on one of their own."""
    SPLIT = "split"
    """Images on one of their own, writable layers beside --root-dir."""


def layout_of(node: int, images: int, layers: int) -> Layout:
    """The layout, by the device numbers of --root-dir, images and writable layers."""
    if images == node:
        return Layout.ONE
    return Layout.SPLIT if layers == node else Layout.APART


class SignalObservation(Struct, frozen=True):
    """One signal: bytes, inodes or tasks.

    Attributes:
        at: event-loop seconds.
    """

    available: int
    capacity: int
    at: float


Observations = Mapping[Signal, SignalObservation]


class Doubt(StrEnum):
    """Why a number is not believed."""

    NEGATIVE = "it is negative"
    NO_CAPACITY = "there is no capacity"
    TOO_MUCH = "more is free than there is"
    STALE = "it is old"
    AHEAD = "it is from the future"


class CheckedObservations(Struct, frozen=True):
    """Which numbers of one observation are plausible, and which are not."""

    observations: Observations = field(default_factory=dict)
    doubts: Mapping[Signal, Doubt] = field(default_factory=dict)


def believable(found: Observations, now: float) -> CheckedObservations:
    """Drop impossible numbers: no pod is evicted for them.

    Args:
        found: as it was read.
        now: event-loop seconds.
    """
    doubts = {
        signal: doubt for signal, seen in found.items() if (doubt := _doubt(seen, now)) is not None
    }
    return CheckedObservations({s: seen for s, seen in found.items() if s not in doubts}, doubts)


def _doubt(seen: SignalObservation, now: float) -> Doubt | None:
    if seen.available < 0:
        return Doubt.NEGATIVE
    if seen.capacity <= 0:
        return Doubt.NO_CAPACITY
    if seen.available > seen.capacity:
        return Doubt.TOO_MUCH
    if seen.at > now:
        return Doubt.AHEAD
    return Doubt.STALE if now - seen.at > STALE_S else None


# Thresholds, from the settings. Source: docs/reference/behaviour-resources.md, rb. Settings are
# checked where they are loaded (:mod:`kubeletpy.config.load`): an error there names the field.

OFF = ("0%", "100%")
"""Texts that disable a threshold."""
DEFAULT_TRANSITION_S = 300.0


class Amount(Struct, frozen=True):
    """An amount of something, or a share of its capacity.

    Attributes:
        units: bytes, inodes or tasks; None: ``share`` counts.
        share: 0 to 1.
    """

    units: int | None = None
    share: float = 0.0

    def in_units(self, capacity: int) -> int:
        """The amount in units."""
        return self.units if self.units is not None else int(capacity * self.share)


class Threshold(Struct, frozen=True):
    """Less than ``amount`` is too little.

    Attributes:
        grace: seconds for which a soft threshold may be crossed; 0: a hard one.
        reclaim: how much more than the amount must be available before all is well again.
        at: where it comes from, as the settings name it.
    """

    signal: Signal
    amount: Amount
    grace: float = 0.0
    reclaim: Amount | None = None
    at: str = "evictionHard"

    @property
    def hard(self) -> bool:
        """Whether it is acted on at once."""
        return self.grace <= 0

    def met(self, seen: SignalObservation) -> bool:
        """Whether there is too little."""
        return seen.available < self.amount.in_units(seen.capacity)

    def unresolved(self, seen: SignalObservation) -> bool:
        """Whether there is still too little after it was acted on."""
        return self.missing(seen) > 0

    def missing(self, seen: SignalObservation) -> int:
        """How much more must be available before all is well again; 0 or less: nothing."""
        more = self.reclaim.in_units(seen.capacity) if self.reclaim is not None else 0
        return self.amount.in_units(seen.capacity) + more - seen.available


class Rules(Struct, frozen=True):
    """The settings of eviction, parsed.

    Attributes:
        thresholds: in the order of acting, hard ones first.
        transition: seconds for which a condition is reported after it was last seen.
        max_grace: seconds that a pod gets at most to end after a soft threshold.
        instead: signals of evictionHard and evictionSoft that others stand for.
    """

    thresholds: tuple[Threshold, ...] = ()
    transition: float = DEFAULT_TRANSITION_S
    max_grace: int = 0
    instead: tuple[str, ...] = ()

    @property
    def signals(self) -> frozenset[Signal]:
        """All signals that have to be observed."""
        return frozenset(threshold.signal for threshold in self.thresholds)


def from_settings(settings: KubeletSettings, *, ignore_allocatable: bool = False) -> Rules:
    """The thresholds of a node.

    Those of containerfs are left out: writable layers are on the file system of nodefs or imagefs,
    whose thresholds apply to them.

    Args:
        settings: checked.
        ignore_allocatable: --experimental-allocatable-ignore-eviction.
    """
    minimum = settings.eviction_minimum_reclaim
    found = [
        *_parse_thresholds(settings.eviction_hard, {}, minimum, "evictionHard"),
        *_parse_thresholds(
            settings.eviction_soft, settings.eviction_soft_grace_period, minimum, "evictionSoft"
        ),
    ]
    if "pods" in settings.enforce_node_allocatable and not ignore_allocatable:
        found += [
            replace(each, signal=Signal.ALLOCATABLE_MEMORY, grace=0.0)
            for each in found
            if each.signal is Signal.MEMORY and each.at == "evictionHard"
        ]
    used = [each for each in found if each.signal not in CONTAINER_FS]
    return Rules(
        thresholds=tuple(
            sorted(dict.fromkeys(used), key=lambda each: (ORDER[each.signal], each.grace))
        ),
        transition=settings.eviction_pressure_transition_period,
        max_grace=settings.eviction_max_pod_grace_period,
        instead=tuple(f"{t.at}.{t.signal}" for t in found if t.signal in CONTAINER_FS),
    )


def _parse_thresholds(
    amounts: Mapping[str, str], graces: Mapping[str, float], minimum: Mapping[str, str], at: str
) -> Iterable[Threshold]:
    for name, text in amounts.items():
        if text not in OFF:
            reclaim = minimum.get(name)
            yield Threshold(
                Signal(name),
                amount(text),
                graces.get(name, 0.0),
                amount(reclaim) if reclaim is not None else None,
                at,
            )


def amount(text: str) -> Amount:
    """A quantity or a percentage; the latter in single precision, as in the kubelet.

    Raises ValueError: neither.
    """
    if not text.endswith("%"):
        return Amount(units=value(text))
    return Amount(share=_single(_single(float(text[:-1])) / 100))


def _single(number: float) -> float:
    (single,) = struct.unpack("f", struct.pack("f", number))
    return float(single)


class EvictionState(Struct, frozen=True):
    """State carried from one observation to the next. Times are event-loop seconds.

    Attributes:
        suspected: thresholds that the last observation found crossed.
        first_seen: since when each threshold has been crossed.
        ready: those whose grace period was over: they count until the minimum is reclaimed.
        last: the last observation.
        pressed: when a condition was last seen; ``since``: when it was first reported.
    """

    suspected: frozenset[Threshold] = frozenset()
    first_seen: Mapping[Threshold, float] = field(default_factory=dict)
    ready: frozenset[Threshold] = frozenset()
    last: Observations = field(default_factory=dict)
    pressed: Mapping[Condition, float] = field(default_factory=dict)
    since: Mapping[Condition, float] = field(default_factory=dict)

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """The conditions that are reported, in their order."""
        return tuple(each for each in Condition if each in self.since)


class Crossing(Struct, frozen=True):
    """A threshold to act on, and what was seen."""

    threshold: Threshold
    seen: SignalObservation
    since: float

    @property
    def quantity(self) -> int:
        """The threshold in bytes, inodes or tasks."""
        return self.threshold.amount.in_units(self.seen.capacity)


class EvictionDecision(Struct, frozen=True):
    """The outcome of one observation.

    Attributes:
        state: for the next one.
        over: pods that go now because they exceed a limit of their own.
        act: the threshold to act on; None: there is none.
        all: crossed thresholds with their grace periods over and their numbers new; the one to
            act on comes first.
        held: likewise, but they wait for the pods that exceed a limit of their own.
        unsure: a threshold is crossed for the first time: check again at once.
    """

    state: EvictionState
    over: tuple[Offender, ...] = ()
    act: Crossing | None = None
    all: tuple[Crossing, ...] = ()
    held: tuple[Crossing, ...] = ()
    unsure: bool = False


def decide(
    seen: Observations,
    rules: Rules,
    state: EvictionState,
    now: float,
    *,
    over: Sequence[Offender] = (),
    at_once: int,
) -> EvictionDecision:
    """Actions that follow from an observation.

    Args:
        seen: the plausible observations; a missing signal crosses no threshold.
        rules: the node's.
        state: what the last decision left.
        now: event-loop seconds.
        over: pods that exceed a limit of their own and are not ending yet.
        at_once: how many of them may go now.
    """
    met = frozenset(t for t in rules.thresholds if t.signal in seen and t.met(seen[t.signal]))
    sure = met & state.suspected | {
        t for t in state.ready if t.signal in seen and t.unresolved(seen[t.signal])
    }
    first_seen = {t: state.first_seen.get(t, now) for t in rules.thresholds if t in sure}
    pressed = dict(state.pressed) | {condition_of(t.signal): now for t in first_seen}
    reported = [c for c, last in pressed.items() if now - last < rules.transition]
    ready = {t: since for t, since in first_seen.items() if now - since >= t.grace}
    crossings = tuple(
        Crossing(t, seen[t.signal], since)
        for t, since in ready.items()  # in the order of the rules
        if seen[t.signal].at > state.last[t.signal].at  # one observation is not enough
    )
    new_state = EvictionState(
        suspected=met,
        first_seen=first_seen,
        ready=frozenset(ready),
        last=seen,
        pressed={c: last for c, last in pressed.items() if c in reported},
        since={c: state.since.get(c, now) for c in reported},
    )
    held = tuple(
        each for each in crossings if over and condition_of(each.threshold.signal) is Condition.DISK
    )
    free = tuple(each for each in crossings if each not in held)
    return EvictionDecision(
        new_state,
        over=tuple(over[: max(0, at_once)]),
        act=free[0] if free else None,
        all=free,
        held=held,
        unsure=bool(met - sure),
    )


def restored(state: EvictionState, reported: Collection[Condition], now: float) -> EvictionState:
    """Add the conditions that an earlier run of the agent reported.

    They are held as if seen now: restarting its agent does not make a node well.
    """
    new = [condition for condition in reported if condition not in state.pressed]
    return replace(
        state,
        pressed={**state.pressed, **dict.fromkeys(new, now)},
        since={**state.since, **dict.fromkeys(new, now)},
    )


def relieved(state: EvictionState, seen: Observations) -> EvictionState:
    """Leave out the thresholds that the latest observation does not find crossed.

    It may be one of what an eviction or a reclaim frees. If the next one finds them crossed, that
    may be a wrong number, and is to be confirmed.
    """
    suspected = {t for t in state.suspected if t.signal not in seen or t.met(seen[t.signal])}
    ready = {t for t in state.ready if t.signal not in seen or t.unresolved(seen[t.signal])}
    return replace(
        state,
        suspected=frozenset(suspected),
        ready=frozenset(ready),
        first_seen={t: at for t, at in state.first_seen.items() if t in suspected | ready},
    )


def is_well(seen: Observations, rules: Rules, acted: Signal) -> bool:
    """Whether no threshold is crossed, counting the minimum reclaim and ignoring grace periods.

    Source: docs/reference/behaviour-resources.md, rc. ``acted`` is the signal for which
    something was reclaimed: while it is not seen, the node is not known to be well.
    """
    return acted in seen and not any(
        t.unresolved(seen[t.signal]) for t in rules.thresholds if t.signal in seen
    )


def hold_ends(state: EvictionState, rules: Rules, now: float) -> float | None:
    """Seconds until a condition that is no longer seen ends; None: there is none."""
    left = [last + rules.transition - now for last in state.pressed.values()]
    return max(0.0, min(left)) if left else None


# When to observe next: the nearer a threshold, the sooner.
#
# The kubelet observes every 10 s (docs/reference/constants.csv: monitor period), which is too
# seldom for a pod that uses up a gigabyte a second, and more than a quiet node needs.

PERIOD_S = 10.0
LEAST_S = 0.1
"""An observation takes about half a millisecond of processor time (0.46 ms were measured)."""
CONFIRM_S = 0.05
"""Between an observation that finds a threshold crossed and the one that confirms it."""
BYTES_A_SECOND = 1 << 30
DISK_BYTES_A_SECOND = 512 << 20
INODES_A_SECOND = 100_000
TASKS_A_SECOND = 10_000
GROWTH = 2
"""Consumption may become this many times faster until the next observation."""


def observation_delay(seen: Observations, before: Observations, rules: Rules) -> float:
    """Seconds until the next observation, from LEAST_S to PERIOD_S.

    It estimates how soon a threshold can be reached: at the usual consumption per second, or at the
    last one if that was higher.

    Args:
        seen: by this observation.
        before: by the previous one.
        rules: the node's.
    """
    wait = PERIOD_S
    for threshold in rules.thresholds:
        now = seen.get(threshold.signal)
        if now is None:
            continue
        left = now.available - threshold.amount.in_units(now.capacity)
        if left < 0:  # it is acted on, or its grace period runs: nothing can be missed
            wait = min(wait, threshold.grace or PERIOD_S)
            continue
        wait = min(wait, left / _rate(threshold.signal, now, before.get(threshold.signal)))
    return max(LEAST_S, wait)


def _usual(signal: Signal) -> float:
    if signal in MEMORY:
        return BYTES_A_SECOND
    if signal is Signal.PIDS:
        return TASKS_A_SECOND
    return INODES_A_SECOND if signal in INODES else DISK_BYTES_A_SECOND


def _rate(signal: Signal, now: SignalObservation, before: SignalObservation | None) -> float:
    """How much may be used up per second until the next observation."""
    usual = _usual(signal)
    if before is None or now.at <= before.at:
        return usual
    used_up = (before.available - now.available) / (now.at - before.at)
    return max(usual, GROWTH * used_up)


# Limits of a pod's local storage. Source: docs/reference/behaviour.md, p5;
# docs/reference/behaviour-resources.md, re; docs/reference/events.csv: Evicted;
# docs/reference/reasons.csv: Evicted. Each covers something different: an emptyDir's
# ``sizeLimit`` that volume, a container's ``ephemeral-storage`` its logs and writable layer,
# their sum everything that the pod has on disk.

RESOURCE = "ephemeral-storage"
REASON = "Evicted"
GRACE_S = 1
"""Seconds that containers of an evicted pod have to end."""
CONTAINER_SIGNAL = "ephemeralcontainerfs.limit"
POD_SIGNAL = "ephemeralpodfs.limit"
VOLUME_SIGNAL = "emptydirfs.limit"
WHOLE = "all of the pod"
REPORTED = 5
"""How many of the pods that may be evicted next are kept."""
AT_ONCE = 4
"""How many pods are ended at a time: each has to end in time, whatever the others do."""


class Limit(Struct, frozen=True):
    """Bytes, and how they are written."""

    size: Decimal
    text: str


class LocalStorageLimits(Struct, frozen=True):
    """The limits of a pod's local storage; at least one is set.

    Attributes:
        volumes, containers: by name.
        pod: for all of it together.
    """

    volumes: Mapping[str, Limit] = field(default_factory=dict)
    containers: Mapping[str, Limit] = field(default_factory=dict)
    pod: Limit | None = None

    @property
    def of_layers(self) -> bool:
        """Whether writable layers count for any of them."""
        return self.pod is not None or bool(self.containers)


class Share(Struct, frozen=True):
    """The use of one limit, in bytes. ``of``: what it limits, such as ``container main``."""

    of: str
    used: int
    limit: int


class LocalStorageEviction(Struct, frozen=True):
    """Why a pod is evicted: the label of kubelet_evictions, and the message of event and status."""

    signal: str
    message: str
    share: Share


class Offender(Struct, frozen=True):
    """A pod that exceeds a limit of its own, and which."""

    uid: str
    verdict: LocalStorageEviction


class LimitPlace(Struct, frozen=True):
    """A pod, and the limit that it is nearest to."""

    namespace: str
    name: str
    uid: str
    share: Share


class LimitEviction(Struct, frozen=True):
    """A pod that was evicted for a limit of its own, with the numbers of that moment.

    Attributes:
        at: Unix seconds.
        ranking: other pods with limits, those nearest to one first; these may be next.
    """

    at: float
    pod: LimitPlace
    ranking: tuple[LimitPlace, ...]


def limits_of(pod: Pod) -> LocalStorageLimits | None:
    """The limits of a pod's local storage; None: it has none.

    emptyDirs in memory are left out: their tmpfs has that size. A limit that can't be read is none.
    """
    volumes = _volume_limits(pod.spec.get("volumes") or [])
    containers = {}
    for container in (*pod.containers, *filter(is_sidecar, pod.init_containers)):
        limit = _limit(((container.get("resources") or {}).get("limits") or {}).get(RESOURCE))
        if limit is not None and limit.size:
            containers[container["name"]] = limit
    total = _pod_limit(pod)
    if not volumes and not containers and total is None:
        return None
    return LocalStorageLimits(volumes, containers, total)


def judge(limits: LocalStorageLimits, use: PodStorage) -> LocalStorageEviction | None:
    """The first limit that is exceeded: volumes first, then the pod, then its containers."""
    found = _if_exceeded(limits, use)
    return next((each for limit, each in found if each.share.used > limit.size), None)


def nearest(limits: LocalStorageLimits, use: PodStorage) -> Share:
    """The limit that is used up the most."""
    return max((each.share for _, each in _if_exceeded(limits, use)), key=_part)


def next_to_go(places: Iterable[LimitPlace]) -> tuple[LimitPlace, ...]:
    """The first few pods, those nearest to a limit of their own first."""
    ordered = sorted(places, key=lambda place: (-_part(place.share), place.uid))
    return tuple(ordered[:REPORTED])


def _if_exceeded(
    limits: LocalStorageLimits, use: PodStorage
) -> Iterator[tuple[Limit, LocalStorageEviction]]:
    """Each limit with the eviction that exceeding it means, in the order in which they count."""
    for name, limit in limits.volumes.items():
        share = Share(f"emptyDir {name}", use.volumes.get(name, 0), int(limit.size))
        message = f'Usage of EmptyDir volume "{name}" exceeds the limit "{limit.text}". '
        yield limit, LocalStorageEviction(VOLUME_SIGNAL, message, share)
    if limits.pod is not None:
        share = Share(WHOLE, use.total, int(limits.pod.size))
        message = (
            "Pod ephemeral local storage usage exceeds the total limit of containers "
            f"{limits.pod.text}. "
        )
        yield limits.pod, LocalStorageEviction(POD_SIGNAL, message, share)
    for name, limit in limits.containers.items():
        share = Share(f"container {name}", use.containers.get(name, 0), int(limit.size))
        message = f'Container {name} exceeded its local ephemeral storage limit "{limit.text}". '
        yield limit, LocalStorageEviction(CONTAINER_SIGNAL, message, share)


def _part(share: Share) -> float:
    return share.used / max(1, share.limit)


def evicted_status(status: api.PodStatus, verdict: LocalStorageEviction) -> api.PodStatus:
    """The status of a pod that is evicted for its local storage.

    Without a DisruptionTarget condition: the pod itself is at fault, not the node.
    """
    return {**status, "phase": "Failed", "reason": REASON, "message": verdict.message}


def _volume_limits(volumes: list[Any]) -> dict[str, Limit]:
    found = {}
    for volume in volumes:
        source = volume.get("emptyDir")
        if not source or source.get("medium") == "Memory":
            continue
        limit = _limit(source.get("sizeLimit"))
        if limit is not None and limit.size > 0:
            found[str(volume.get("name") or "")] = limit
    return found


def _pod_limit(pod: Pod) -> Limit | None:
    try:
        limit = pod_quantities(pod, "limits").get(RESOURCE)
    except ValueError:
        return None
    return None if limit is None else Limit(limit.amount, str(limit))


def _limit(text: object) -> Limit | None:
    """A limit that is not given is as none as one that can't be read."""
    try:
        limit = parse_quantity(str(text))
    except ValueError:
        return None
    return Limit(limit.amount, str(limit))
