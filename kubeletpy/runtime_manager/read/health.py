"""Reads the runtime's status of itself, for node conditions and the sync loop. Pure.

Source: docs/reference/behaviour.md, o4; CRI RuntimeCondition. Must never raise for an answer.
"""

from __future__ import annotations

from collections.abc import Iterable

from kubeletpy.base.text import scrub
from kubeletpy.pods.runtime_status import RuntimeHealth
from kubeletpy.remote.generated import api_pb2 as cri

RUNTIME_READY = "RuntimeReady"
NETWORK_READY = "NetworkReady"


def health_from_conditions(conditions: Iterable[cri.RuntimeCondition]) -> RuntimeHealth:
    """Read a CRI status; a condition that is missing is not met."""
    by_type = {condition.type: condition for condition in conditions}
    runtime, network = by_type.get(RUNTIME_READY), by_type.get(NETWORK_READY)
    return RuntimeHealth(
        runtime_ready=runtime is not None and runtime.status,
        network_ready=network is not None and network.status,
        message=_message(RUNTIME_READY, runtime),
        network_message=_message(NETWORK_READY, network),
    )


def _message(name: str, condition: cri.RuntimeCondition | None) -> str:
    if condition is None:
        return f"runtime does not report {name}"
    if condition.status:
        return ""
    # the API limits the size of a Node, and shows this in its Ready condition
    reason, message = scrub(condition.reason), scrub(condition.message)
    return f"{name}=false reason:{reason} message:{message}"
