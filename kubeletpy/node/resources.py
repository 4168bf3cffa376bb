"""Capacity and allocatable of a node. Pure.

Source: docs/reference/behaviour.md, k4; docs/reference/behaviour-resources.md, ri.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import ROUND_FLOOR, Decimal

from kubeletpy.base.api.quantity import Format, parse, spelled, value, written
from kubeletpy.node.facts import MachineFacts
from kubeletpy.node.options import NodeOptions
from kubeletpy.pods.granted import NO_DEVICES, DeviceCounts

STORAGE = "ephemeral-storage"
HUGE_PAGES = "hugepages-"
_COMMON_PAGES = (1 << 30, 2 << 20)
"""Page sizes that every node reports."""


def capacity(facts: MachineFacts, options: NodeOptions) -> dict[str, str]:
    """The machine's resources, as quantities."""
    pods = options.max_pods
    if options.pods_per_core > 0:
        pods = min(pods, options.pods_per_core * facts.cpu_count)
    return {
        "cpu": str(facts.cpu_count),
        "memory": _binary(facts.memory_bytes),
        **(
            {STORAGE: spelled(facts.root_storage_bytes, binary=False)}
            if options.local_storage
            else {}
        ),
        "pods": str(pods),
        **{f"{HUGE_PAGES}{_binary(size)}": "0" for size in _COMMON_PAGES},
        **{
            f"{HUGE_PAGES}{_binary(size)}": _binary(total)
            for size, total in facts.huge_pages.items()
        },
    }


def with_foreign(
    total: Mapping[str, str], shown: Mapping[str, str], devices: DeviceCounts = NO_DEVICES
) -> dict[str, str]:
    """Capacity including devices and what others declare for the node (vendor.example/gpu).

    Args:
        total: what the machine has.
        shown: capacity in the API, where extended resources can be set by hand.
    """
    foreign = {name: text for name, text in shown.items() if "/" in name}
    return {**foreign, **{name: str(n) for name, n in devices.capacity.items()}, **total}


def _binary(amount: int) -> str:
    """Bytes in the API's own format: any other would seem to change with every write."""
    return spelled(amount, binary=True)


def hard_threshold(eviction_hard: Mapping[str, str], signal: str, size: int) -> int:
    """Bytes that a signal's hard threshold keeps free out of a total; 0: it has none."""
    text = eviction_hard.get(signal)
    return 0 if text is None else _threshold(text, size)


def _threshold(text: str, total: int) -> int:
    if text.endswith("%"):
        share = Decimal(text[:-1]) / 100
        return int((share * total).to_integral_value(ROUND_FLOOR))
    return value(text)


def allocatable(
    total: Mapping[str, str], options: NodeOptions, devices: DeviceCounts = NO_DEVICES
) -> dict[str, str]:
    """Capacity minus reservations, hard eviction thresholds and unhealthy devices."""
    left = {**total, **{name: str(n) for name, n in devices.allocatable.items()}}
    left["cpu"] = written(
        max(parse(total["cpu"]) - _reserved_cpu(options), Decimal(0)), Format.DECIMAL
    )
    for resource, signal in (("memory", "memory.available"), (STORAGE, "nodefs.available")):
        if resource not in total:
            continue
        size = value(total[resource])
        taken = _reserved(options, resource)
        taken += hard_threshold(options.eviction_hard, signal, size)
        if resource == "memory":  # what is reserved as huge pages is not available as other memory
            taken += sum(value(text) for name, text in total.items() if name.startswith(HUGE_PAGES))
        form = Format.DECIMAL if resource == STORAGE else Format.BINARY
        left[resource] = written(max(size - taken, Decimal(0)), form)
    return left


def unreserved(total: Mapping[str, str], options: NodeOptions) -> dict[str, Decimal]:
    """CPU (cores) and memory (bytes) without reservations, thresholds not subtracted."""
    reserved = {"cpu": _reserved_cpu(options), "memory": _reserved(options, "memory")}
    return {name: max(parse(total[name]) - reserved[name], Decimal(0)) for name in reserved}


def _reserved_cpu(options: NodeOptions) -> Decimal:
    return Decimal(options.reserved_cpus) if options.reserved_cpus else _reserved(options, "cpu")


def _reserved(options: NodeOptions, resource: str) -> Decimal:
    return sum(
        (
            parse(reserved.get(resource, "0"))
            for reserved in (options.kube_reserved, options.system_reserved)
        ),
        Decimal(0),
    )
