"""The resources that a container status reports: what the runtime enforces, over the spec's.

Pure. A value that equals the spec's is shown in the spec's own format ("1Gi", not bytes).
"""

from __future__ import annotations

from kubeletpy.base.api import types as api
from kubeletpy.base.api.quantity import milli_value, spelled, value
from kubeletpy.pods.runtime_status import ContainerStatus

MIN_MILLI_LIMIT = 10
"""Millicores below which the kernel does not distinguish cpu limits."""
MIN_MILLI_REQUEST = 2
"""The minimum of cpu.shares is 2."""


def _milli_limit(record: ContainerStatus) -> int | None:
    resources = record.resources
    if resources is None or resources.cpu_quota is None or resources.cpu_quota <= 0:
        return None
    return resources.cpu_quota * 1000 // resources.cpu_period if resources.cpu_period else None


def _milli_request(record: ContainerStatus) -> int | None:
    shares = record.resources.cpu_shares if record.resources is not None else None
    return -(-shares * 1000 // 1024) if shares and shares >= 2 else None


def _cpu(asked: str, actual: int | None, least: int) -> str:
    if actual is None:
        return asked
    wanted = milli_value(asked)
    # shares round: 100m is 102 shares is 99.6m; the same setting, so the same text
    if abs(wanted - actual) <= 1 or (wanted <= least and actual <= least):
        return asked
    return f"{actual}m" if actual % 1000 else str(actual // 1000)


def reported_resources(
    container: api.Container,
    record: ContainerStatus,
    old: api.ContainerStatus | None,
    container_id: str,
    actuated: api.ResourceRequirements | None = None,
) -> api.ResourceRequirements:
    """``status.resources`` of one container; a copy, never the spec's own object.

    ``actuated`` is what the container was last given: no runtime reports a memory request, and some
    report nothing. Unreported values stay as previously shown for the same container.
    """
    spec = container.get("resources") or {}
    if not record.running:
        return {**spec}
    if record.resources is None and actuated is None:
        same = old is not None and old.get("containerID") == container_id
        return (same and old is not None and old.get("resources")) or {**spec}
    limits = dict(spec.get("limits") or {})
    requests = dict(spec.get("requests") or {})
    given_limits = (actuated or {}).get("limits") or {}
    given_requests = (actuated or {}).get("requests") or {}
    if record.resources is None:
        limits |= {name: given_limits[name] for name in limits if name in given_limits}
        requests |= {name: given_requests[name] for name in requests if name in given_requests}
    else:
        if "cpu" in limits:
            limits["cpu"] = _cpu(limits["cpu"], _milli_limit(record), MIN_MILLI_LIMIT)
        if "cpu" in requests:
            requests["cpu"] = _cpu(requests["cpu"], _milli_request(record), MIN_MILLI_REQUEST)
        memory = record.resources.memory_limit_bytes
        if "memory" in limits and memory and memory != value(limits["memory"]):
            limits["memory"] = _in_words(memory, given_limits.get("memory"))
        if "memory" in requests and "memory" in given_requests:
            requests["memory"] = given_requests["memory"]
    reported: api.ResourceRequirements = {**spec}
    if limits:
        reported["limits"] = limits
    if requests:
        reported["requests"] = requests
    return reported


def _in_words(amount: int, given: str | None) -> str:
    if given is not None and value(given) == amount:
        return given
    return spelled(amount, binary=True)
