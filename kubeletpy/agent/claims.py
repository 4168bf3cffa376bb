"""Resource claims and DRA drivers: a part of the composition root."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kubeletpy.agent.component import Component, Task
from kubeletpy.agent.context import BuildContext
from kubeletpy.base.api import types as api
from kubeletpy.base.clock import Clock
from kubeletpy.base.structs import Struct
from kubeletpy.config import ConfigError, Problem
from kubeletpy.config.gates import FeatureGates
from kubeletpy.pods.pod import Pod
from kubeletpy.resources.dra.claim_manager import ClaimManager
from kubeletpy.resources.dra.claims import ClaimProblem, uses, uses_claims
from kubeletpy.resources.dra.drivers import DraDrivers
from kubeletpy.resources.dra.model import BadClaimState
from kubeletpy.resources.dra.model import Claims as KnownClaims
from kubeletpy.resources.dra.state import ClaimState

if TYPE_CHECKING:
    from kubeletpy.resources.dra.health_state import HealthState
    from kubeletpy.resources.dra.slices import SliceCleaner


class ClaimParts(Struct, frozen=True):
    """The objects for resource claims; ``drivers`` handles DRA plugins."""

    components: list[Component]
    manager: ClaimManager
    drivers: DraDrivers
    device_health: Callable[[Pod], Mapping[str, list[api.ResourceStatus]]]
    """allocatedResourcesStatus of each container of a pod that has claims."""
    slices: SliceCleaner | None
    """None: there is no API, or no plugins."""


def build_claims(context: BuildContext) -> ClaimParts:
    """Raises ConfigError if the state in the root directory can't be used."""
    outside, signals, gates = context.outside, context.signals, context.gates
    root, kube_api, metrics = context.root, context.kube_api, outside.metrics.dra

    def show(claims: KnownClaims) -> None:
        drivers = (driver for claim in claims.values() for driver in claim.drivers)
        metrics.show(Counter(drivers), len(claims))

    try:
        state = ClaimState(root / "dra_manager_state", show)
    except BadClaimState as error:
        raise ConfigError([Problem("dra_manager_state", "", str(error))]) from error

    health = _Health(root / "dra_health_state", outside.clock, state, signals.pod_changed, gates)
    heard = health.driver_reported if gates.enabled("ResourceHealthStatus") else None
    drivers = DraDrivers(metrics, outside.claim_drivers, heard)
    manager = ClaimManager(
        kube_api,
        drivers,
        state,
        metrics,
        may_skip=gates.enabled("DRAOptionalNodeOperations"),
        wake=signals.pod_changed,
    )
    components = [
        Component(state, close=state.close),
        Component(health, close=health.close),
        Component(drivers, close=drivers.close),
        Component(
            manager,
            (Task("resource-claims", manager.run),),
            keep=lambda found: manager.pods_known(found.existing),
        ),
    ]
    slices: SliceCleaner | None = None
    if kube_api is not None and outside.plugins is not None:
        from kubeletpy.resources.dra.slices import SliceCleaner

        slices = SliceCleaner(kube_api, context.node_name, drivers)
        components.append(Component(slices, (Task("resource-slices", slices.run),)))
    return ClaimParts(components, manager, drivers, health.statuses, slices)


class _Health:
    """Device health; loaded when a driver reports it or a pod has claims."""

    def __init__(
        self,
        path: Path,
        clock: Clock,
        claims: ClaimState,
        pod_changed: Callable[[str], None],
        gates: FeatureGates,
    ) -> None:
        self._path, self._clock, self._claims = path, clock, claims
        self._pod_changed = pod_changed
        self._messages = gates.enabled("ResourceHealthStatusMessage")
        self._state: HealthState | None = None

    def driver_reported(self, driver: str, answer: Any) -> None:
        self._loaded().driver_reported(driver, answer)

    def statuses(self, pod: Pod) -> Mapping[str, list[api.ResourceStatus]]:
        if not self._claims.claims or not uses_claims(pod):
            return {}
        from kubeletpy.resources.dra.health import statuses

        try:
            used = uses(pod)
        except ClaimProblem:
            return {}  # a claim does not exist yet: nothing is prepared
        known, now = self._loaded().reported, self._clock.now()
        return statuses(self._claims.claims, known, pod, used, now, words=self._messages)

    async def close(self) -> None:
        if self._state is not None:
            await self._state.close()

    def _loaded(self) -> HealthState:
        if self._state is None:
            from kubeletpy.resources.dra.health_state import HealthState

            self._state = HealthState(self._path, self._clock, self._changed)
        return self._state

    def _changed(self, devices: set[tuple[str, tuple[str, str]]]) -> None:
        from kubeletpy.resources.dra.health import users

        for uid in users(self._claims.claims, devices):
            self._pod_changed(uid)
