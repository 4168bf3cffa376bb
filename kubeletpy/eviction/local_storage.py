"""Whether a pod takes more local storage than its spec allows. Pure.

Source: docs/reference/behaviour.md, p5; docs/reference/behaviour-resources.md, re;
docs/reference/events.csv: Evicted; docs/reference/reasons.csv: Evicted. Each limit is for something
else: an emptyDir's ``sizeLimit`` for that volume, a container's ``ephemeral-storage`` for its logs
and writable layer, their sum for all that the pod has on disk.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from kubeletpy.api import types as api
from kubeletpy.api.quantity import parse, spelled
from kubeletpy.pods.pod import Pod
from kubeletpy.pods.qos import is_critical
from kubeletpy.pods.resources import pod_limits
from kubeletpy.stats.disk_plan import PodStorage

RESOURCE = "ephemeral-storage"
REASON = "Evicted"
GRACE_S = 1
"""Seconds that containers of an evicted pod have to end."""
CONTAINER_SIGNAL = "ephemeralcontainerfs.limit"
POD_SIGNAL = "ephemeralpodfs.limit"
VOLUME_SIGNAL = "emptydirfs.limit"


@dataclass(frozen=True, slots=True)
class Limit:
    """Bytes, and how they are written."""

    size: Decimal
    text: str


@dataclass(frozen=True, slots=True)
class Limits:
    """What a pod may take; at least one of them is there.

    Attributes:
        volumes, containers: by name.
        pod: of all together.
    """

    volumes: Mapping[str, Limit] = field(default_factory=dict)
    containers: Mapping[str, Limit] = field(default_factory=dict)
    pod: Limit | None = None

    @property
    def of_layers(self) -> bool:
        """Whether writable layers count for any of them."""
        return self.pod is not None or bool(self.containers)


@dataclass(frozen=True, slots=True)
class Verdict:
    """Why a pod has to go: the label of kubelet_evictions, and the words of event and status."""

    signal: str
    message: str


def limits_of(pod: Pod) -> Limits | None:
    """What limits a pod's local storage; None: nothing, or the pod is critical and stays anyway.

    emptyDirs in memory are left out: their tmpfs has that size. A limit that can't be read is none.
    """
    if is_critical(pod):
        return None
    volumes = _volume_limits(pod.spec.get("volumes") or [])
    containers = {}
    for container in pod.containers:
        limit = _limit(((container.get("resources") or {}).get("limits") or {}).get(RESOURCE))
        if limit is not None and limit.size:
            containers[container["name"]] = limit
    total = _pod_limit(pod)
    if not volumes and not containers and total is None:
        return None
    return Limits(volumes, containers, total)


def judge(limits: Limits, use: PodStorage) -> Verdict | None:
    """The first limit that is exceeded, volumes before the pod before its containers."""
    for name, limit in limits.volumes.items():
        if use.volumes.get(name, 0) > limit.size:
            message = f'Usage of EmptyDir volume "{name}" exceeds the limit "{limit.text}". '
            return Verdict(VOLUME_SIGNAL, message)
    if limits.pod is not None and use.total > limits.pod.size:
        message = (
            "Pod ephemeral local storage usage exceeds the total limit of containers "
            f"{limits.pod.text}. "
        )
        return Verdict(POD_SIGNAL, message)
    for name, limit in limits.containers.items():
        if use.containers.get(name, 0) > limit.size:
            message = (
                f'Container {name} exceeded its local ephemeral storage limit "{limit.text}". '
            )
            return Verdict(CONTAINER_SIGNAL, message)
    return None


def evicted_status(status: api.PodStatus, verdict: Verdict) -> api.PodStatus:
    """The status of a pod that is evicted for its local storage.

    Without a DisruptionTarget condition: the pod itself is at fault, not the node.
    """
    return {**status, "phase": "Failed", "reason": REASON, "message": verdict.message}


def _volume_limits(volumes: list[Any]) -> dict[str, Limit]:
    found = {}
    for volume in volumes:
        source = volume.get("emptyDir")
        if not source or source.get("medium") == "Memory":
            continue
        limit = _limit(source.get("sizeLimit"))
        if limit is not None and limit.size > 0:
            found[str(volume.get("name") or "")] = limit
    return found


def _pod_limit(pod: Pod) -> Limit | None:
    given = [
        text
        for container in (*pod.containers, *pod.init_containers)
        if (text := ((container.get("resources") or {}).get("limits") or {}).get(RESOURCE))
        is not None
    ]
    if not given:
        return None
    try:
        size = pod_limits(pod).get(RESOURCE)
    except ValueError:
        return None
    if size is None:
        return None
    written = [text for text in given if _limit(text) == Limit(size, str(text))]
    return Limit(size, str(written[0]) if written else spelled(int(size), binary=_binary(given)))


def _limit(text: object) -> Limit | None:
    if text is None:
        return None
    try:
        return Limit(parse(str(text)), str(text))
    except ValueError:
        return None


def _binary(texts: list[str]) -> bool:
    """Whether a sum is written in powers of 1024: as the first amount that is not zero is."""
    nonzero = [str(text) for text in texts if (limit := _limit(text)) and limit.size]
    return bool(nonzero) and nonzero[0].endswith("i")
