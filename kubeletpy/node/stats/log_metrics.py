"""Disk usage of container logs, as the kubelet shows it in /metrics. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from kubeletpy.node.stats.text import Scrape, labels
from kubeletpy.node.stats.usage import Disks, PodRef

_NAME = "kubelet_container_log_filesystem_used_bytes"
FAMILIES = {_NAME: ("gauge", "[ALPHA] Bytes that the logs of a container take on disk.")}


def render(disks: Disks, refs: Mapping[str, PodRef]) -> bytes:
    """A scrape; ``refs``: pods by uid, others are omitted."""
    scrape = Scrape(FAMILIES)
    for uid, disk in disks.pods.items():
        if (ref := refs.get(uid)) is None:
            continue
        for container, use in disk.logs.items():
            named = {"container": container, "namespace": ref.namespace, "pod": ref.name}
            scrape.add(_NAME, labels({**named, "uid": uid}), use.used)
    return scrape.render()
