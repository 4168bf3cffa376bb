"""From settings to the thresholds of a node. Pure.

Source: docs/reference/behaviour-resources.md, rb. Settings are checked for sense where they are
loaded (:mod:`kubeletpy.config.load`): an error there names the field.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping

from kubeletpy.base.api.quantity import value
from kubeletpy.base.structs import Struct, replace
from kubeletpy.config.settings import KubeletSettings
from kubeletpy.node.eviction.signals import CONTAINER_FS, ORDER, Signal, SignalObservation

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
    amounts: Mapping[str, str],
    graces: Mapping[str, float],
    minimum: Mapping[str, str],
    at: str,
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
