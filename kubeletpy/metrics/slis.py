"""Metrics of the health checks themselves (/metrics/slis), which have an endpoint of their own."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kubeletpy.metrics.families import Families

TYPE = "healthz"


class HealthMetrics:
    """Counts how often each health check ran, and with what result."""

    def __init__(self, families: Families) -> None:
        self.healthy = families.gauge(
            "kubernetes_healthcheck", "1 if the check passed when it last ran.", "type", "name"
        )
        self.runs = families.counter(
            "kubernetes_healthchecks_total", "Runs of the check.", "type", "name", "status"
        )
        self._checks: dict[str, Callable[[], str]] = {}

    def counted(self, checks: Mapping[str, Callable[[], str]]) -> dict[str, Callable[[], str]]:
        """The same checks (empty text: healthy), counting each run."""
        found = {name: self._counted(name, check) for name, check in checks.items()}
        self._checks |= found
        return found

    def run(self) -> None:
        """Run all checks, so that a scrape shows their current state."""
        for check in self._checks.values():
            check()

    def _counted(self, name: str, check: Callable[[], str]) -> Callable[[], str]:
        def run() -> str:
            problem = check()
            self.healthy.labels(TYPE, name).set(0 if problem else 1)
            self.runs.labels(TYPE, name, "error" if problem else "success").inc()
            return problem

        return run
