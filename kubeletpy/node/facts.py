"""Facts about this machine and its owner's configuration, as a Node object shows them. Pure.

A fact that could not be read is empty or 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from decimal import ROUND_FLOOR, Decimal
from typing import overload

from kubeletpy.base.api import types as api
from kubeletpy.base.api.quantity import Format, parse, spelled, value, written
from kubeletpy.base.kubernetes_version import version_facts
from kubeletpy.base.structs import Struct, field
from kubeletpy.config.flags import NodeFlags, node_addresses
from kubeletpy.config.rules import parse_cpuset
from kubeletpy.config.settings import KubeletSettings, Taint
from kubeletpy.pods.pod import NO_DEVICES, DeviceCounts, canonical_address, family
from kubeletpy.resources.admission.user_namespace import UserNamespace


class MachineFacts(Struct, frozen=True):
    """One machine at one boot."""

    hostname: str
    architecture: str
    kernel_version: str
    os_image: str
    machine_id: str
    system_uuid: str
    boot_id: str
    cpu_count: int
    memory_bytes: int
    swap_bytes: int
    root_storage_bytes: int
    """Size of the file system that holds the agent's root directory."""
    huge_pages: Mapping[int, int] = field(default_factory=dict)
    """Page size -> bytes reserved in pages of that size."""
    in_user_namespace: bool = False
    """Whether the agent runs in a user namespace other than the initial one."""
    rights: UserNamespace | None = None
    """The rights of that namespace; None: the initial one, or they are unknown."""


class NodeOptions(Struct, frozen=True):
    """How the Node object is created and maintained."""

    name: str
    register: bool = True
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: Sequence[api.Taint] = ()
    node_ips: Sequence[str] = ()
    """Set by the owner (--node-ip); empty: detected. May be 0.0.0.0 or ::, for any."""
    max_pods: int = 110
    pods_per_core: int = 0
    kube_reserved: Mapping[str, str] = field(default_factory=dict)
    system_reserved: Mapping[str, str] = field(default_factory=dict)
    eviction_hard: Mapping[str, str] = field(default_factory=dict)
    reserved_cpus: int = 0
    """Number of CPUs in reservedSystemCPUs; replaces the cpu reservations when not 0."""
    local_storage: bool = True
    """localStorageCapacityIsolation: whether the node offers ephemeral-storage."""
    provider_id: str = ""
    external_cloud_provider: bool = False
    controller_attach_detach: bool = True
    kubelet_port: int = 10250
    """0: no server answers, and no port is published."""
    lease_duration_s: int = 40
    status_update_s: float = 10.0
    status_report_s: float = 300.0
    max_images: int = 50
    declared_features: Sequence[str] = ()
    """The features that the node reports in its status."""
    report_user_namespace: bool = False
    """Whether the status shows if the agent runs in a user namespace."""
    version: str = ""

    @classmethod
    def from_settings(
        cls,
        settings: KubeletSettings,
        flags: NodeFlags,
        *,
        hostname: str = "",
        port: int = 0,
        declared_features: Sequence[str] = (),
    ) -> NodeOptions:
        """Read the settings; ``port`` is the one that the agent's server uses."""
        return cls(
            name=node_name(flags, hostname),
            register=settings.register_node,
            labels=dict(flags.node_labels),
            node_ips=[str(each) for each in node_addresses(flags.node_ip)],
            taints=[_taint(taint) for taint in settings.register_with_taints],
            max_pods=settings.max_pods,
            pods_per_core=settings.pods_per_core,
            kube_reserved=settings.kube_reserved,
            system_reserved=settings.system_reserved,
            eviction_hard=settings.eviction_hard,
            reserved_cpus=reserved_cpus(settings),
            local_storage=settings.local_storage_capacity_isolation,
            provider_id=settings.provider_id,
            external_cloud_provider=flags.cloud_provider == "external",
            controller_attach_detach=settings.enable_controller_attach_detach,
            kubelet_port=port if settings.enable_server else 0,
            lease_duration_s=settings.node_lease_duration_seconds,
            status_update_s=settings.node_status_update_frequency,
            status_report_s=settings.node_status_report_frequency,
            max_images=settings.node_status_max_images,
            declared_features=declared_features,
            report_user_namespace=_reports_user_namespace(settings),
            version=settings.feature_gates.version.kubelet,
        )


def _reports_user_namespace(settings: KubeletSettings) -> bool:
    """Both the gate and a version that has the field (docs/reference/behaviour.md, o1)."""
    gates = settings.feature_gates
    return gates.enabled("KubeletInUserNamespace") and (
        version_facts(gates.version).reports_user_namespace
    )


def reserved_cpus(settings: KubeletSettings) -> int:
    """Number of CPUs in reservedSystemCPUs."""
    return len(parse_cpuset(settings.reserved_system_cpus) or ())


def node_name(flags: NodeFlags, hostname: str) -> str:
    """The node's name: --hostname-override, else the host name; lower case, trimmed."""
    return (flags.hostname_override or hostname).strip().lower()


def _taint(taint: Taint) -> api.Taint:
    entry: api.Taint = {"key": taint.key, "effect": taint.effect}
    if taint.value:
        entry["value"] = taint.value
    return entry


# Capacity and allocatable. Source: docs/reference/behaviour.md, k4;
# docs/reference/behaviour-resources.md, ri.

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
    total: Mapping[str, str], reported: Mapping[str, str], devices: DeviceCounts = NO_DEVICES
) -> dict[str, str]:
    """Capacity including devices and what others declare for the node (vendor.example/gpu).

    Args:
        total: what the machine has.
        shown: capacity in the API, where extended resources can be set by hand.
    """
    foreign = {name: text for name, text in reported.items() if "/" in name}
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


def host_addresses(reported: Iterable[api.NodeAddress]) -> tuple[str, ...]:
    """The addresses that the pods of a node report as their host's: at most one per family.

    InternalIPs come before ExternalIPs; the first one decides which family is the primary one.
    Source: docs/reference/behaviour.md, e2.
    """
    listed = list(reported)
    first: dict[int, str] = {}
    for kind in ("InternalIP", "ExternalIP"):
        for each in listed:
            address = canonical_address(each.get("address") or "")
            if each.get("type") == kind and address:
                first.setdefault(family(address), address)
    return tuple(first.values())


class NodeAddresses(Sequence[str]):
    """A node's addresses, updated in place when they change: one list that all readers share."""

    def __init__(self, addresses: Iterable[str]) -> None:
        self._now = tuple(addresses)

    def replace(self, addresses: Iterable[str]) -> bool:
        """Replace the addresses; returns whether they changed."""
        before, self._now = self._now, tuple(addresses)
        return before != self._now

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[str, ...]: ...
    def __getitem__(self, index: int | slice) -> str | tuple[str, ...]:
        return self._now[index]

    def __len__(self) -> int:
        return len(self._now)
