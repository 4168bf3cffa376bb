"""In what order resizes that wait are tried: what frees or costs nothing first.

Pure. Source: docs/reference/behaviour.md, c10.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from kubeletpy.pods.pod import Pod
from kubeletpy.pods.qos import QoSClass, qos_class
from kubeletpy.pods.resources import COMPUTE, pod_requests


@dataclass(frozen=True, slots=True)
class Waiting:
    """A resize that is not allocated."""

    desired: Pod
    allocated: Pod
    since: str = ""
    """When it began to be pending, as the API writes times; empty: it has not been tried yet."""


def in_order(waiting: Iterable[Waiting]) -> list[Waiting]:
    """Those that do not ask for more, then by priority, Guaranteed, and how long they wait.

    Of equals the one that came first. Raises ValueError for what is not a quantity.
    """
    return sorted(waiting, key=_rank)


def asks_for_more(desired: Pod, allocated: Pod) -> bool:
    """Whether a resize takes more cpu or memory of the node than the pod has.

    Raises ValueError for what is not a quantity.
    """
    new, old = pod_requests(desired), pod_requests(allocated)
    return any(new.get(name, 0) > old.get(name, 0) for name in COMPUTE)


def _rank(one: Waiting) -> tuple[bool, int, bool, bool, str]:
    pod = one.desired
    return (
        asks_for_more(pod, one.allocated),
        -pod.priority,
        qos_class(pod) is not QoSClass.GUARANTEED,
        not one.since,
        one.since,
    )
