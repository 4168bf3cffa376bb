"""Whether a pod uses more local storage than its spec allows. Pure.

Source: docs/reference/behaviour.md, p5; docs/reference/behaviour-resources.md, re;
docs/reference/events.csv: Evicted; docs/reference/reasons.csv: Evicted. Each limit covers something
different: an emptyDir's ``sizeLimit`` that volume, a container's ``ephemeral-storage`` its logs
and writable layer, their sum everything that the pod has on disk.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal
from typing import Any

from kubeletpy.base.api import types as api
from kubeletpy.base.api.quantity import parse_quantity
from kubeletpy.base.structs import Struct, field
from kubeletpy.node.stats.disk_plan import PodStorage
from kubeletpy.pods.pod import Pod, is_sidecar
from kubeletpy.pods.resources import pod_quantities

RESOURCE = "ephemeral-storage"
REASON = "Evicted"
GRACE_S = 1
"""Seconds that containers of an evicted pod have to end."""
CONTAINER_SIGNAL = "ephemeralcontainerfs.limit"
POD_SIGNAL = "ephemeralpodfs.limit"
VOLUME_SIGNAL = "emptydirfs.limit"
WHOLE = "all of the pod"
SHOWN = 5
"""How many of the pods that may be evicted next are kept."""
AT_ONCE = 4
"""How many pods are ended at a time: each has to end in time, whatever the others do."""


class Limit(Struct, frozen=True):
    """Bytes, and how they are written."""

    size: Decimal
    text: str


class LocalStorageLimits(Struct, frozen=True):
    """The limits of a pod's local storage; at least one is set.

    Attributes:
        volumes, containers: by name.
        pod: for all of it together.
    """

    volumes: Mapping[str, Limit] = field(default_factory=dict)
    containers: Mapping[str, Limit] = field(default_factory=dict)
    pod: Limit | None = None

    @property
    def of_layers(self) -> bool:
        """Whether writable layers count for any of them."""
        return self.pod is not None or bool(self.containers)


class Share(Struct, frozen=True):
    """The use of one limit, in bytes. ``of``: what it limits, such as ``container main``."""

    of: str
    used: int
    limit: int


class LocalStorageEviction(Struct, frozen=True):
    """Why a pod is evicted: the label of kubelet_evictions, and the message of event and status."""

    signal: str
    message: str
    share: Share


class Offender(Struct, frozen=True):
    """A pod that exceeds a limit of its own, and which."""

    uid: str
    verdict: LocalStorageEviction


class LimitPlace(Struct, frozen=True):
    """A pod, and the limit that it is nearest to."""

    namespace: str
    name: str
    uid: str
    share: Share


class LimitEviction(Struct, frozen=True):
    """A pod that was evicted for a limit of its own, with the numbers of that moment.

    Attributes:
        at: Unix seconds.
        ranking: other pods with limits, those nearest to one first; these may be next.
    """

    at: float
    pod: LimitPlace
    ranking: tuple[LimitPlace, ...]


def limits_of(pod: Pod) -> LocalStorageLimits | None:
    """The limits of a pod's local storage; None: it has none.

    emptyDirs in memory are left out: their tmpfs has that size. A limit that can't be read is none.
    """
    volumes = _volume_limits(pod.spec.get("volumes") or [])
    containers = {}
    for container in (*pod.containers, *filter(is_sidecar, pod.init_containers)):
        limit = _limit(((container.get("resources") or {}).get("limits") or {}).get(RESOURCE))
        if limit is not None and limit.size:
            containers[container["name"]] = limit
    total = _pod_limit(pod)
    if not volumes and not containers and total is None:
        return None
    return LocalStorageLimits(volumes, containers, total)


def judge(limits: LocalStorageLimits, use: PodStorage) -> LocalStorageEviction | None:
    """The first limit that is exceeded: volumes first, then the pod, then its containers."""
    found = _if_exceeded(limits, use)
    return next((each for limit, each in found if each.share.used > limit.size), None)


def nearest(limits: LocalStorageLimits, use: PodStorage) -> Share:
    """The limit that is used up the most."""
    return max((each.share for _, each in _if_exceeded(limits, use)), key=_part)


def next_to_go(places: Iterable[LimitPlace]) -> tuple[LimitPlace, ...]:
    """The first few pods, those nearest to a limit of their own first."""
    ordered = sorted(places, key=lambda place: (-_part(place.share), place.uid))
    return tuple(ordered[:SHOWN])


def _if_exceeded(
    limits: LocalStorageLimits, use: PodStorage
) -> Iterator[tuple[Limit, LocalStorageEviction]]:
    """Each limit with the eviction that exceeding it means, in the order in which they count."""
    for name, limit in limits.volumes.items():
        share = Share(f"emptyDir {name}", use.volumes.get(name, 0), int(limit.size))
        message = f'Usage of EmptyDir volume "{name}" exceeds the limit "{limit.text}". '
        yield limit, LocalStorageEviction(VOLUME_SIGNAL, message, share)
    if limits.pod is not None:
        share = Share(WHOLE, use.total, int(limits.pod.size))
        message = (
            "Pod ephemeral local storage usage exceeds the total limit of containers "
            f"{limits.pod.text}. "
        )
        yield limits.pod, LocalStorageEviction(POD_SIGNAL, message, share)
    for name, limit in limits.containers.items():
        share = Share(f"container {name}", use.containers.get(name, 0), int(limit.size))
        message = f'Container {name} exceeded its local ephemeral storage limit "{limit.text}". '
        yield limit, LocalStorageEviction(CONTAINER_SIGNAL, message, share)


def _part(share: Share) -> float:
    return share.used / max(1, share.limit)


def evicted_status(status: api.PodStatus, verdict: LocalStorageEviction) -> api.PodStatus:
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
    try:
        limit = pod_quantities(pod, "limits").get(RESOURCE)
    except ValueError:
        return None
    return None if limit is None else Limit(limit.amount, str(limit))


def _limit(text: object) -> Limit | None:
    """A limit that is not given is as none as one that can't be read."""
    try:
        limit = parse_quantity(str(text))
    except ValueError:
        return None
    return Limit(limit.amount, str(limit))
