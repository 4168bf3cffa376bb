"""/metrics/cadvisor as the runtime itself writes it (ListPodSandboxMetrics). Pure.

For runtimes that support it, when the feature gate PodAndContainerStatsFromCRI is on. The runtime's
text is untrusted: invalid metric names are omitted, as is a metric without a descriptor or with the
wrong number of labels.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import chain

from kubeletpy.node.stats.text import Scrape, escape, labels
from kubeletpy.remote.generated import api_pb2 as cri

_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")


def render(
    descriptors: Iterable[cri.MetricDescriptor], pods: Iterable[cri.PodSandboxMetrics]
) -> bytes:
    """A scrape."""
    known = {
        each.name: each
        for each in descriptors
        if _NAME.fullmatch(each.name) and all(_NAME.fullmatch(key) for key in each.label_keys)
    }
    metrics = [
        metric
        for pod in pods
        for metric in chain(pod.metrics, *(each.metrics for each in pod.container_metrics))
        if metric.name in known
    ]
    kinds = {
        metric.name: "counter" if metric.metric_type == cri.COUNTER else "gauge"
        for metric in metrics
    }
    families = {name: (kind, escape(known[name].help)) for name, kind in kinds.items()}
    scrape = Scrape(families)
    for metric in metrics:
        keys = known[metric.name].label_keys
        if len(keys) == len(metric.label_values):
            named = labels(dict(zip(keys, metric.label_values, strict=True)))
            scrape.add(metric.name, named, metric.value.value, metric.timestamp)
    return scrape.render()
