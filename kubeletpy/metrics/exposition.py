"""The scrape: a registry in Prometheus' text format, written as the kubelet writes it.

Not the library's, which writes every counter as ``…_total``, adds ``_created`` series and writes
buckets as le="1.0" where the kubelet's dashboards expect le="1". Must never change a metric.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import Metric
from prometheus_client.samples import Sample
from prometheus_client.utils import floatToGoString

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
