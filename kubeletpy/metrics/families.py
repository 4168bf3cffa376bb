"""The kinds of metrics the agent uses, on one registry of its own, and the text of a scrape.

Names match the kubelet's: some of its counters lack the ``_total`` that the client library insists
on. Must never touch the library's global registry: several agents may live in one process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Self

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.metrics_core import Metric
from prometheus_client.samples import Sample
from prometheus_client.utils import floatToGoString

from kubeletpy.base.kubernetes_version import NEWEST, KubernetesVersion
from kubeletpy.metrics.versions import gates_of, has_metric, missing_labels, name_in, stability

MAX_SERIES = 500
"""Most series of a counter with labels from outside; any further ones count as "other"."""

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
"""Prometheus' default buckets."""

POD_START_SECONDS = (
    *(0.5, 1, 2, 3, 4, 5, 6, 8, 10, 20, 30, 45, 60, 120, 180, 240, 300, 360, 480, 600),
    *(900, 1200, 1800, 2700, 3600),
)


def every_gate(name: str) -> bool:
    """The gates of an agent that shows all metrics of its version."""
    return True


class PlainCounter(Counter):
    """A counter that is scraped under its bare name, as some of the kubelet's are."""

    def collect(self) -> Iterable[Metric]:
        """The metric with its samples renamed."""
        for metric in super().collect():
            total = f"{metric.name}_total"
            metric.samples = [
                sample._replace(name=metric.name)
                for sample in metric.samples
                if sample.name == total
            ]
            yield metric


class BoundedCounter(Counter):
    """A counter whose label values come from pods or the runtime: its series are bounded."""

    def labels(self, *labelvalues: Any, **labelkwargs: Any) -> Self:
        """The series of these values, or the one named "other" once there are MAX_SERIES."""
        key = tuple(str(value) for value in labelvalues)
        if len(self._metrics) >= MAX_SERIES and key not in self._metrics:
            return super().labels(*("other" for _ in self._labelnames))
        return super().labels(*labelvalues, **labelkwargs)


class SummedGauge(Gauge):
    """A gauge that is scraped without some of its labels: its series are added up over them."""

    unseen: tuple[str, ...] = ()

    def collect(self) -> Iterable[Metric]:
        """The metric with one sample for all that differ only in unseen labels."""
        for metric in super().collect():
            sums: dict[tuple[tuple[str, str], ...], float] = {}
            for sample in metric.samples:
                kept = tuple(item for item in sample.labels.items() if item[0] not in self.unseen)
                sums[kept] = sums.get(kept, 0.0) + sample.value
            metric.samples = [
                Sample(metric.name, dict(labels), value) for labels, value in sums.items()
            ]
            yield metric


class Families:
    """Makes metrics on one registry, those of a Kubernetes version and its feature gates.

    A metric that the Kubernetes version does not have, or whose gates are not all on, can be
    counted like the others; no scrape shows it.
    """

    def __init__(
        self, version: KubernetesVersion = NEWEST, enabled: Callable[[str], bool] = every_gate
    ) -> None:
        self.registry = CollectorRegistry()
        self.version = version
        self._enabled = enabled

    def newest_name(self, *names: str) -> str:
        """The name that a renamed metric has in this version; ``names`` from the newest on."""
        return name_in(self.version, *names)

    def counter(self, name: str, help: str, *labels: str) -> Counter:
        """A counter, scraped under its own name."""
        kind = Counter if name.endswith("_total") else PlainCounter
        return kind(name, self._help(name, help), labels, registry=self._reported(name))

    def bounded_counter(self, name: str, help: str, *labels: str) -> Counter:
        """A counter whose label values are untrusted: its series are bounded."""
        return BoundedCounter(name, self._help(name, help), labels, registry=self._reported(name))

    def gauge(self, name: str, help: str, *labels: str) -> Gauge:
        """A gauge, without labels that this version does not have."""
        text, registry = self._help(name, help), self._reported(name)
        unseen = missing_labels(name, self.version)
        if not unseen:
            return Gauge(name, text, labels, registry=registry)
        summed = SummedGauge(name, text, labels, registry=registry)
        summed.unseen = unseen
        return summed

    def histogram(
        self, name: str, help: str, *labels: str, buckets: Sequence[float] = SECONDS
    ) -> Histogram:
        """A histogram with the given upper bounds."""
        text, registry = self._help(name, help), self._reported(name)
        return Histogram(name, text, labels, registry=registry, buckets=buckets)

    def _reported(self, name: str) -> CollectorRegistry | None:
        reported = has_metric(name, self.version) and all(map(self._enabled, gates_of(name)))
        return self.registry if reported else None

    def _help(self, name: str, text: str) -> str:
        """A help text that begins with the metric's stability level, as the kubelet's does."""
        return f"[{stability(name, self.version)}] {text}"


# The text of a scrape, as the kubelet writes it. The library would write every counter as
# ``…_total``, add ``_created`` series and write buckets as le="1.0" where the kubelet's
# dashboards expect le="1".

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def render(registry: CollectorRegistry) -> bytes:
    """All series of ``registry``, by name; families without series are left out."""
    families = sorted(registry.collect(), key=lambda metric: metric.name)
    return "".join(line for metric in families for line in _lines(metric)).encode()


def _lines(metric: Metric) -> Iterator[str]:
    """HELP, TYPE and the samples of a family."""
    samples = list(_without_created(metric))
    if not samples:
        return
    # The name of a counter's family lacks the _total that its samples may have.
    name = samples[0].name if metric.type == "counter" else metric.name
    kind = "untyped" if metric.type == "unknown" else metric.type
    yield f"# HELP {name} {_escape(metric.documentation)}\n"
    yield f"# TYPE {name} {kind}\n"
    for sample in samples:
        yield f"{sample.name}{_labels(sample)} {_number(sample.value)}\n"


def _without_created(metric: Metric) -> Iterable[Sample]:
    """The samples without OpenMetrics' creation times."""
    created = f"{metric.name}_created"
    return (sample for sample in metric.samples if sample.name != created)


def _labels(sample: Sample) -> str:
    """``{a="b",le="1"}``, or nothing."""
    if not sample.labels:
        return ""
    pairs = ",".join(
        f'{name}="{_value(name, value)}"' for name, value in sorted(sample.labels.items())
    )
    return f"{{{pairs}}}"


def _value(name: str, value: str) -> str:
    if name == "le":
        return value.removesuffix(".0")
    return _escape(value).replace('"', '\\"')


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")


def _number(value: float) -> str:
    """Formats a number like Go: without a needless ".0"."""
    text: str = floatToGoString(value)  # type: ignore[no-untyped-call]
    return text.removesuffix(".0")
