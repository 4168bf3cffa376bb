"""The steps of a resize of a pod as a whole, and when memory must not be taken away.

Pure. Raised limits are raised for the pod before its containers, and lowered ones are lowered after
them: a pod is never smaller than its containers. Source: docs/reference/behaviour.md, c10.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal

from kubeletpy.base.api.quantity import whole
from kubeletpy.base.structs import Struct, replace
from kubeletpy.pods.pod import UNLIMITED, Pod, PodLimits
from kubeletpy.pods.resources import MIN_SHARES, amounts, cpu_quota, cpu_shares
from kubeletpy.remote.generated import api_pb2 as cri
from kubeletpy.runtime_manager.config.resources import overhead_resources
from kubeletpy.runtime_manager.config.settings import RuntimeSettings
from kubeletpy.runtime_manager.plan.resize import ContainerUpdate, ResizableResource

_ZERO = Decimal(0)
_ENDLESS = 1 << 63


class PodSteps(Struct, frozen=True):
    """The writes to the pod's cgroup for one resource, in order."""

    before: tuple[PodLimits, ...] = ()
    """Before the containers are updated: limits grow before requests."""
    after: tuple[PodLimits, ...] = ()
    """After them: requests shrink before limits."""


def pod_steps(resource: ResizableResource, current: PodLimits, desired: PodLimits) -> PodSteps:
    """How a pod's limits get from what they are to what they should be.

    Limits that are not requested stay as they are: a pod's limits can be changed, not removed.
    """
    if resource is ResizableResource.MEMORY:
        return _ordered([(PodLimits(memory=desired.memory), current.memory, desired.memory)])
    quota = PodLimits(quota_us=desired.quota_us, period_us=desired.period_us)
    return _ordered(
        [
            (quota, current.quota_us, desired.quota_us),
            (PodLimits(shares=desired.shares), current.shares, desired.shares),
        ]
    )


def applied(current: PodLimits, step: PodLimits) -> PodLimits:
    """The limits after a step."""
    changed = {name: getattr(step, name) for name in PodLimits.__struct_fields__}
    return replace(current, **{name: new for name, new in changed.items() if new is not None})


def difference(current: PodLimits, desired: PodLimits) -> str:
    """How the limits of a pod's cgroup differ from those it should have; empty: not at all."""
    pairs = (
        ("cpu shares", current.shares, desired.shares),
        ("cpu quota", current.quota_us, desired.quota_us),
        ("memory limit", current.memory, desired.memory),
    )
    parts = [
        f"{name} {_word(old)} -> {_word(new)}"
        for name, old, new in pairs
        if new is not None and _size(old) != _size(new)
    ]
    return f"the pod's cgroup: {', '.join(parts)}" if parts else ""


def sandbox_resources(
    pod: Pod, limits: PodLimits, settings: RuntimeSettings
) -> tuple[cri.LinuxContainerResources, cri.LinuxContainerResources]:
    """(overhead, resources without it) as UpdatePodSandboxResources takes them.

    0 stands for no limit. Raises ValueError.
    """
    extra = amounts(pod.spec.get("overhead"))
    cpu, memory = whole(extra.get("cpu", _ZERO) * 1000), whole(extra.get("memory", _ZERO))
    resources = cri.LinuxContainerResources(cpu_period=limits.period_us or 0)
    if limits.shares is not None:
        resources.cpu_shares = limits.shares
        if cpu:
            resources.cpu_shares = max(limits.shares - cpu_shares(cpu), MIN_SHARES)
    if (quota := limits.quota_us or UNLIMITED) != UNLIMITED:
        resources.cpu_quota = max(quota - cpu_quota(cpu, limits.period_us or 0), 0)
    if (bound := limits.memory or UNLIMITED) != UNLIMITED:
        resources.memory_limit_in_bytes = max(bound - memory, 0)
    return overhead_resources(pod, settings), resources


def shrinking_pod_memory(current: PodLimits, desired: PodLimits) -> int:
    """The pod's new memory limit in bytes if it is lowered or added, else 0."""
    if desired.memory is None or _size(desired.memory) >= _size(current.memory):
        return 0
    return desired.memory


def shrinking_containers(updates: Iterable[ContainerUpdate]) -> Mapping[str, ContainerUpdate]:
    """Updates that lower or add a memory limit, by container name."""
    return {update.name: update for update in updates if update.new_memory_limit}


def refusal(
    pod_limit: int,
    pod_usage: int,
    limits: Mapping[str, ContainerUpdate],
    usages: Mapping[str, int | None],
) -> str:
    """Why memory limits can't be lowered: less than what is in use now. Empty: they can.

    ``pod_limit`` 0: the pod's limit is not lowered. ``usages``: bytes by container name, None if
    the runtime does not report it.
    """
    problems = list(_refusals(pod_limit, pod_usage, limits, usages))
    if not problems:
        return ""
    text = f"[{', '.join(problems)}]" if problems[1:] else "".join(problems)
    return f"cannot decrease memory limits: {text}"


def _refusals(
    pod_limit: int,
    pod_usage: int,
    limits: Mapping[str, ContainerUpdate],
    usages: Mapping[str, int | None],
) -> Iterator[str]:
    if pod_limit and pod_usage >= pod_limit:
        yield (
            f"attempting to set pod memory limit ({pod_limit}) below current usage ({pod_usage})"
        )
    for name, update in limits.items():
        usage, limit = usages.get(name), update.new_memory_limit
        if usage is None:
            yield f'missing container "{name}" memory usage'
        elif usage >= limit:
            yield (
                f'attempting to set container "{name}" memory limit ({limit}) below current '
                f"usage ({usage})"
            )


def _ordered(changes: list[tuple[PodLimits, int | None, int | None]]) -> PodSteps:
    desired = [(step, _size(old), _size(new)) for step, old, new in changes if new is not None]
    return PodSteps(
        before=tuple(step for step, old, new in desired if new > old),
        after=tuple(step for step, old, new in reversed(desired) if new < old),
    )


def _size(limit: int | None) -> int:
    """For comparisons: no limit is more than any."""
    return _ENDLESS if limit is None or limit == UNLIMITED else limit


def _word(limit: int | None) -> str:
    return "none" if limit is None or limit == UNLIMITED else str(limit)
