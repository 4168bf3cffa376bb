"""Resource claims and DRA drivers: a part of the composition root."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from kubeletpy.agent.outside import Outside
from kubeletpy.agent.room import Room, Task
from kubeletpy.agent.signals import Signals
from kubeletpy.config import ConfigError, Problem
from kubeletpy.dra.drivers import Drivers
from kubeletpy.dra.manager import ClaimManager
from kubeletpy.dra.model import BadCheckpoint, by_driver, has_cdi
from kubeletpy.dra.model import Claims as KnownClaims
from kubeletpy.dra.state import ClaimState


@dataclass(frozen=True, slots=True)
class Claims:
    """What the root goes on with; ``drivers`` is the handler of their type."""

    rooms: list[Room]
    manager: ClaimManager
    drivers: Drivers


def build_claims(outside: Outside, signals: Signals, *, root: Path, node_name: str) -> Claims:
    """``root`` is the kubelet's root directory. Raises ConfigError: its state
    can't be used."""
    kube_api = outside.api.pods if outside.api is not None else None
    metrics, info = outside.metrics.dra, outside.runtime_info

    def show(claims: KnownClaims) -> None:
        counts = {driver: len(each) for driver, each in by_driver(claims.values()).items()}
        metrics.show(counts, len(claims))

    drivers = Drivers(metrics, outside.claim_drivers)
    try:
        state = ClaimState(root / "dra_manager_state", show)
    except BadCheckpoint as error:
        raise ConfigError([Problem("dra_manager_state", "", str(error))]) from error
    manager = ClaimManager(
        kube_api,
        drivers,
        state,
        metrics,
        wake=signals.pod_changed,
        runtime_has_cdi=has_cdi(info.name, info.version),
    )
    rooms = [
        Room(drivers, close=drivers.close),
        Room(
            manager,
            (Task("resource-claims", manager.run),),
            keep=lambda found: manager.pods_known(found.known),
        ),
    ]
    if kube_api is not None and outside.plugins is not None:
        from kubeletpy.dra.slices import SliceCleaner

        cleaner = SliceCleaner(kube_api, node_name, drivers)
        rooms.append(Room(cleaner, (Task("resource-slices", cleaner.run),)))
    return Claims(rooms, manager, drivers)
