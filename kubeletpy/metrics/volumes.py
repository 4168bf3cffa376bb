"""Metrics of volumes: operations, usage of claims, CSI drivers, plugin sockets, pod certificates.

Source: docs/reference/metrics.csv.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from kubeletpy.base.structs import Struct
from kubeletpy.metrics.families import MAX_SERIES, Families
from kubeletpy.metrics.generated import declared

DESIRED, ACTUAL = "desired_state_of_world", "actual_state_of_world"
MOUNT, UNMOUNT, OWN = "volume_mount", "volume_unmount", "volume_apply_access_control"
MIGRATED = ("false", "true")
"""The label of volumes of an in-tree kind that a CSI driver serves."""


class VolumeMetrics(declared.VolumesFamilies):
    """Metrics of the volume manager."""

    def done(
        self,
        operation: str,
        plugin: str,
        seconds: float,
        *,
        ok: bool = True,
        migrated: bool = False,
    ) -> None:
        """An operation on a volume ended. ``migrated``: an in-tree kind served by a CSI driver."""
        status = "success" if ok else "fail-unknown"
        self.operation_duration.labels(plugin, operation, status, MIGRATED[migrated]).observe(
            seconds
        )

    def first_set_up(self, plugin: str, seconds: float) -> None:
        """A volume is available, ``seconds`` after it was first requested."""
        self.operation_total.labels(plugin, "overall_volume_mount").observe(seconds)

    def moved(self, state: str, by: Mapping[str, int]) -> None:
        """The number of volumes has changed, by plugin."""
        for plugin, number in by.items():
            self.total_volumes.labels(plugin, state).inc(number)


class ClaimNumbers(Struct, frozen=True):
    """Measurements of the volume of one claim; missing numbers are unknown."""

    namespace: str
    name: str
    numbers: Mapping[str, int]
    """Values by name of the gauge, without ``kubelet_volume_stats_``."""


class VolumeStatsMetrics(declared.VolumeStatsFamilies):
    """How full the volumes of claims are, a series per claim, and how long measuring takes."""

    def __init__(self, families: Families) -> None:
        super().__init__(families)
        self._reported: set[tuple[str, str, str]] = set()

    def took(self, source: str, seconds: float) -> None:
        """One volume was measured."""
        self.seconds.labels(source).observe(seconds)

    def show(self, claims: Iterable[ClaimNumbers]) -> None:
        """Show what is known now; of two entries for the same claim the first counts."""
        numbers: dict[tuple[str, str, str], int] = {}
        seen = set()
        for claim in claims:
            of = (claim.namespace, claim.name)
            if of not in seen:
                numbers |= {(name, *of): number for name, number in claim.numbers.items()}
            seen.add(of)
        for name, *labels in self._reported - numbers.keys():
            self.gauges[name].remove(*labels)
        for (name, *labels), number in numbers.items():
            self.gauges[name].labels(*labels).set(number)
        self._reported = set(numbers)


NO_ANSWER = "unknown-non-grpc"


class CsiMetrics(declared.CsiFamilies):
    """How long CSI calls take."""

    def __init__(self, families: Families) -> None:
        super().__init__(families)
        self._conditions: dict[str, set[tuple[str, str]]] = {}

    def called(
        self, driver: str, method: str, code: str, seconds: float, *, migrated: bool = False
    ) -> None:
        """A call ended; ``code`` is the gRPC name of its status.

        ``migrated``: the volume is of an in-tree kind that this driver has replaced.
        """
        path = f"/csi.v1.Node/{method}"
        self.operations.labels(driver, path, code, MIGRATED[migrated]).observe(seconds)

    def storage_reported(self, driver: str, conditions: Iterable[tuple[str, str]]) -> None:
        """The storage of a driver has these conditions (status, reason), and no others."""
        before, now = self._conditions.pop(driver, set()), set(conditions)
        for status, reason in before - now:
            self.storage_health.remove(driver, status, reason)
        for status, reason in now:
            self.storage_health.labels(driver, status, reason).set(1)
        if now:
            self._conditions[driver] = now

    def storage_unknown(self, registered: Collection[str]) -> None:
        """Remove the health of drivers that are no longer registered."""
        for driver in self._conditions.keys() - set(registered):
            self.storage_reported(driver, ())


class PluginMetrics(declared.PluginsFamilies):
    """Which sockets exist; the code that discovers them bounds their number."""

    def show(self, desired: Sequence[str], registered: Sequence[str]) -> None:
        """Set which sockets exist, and which are registered."""
        self.total_plugins.clear()
        for state, paths in ((DESIRED, desired), (ACTUAL, registered)):
            for path in paths:
                self.total_plugins.labels(path, state).set(1)


class PodCertificateMetrics(declared.PodCertificatesFamilies):
    """The states of podCertificate sources, by signer."""

    def show(self, counts: Mapping[tuple[str, str], int]) -> None:
        """Show how many sources of each signer are in each state; MAX_SERIES at most."""
        self.states.clear()
        for (signer, state), count in sorted(counts.items())[:MAX_SERIES]:
            self.states.labels(signer, state).set(count)
