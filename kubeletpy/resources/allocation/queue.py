"""The order in which waiting resizes are tried: those that free resources or cost nothing first.

Pure. Source: docs/reference/behaviour.md, c10.
"""

from __future__ import annotations

from collections.abc import Iterable

from kubeletpy.base.structs import Struct
from kubeletpy.pods.pod import Pod
from kubeletpy.pods.resources import COMPUTE, QoSClass, pod_requests, qos_class


class WaitingResize(Struct, frozen=True):
    """A resize that is not allocated."""

    desired: Pod
    allocated: Pod
    since: str = ""
    """Since when it is pending, as an API timestamp; empty: it has not been tried yet."""


def in_order(waiting: Iterable[WaitingResize]) -> list[WaitingResize]:
    """Resizes that don't request more first, then by priority, Guaranteed, and waiting time.

    Equals stay in order of arrival. Raises ValueError for an invalid quantity.
    """
    return sorted(waiting, key=_rank)


def requests_more(desired: Pod, allocated: Pod) -> bool:
    """Whether a resize takes more of the node's cpu or memory than the pod has.

    Raises ValueError for an invalid quantity.
    """
    new, old = pod_requests(desired), pod_requests(allocated)
    return any(new.get(name, 0) > old.get(name, 0) for name in COMPUTE)


def _rank(one: WaitingResize) -> tuple[bool, int, bool, bool, str]:
    pod = one.desired
    return (
        requests_more(pod, one.allocated),
        -pod.priority,
        qos_class(pod) is not QoSClass.GUARANTEED,
        not one.since,
        one.since,
    )
