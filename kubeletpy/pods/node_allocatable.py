"""CPU, memory and huge pages that a pod's resource claims add to what its spec requests.

The scheduler records them in ``status.nodeAllocatableResourceClaimStatuses``, for each claim:
``mapping`` (the claim's devices), ``overhead`` per pod and per container, and the containers that
refer to the claim. Pure; must never change the QoS class. Feature gate DRANodeAllocatableResources:
while it is off, :func:`without_claims` removes the field from pods as they arrive. Source:
docs/reference/behaviour.md, k5; KEP-5517.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from typing import Any, TypeVar, cast

from kubeletpy.base.api import types as api
from kubeletpy.base.api.quantity import Quantity, parse, whole
from kubeletpy.pods.pod import Pod

GATE = "DRANodeAllocatableResources"
FIELD = "nodeAllocatableResourceClaimStatuses"
_N = TypeVar("_N", Decimal, Quantity)
_Claim = Mapping[str, Any]
_NO_CLAIMS: tuple[_Claim, ...] = ()


def without_claims(obj: api.Pod) -> api.Pod:
    """The object without the field; itself if it has none. It need not be a valid pod."""
    status = obj.get("status") if isinstance(obj, Mapping) else None
    if not isinstance(status, Mapping) or FIELD not in status:
        return obj
    rest = {name: value for name, value in status.items() if name != FIELD}
    return cast("api.Pod", {**obj, "status": rest})


def claims(pod: Pod) -> tuple[_Claim, ...] | list[_Claim]:
    """The entries of the status, one for each claim that adds something."""
    found: Any = pod.status.get(FIELD)
    return found or _NO_CLAIMS


def raised_by_claims(pod: Pod, name: str) -> bool:
    """Whether a container refers to a claim that adds something."""
    return any(name in (claim.get("containers") or ()) for claim in claims(pod))


def added_to_pod(pod: Pod, read: Callable[[str], _N]) -> dict[str, _N]:
    """Sums what all claims add to the pod: mappings, overhead per pod and per container.

    Raises ValueError for what is not a quantity.
    """
    total: dict[str, _N] = {}
    for claim in claims(pod):
        for name, text in _once(claim):
            _add(total, name, read(text))
        for name, text in _each(claim):
            for _ in claim.get("containers") or ():
                _add(total, name, read(text))
    return total


def added_to_container(pod: Pod, name: str) -> dict[str, Decimal]:
    """Sums what a container's claims add to its limits. Raises ValueError.

    The mapping and the overhead per pod count in full for each of the containers that share the
    claim; the limit of the pod holds them together.
    """
    total: dict[str, Decimal] = {}
    for claim in claims(pod):
        if name in (claim.get("containers") or ()):
            for resource, text in (*_once(claim), *_each(claim)):
                _add(total, resource, parse(text))
    return total


def memory_share(pod: Pod, name: str) -> int:
    """Bytes that count as requested by a container for its OOM score. Raises ValueError.

    The containers of a claim share its mapping and its overhead per pod equally.
    """
    total = 0
    for claim in claims(pod):
        containers = claim.get("containers") or ()
        if name in containers:
            shared = [whole(parse(text)) for each, text in _once(claim) if each == "memory"]
            own = [whole(parse(text)) for each, text in _each(claim) if each == "memory"]
            total += sum(amount // len(containers) for amount in shared) + sum(own)
    return total


def _once(claim: _Claim) -> Iterator[tuple[str, str]]:
    """(resource, quantity) of what a claim adds once."""
    for entry in claim.get("mapping") or ():
        if (quantity := entry.get("quantity")) is not None:
            yield entry["name"], quantity
    for entry in claim.get("overhead") or ():
        if (quantity := entry.get("perPod")) is not None:
            yield entry["name"], quantity


def _each(claim: _Claim) -> Iterator[tuple[str, str]]:
    """(resource, quantity) of what a claim adds for each of its containers."""
    for entry in claim.get("overhead") or ():
        if (quantity := entry.get("perContainer")) is not None:
            yield entry["name"], quantity


def _add(total: dict[str, _N], name: str, amount: _N) -> None:
    total[name] = total[name] + amount if name in total else amount
