"""The kinds of metrics the agent uses, on one registry of its own, and the text of a scrape.

Names match the kubelet's: some of its counters lack the ``_total`` that the client library insists
on. Must never touch the library's global registry: several agents may live in one process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Self, TypedDict, Unpack

from prometheus_client.metrics import Counter, Gauge, Histogram
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import CollectorRegistry
from prometheus_client.samples import Sample
from prometheus_client.utils import floatToGoString

from kubeletpy.base.kubernetes_version import NEWEST, KubernetesVersion, within
from kubeletpy.base.structs import Component

MAX_SERIES = 500
"""Most series of a counter with labels from outside; any further ones count as "other"."""


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


class Terms(TypedDict, total=False):
    """The versions and gates with which a scrape shows a metric, and its stability.

    Attributes:
        since: the first Kubernetes version that has it; until: the last one.
        gates: the feature gates that must all be on.
        level: its stability in the newest version, unless that is ALPHA.
        earlier_level: the last version with another stability, and that one.
        former: the former name, with the first and the last version that has it.
    """

    since: str
    until: str
    gates: tuple[str, ...]
    level: str
    earlier_level: tuple[str, str]
    former: tuple[str, str, str]


class Families(Component):
    """Makes metrics on one registry, those of a Kubernetes version and its feature gates.

    A metric that the Kubernetes version does not have, or whose gates are not all on, can be
    counted like the others; no scrape shows it.
    """

    version: KubernetesVersion = NEWEST
    enabled: Callable[[str], bool] = every_gate

    def __post_init__(self) -> None:
        self.registry = CollectorRegistry()

    def counter(self, name: str, help: str, *labels: str, **terms: Unpack[Terms]) -> Counter:
        """A counter, scraped under its own name."""
        name, text, registry = self._declared(name, help, terms)
        kind = Counter if name.endswith("_total") else PlainCounter
        return kind(name, text, labels, registry=registry)

    def bounded_counter(
        self, name: str, help: str, *labels: str, **terms: Unpack[Terms]
    ) -> Counter:
        """A counter whose label values are untrusted: its series are bounded."""
        name, text, registry = self._declared(name, help, terms)
        return BoundedCounter(name, text, labels, registry=registry)

    def gauge(
        self,
        name: str,
        help: str,
        *labels: str,
        new_labels: tuple[str, tuple[str, ...]] = ("", ()),
        **terms: Unpack[Terms],
    ) -> Gauge:
        """A gauge. ``new_labels``: the last version without some of its labels, and these."""
        name, text, registry = self._declared(name, help, terms)
        last, unseen = new_labels
        if not self._is_until(last):
            return Gauge(name, text, labels, registry=registry)
        summed = SummedGauge(name, text, labels, registry=registry)
        summed.unseen = unseen
        return summed

    def histogram(
        self, name: str, help: str, *labels: str, buckets: Sequence[float], **terms: Unpack[Terms]
    ) -> Histogram:
        """A histogram with the given upper bounds."""
        name, text, registry = self._declared(name, help, terms)
        return Histogram(name, text, labels, registry=registry, buckets=buckets)

    def _declared(
        self, name: str, help: str, terms: Terms
    ) -> tuple[str, str, CollectorRegistry | None]:
        """Name, help text and registry in this version.

        The text begins with the metric's stability level, as the kubelet's does.
        """
        since, until = terms.get("since", ""), terms.get("until", "")
        former, first, last = terms.get("former", ("", "", ""))
        if former and within(self.version, since=first, until=last):
            name, since, until = former, first, last
        changed, level = terms.get("earlier_level", ("", ""))
        if not self._is_until(changed):
            level = terms.get("level", "ALPHA")
        reported = within(self.version, since=since, until=until)
        reported = reported and all(map(self.enabled, terms.get("gates", ())))
        return name, f"[{level}] {help}", self.registry if reported else None

    def _is_until(self, last: str) -> bool:
        return bool(last) and within(self.version, until=last)


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
