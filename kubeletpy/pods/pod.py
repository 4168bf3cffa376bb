"""A pod: a read-only view of the API object, and the small values that components share about it.

First the view, then the addresses and names of a pod, changed copies of its spec and status, its
mounts, grants and limits, and the matching of node selectors. Pure; never changes an object, which
caches and watches share.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from functools import cached_property
from typing import Any

from kubeletpy.base.api import types as api
from kubeletpy.base.api.times import format_time
from kubeletpy.base.structs import Hidden, HidesFields, Struct, field
from kubeletpy.config.rules import host_address

CONFIG_SOURCE = "kubernetes.io/config.source"
CONFIG_SEEN = "kubernetes.io/config.seen"
CONFIG_HASH = "kubernetes.io/config.hash"
CONFIG_MIRROR = "kubernetes.io/config.mirror"

MAX_GRACE_S = 2**31 - 1
"""Seconds: 68 years. The API accepts any 64-bit number as a grace period, which would overflow a
runtime's nanoseconds and the deadline of a call."""

SOURCE_API = "api"
SOURCE_FILE = "file"
SOURCE_HTTP = "http"

TERMINAL_PHASES = ("Succeeded", "Failed")
"""Phases that a pod never leaves."""


class MalformedPod(ValueError):
    """A pod object that lacks a field every pod has; the message names the field."""


class ContainerKind(StrEnum):
    """A pod spec's container lists; values are the kubelet's ``container_type`` metric label."""

    REGULAR = "container"
    INIT = "init_container"
    EPHEMERAL = "ephemeral_container"


_LISTS = {
    ContainerKind.REGULAR: "containers",
    ContainerKind.INIT: "initContainers",
    ContainerKind.EPHEMERAL: "ephemeralContainers",
}
"""The fields of a spec that list containers."""


class Pod:
    """A pod from the API, a manifest file or a manifest URL.

    Two views are equal when their objects are equal.
    """

    def __init__(self, obj: api.Pod) -> None:
        """Wrap a decoded object.

        Raises:
            MalformedPod: name, namespace, uid or the container list is missing or has the wrong
                type.
        """
        self.object = obj
        metadata: Mapping[str, Any] = _mapping(obj, "metadata")
        self.uid = _text(metadata, "uid")
        self.name = _text(metadata, "name")
        self.namespace = _text(metadata, "namespace")
        spec = _mapping(obj, "spec")
        for list_name in _LISTS.values():
            _check_containers(spec.get(list_name), list_name)
        if not spec.get("containers"):
            raise MalformedPod(f"pod {self.namespace}/{self.name}: spec.containers is empty")

    @property
    def metadata(self) -> api.ObjectMeta:
        return self.object["metadata"]

    @property
    def spec(self) -> api.PodSpec:
        return self.object["spec"]

    @property
    def status(self) -> api.PodStatus:
        """The status that the API server had when it sent the object; empty when it had none."""
        return self.object.get("status") or {}

    @property
    def labels(self) -> Mapping[str, str]:
        """The pod's labels; empty when it has none."""
        return self.metadata.get("labels") or {}

    @cached_property
    def annotations(self) -> Mapping[str, str]:
        """The pod's annotations; empty when it has none."""
        return self.metadata.get("annotations") or {}

    @property
    def generation(self) -> int:
        """metadata.generation; 0 for static pods."""
        return self.metadata.get("generation") or 0

    @cached_property
    def full_name(self) -> str:
        """``{name}_{namespace}``: what links a static pod and its mirror."""
        return f"{self.name}_{self.namespace}"

    @property
    def key(self) -> str:
        """``{namespace}/{name}``, as messages name the pod."""
        return f"{self.namespace}/{self.name}"

    @property
    def description(self) -> str:
        """``{name}_{namespace}({uid})``, as pods are named in the kubelet's messages."""
        return f"{self.full_name}({self.uid})"

    @property
    def source(self) -> str:
        """Where the pod came from: api, file or http."""
        return self.annotations.get(CONFIG_SOURCE, SOURCE_API)

    @property
    def is_mirror(self) -> bool:
        """Whether this is the mirror of a static pod in the API."""
        return CONFIG_MIRROR in self.annotations

    @cached_property
    def is_static(self) -> bool:
        """Whether the pod comes from a manifest of this node, not from the API."""
        return self.source != SOURCE_API

    def is_reported_by(self, mirror: Pod) -> bool:
        """Whether a mirror is of this static pod's manifest, not of an earlier one of that name."""
        return mirror.annotations.get(CONFIG_MIRROR) == self.annotations.get(CONFIG_HASH, self.uid)

    @property
    def being_deleted(self) -> bool:
        """Whether deletion was requested."""
        return bool(self.metadata.get("deletionTimestamp"))

    @property
    def priority(self) -> int:
        """spec.priority; 0 when it has none."""
        return self.spec.get("priority") or 0

    @property
    def deletion_grace_period(self) -> int | None:
        """metadata.deletionGracePeriodSeconds, at most MAX_GRACE_S."""
        grace = self.metadata.get("deletionGracePeriodSeconds")
        return None if grace is None else min(grace, MAX_GRACE_S)

    @property
    def termination_grace_period(self) -> int:
        """spec.terminationGracePeriodSeconds, at most MAX_GRACE_S; 30 when it has none."""
        grace = self.spec.get("terminationGracePeriodSeconds")
        return 30 if grace is None else min(grace, MAX_GRACE_S)

    @property
    def restart_policy(self) -> str:
        """Always, OnFailure or Never."""
        return self.spec.get("restartPolicy") or "Always"

    @property
    def host_network(self) -> bool:
        """Whether the pod shares the node's network."""
        return bool(self.spec.get("hostNetwork"))

    @property
    def phase(self) -> str:
        """The API's phase; empty when the object has no status."""
        return self.status.get("phase") or ""

    @cached_property
    def is_terminal_in_api(self) -> bool:
        """Whether the API already shows Succeeded or Failed."""
        return self.phase in TERMINAL_PHASES

    @property
    def containers(self) -> list[api.Container]:
        """The regular containers, without init and ephemeral ones."""
        return self.spec["containers"]

    @property
    def init_containers(self) -> list[api.Container]:
        """Init containers in order, including sidecars."""
        return self.spec.get("initContainers") or []

    @property
    def ephemeral_containers(self) -> list[api.Container]:
        """Ephemeral containers; their common fields are those of a container."""
        return self.spec.get("ephemeralContainers") or []  # type: ignore[return-value]

    def all_containers(self) -> Iterator[tuple[ContainerKind, api.Container]]:
        """Every container with its kind: init, regular, ephemeral."""
        for container in self.init_containers:
            yield ContainerKind.INIT, container
        for container in self.containers:
            yield ContainerKind.REGULAR, container
        for container in self.ephemeral_containers:
            yield ContainerKind.EPHEMERAL, container

    def find_container(self, name: str) -> tuple[ContainerKind, api.Container] | None:
        """The container with that name and its kind."""
        for kind, container in self.all_containers():
            if container.get("name") == name:
                return kind, container
        return None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Pod) and (
            self.object is other.object or self.object == other.object
        )

    __hash__ = None  # type: ignore[assignment]  # a mutable-looking value: key by uid

    def __repr__(self) -> str:
        return f"Pod({self.description})"


def is_sidecar(container: api.Container) -> bool:
    """Whether an init container is a sidecar (KEP-753): restartPolicy Always on the container."""
    return container.get("restartPolicy") == "Always"


def field_path(kind: ContainerKind, name: str) -> str:
    """The fieldPath by which events refer to a container."""
    return f"spec.{_LISTS[kind]}{{{name}}}"


def _mapping(obj: Mapping[str, Any], field: str) -> Mapping[str, Any]:
    value = obj.get(field) if isinstance(obj, Mapping) else None
    if not isinstance(value, Mapping):
        raise MalformedPod(f"{field} is missing or not an object")
    return value


def _text(metadata: Mapping[str, Any], field: str) -> str:
    value = metadata.get(field)
    if not isinstance(value, str) or not value:
        raise MalformedPod(f"metadata.{field} is missing or not a string")
    return value


def _check_containers(value: object, field: str) -> None:
    if value is None:
        return
    if not isinstance(value, list):
        raise MalformedPod(f"spec.{field} is not a list")
    for index, container in enumerate(value):
        if not isinstance(container, Mapping) or not isinstance(container.get("name"), str):
            raise MalformedPod(f"spec.{field}[{index}] has no name")


# -- addresses (docs/reference/behaviour.md, e2) ---------------------------------------------


def pod_addresses(pod: Pod, sandbox_ips: Sequence[str], host_ips: Sequence[str]) -> list[str]:
    """The pod's addresses, the primary one first; the node's if the pod uses the host network.

    Args:
        sandbox_ips: what the runtime reports for the pod's sandbox; empty for the host network.
        host_ips: the node's addresses, the primary one first.
    """
    found = order_pod_ips(sandbox_ips, host_ips)
    if pod.host_network and host_ips:
        found = found or [host_ips[0]]
        families = {family(ip) for ip in found}
        found += [ip for ip in host_ips[1:2] if family(ip) not in families]
    return found


def order_pod_ips(ips: Iterable[str], host_ips: Sequence[str]) -> list[str]:
    """At most one address per family, the node's preferred family first; invalid ones dropped."""
    first: dict[int, str] = {}
    for ip in map(canonical_address, ips):
        if ip:
            first.setdefault(family(ip), ip)
    preferred = family(host_ips[0]) if host_ips else 4
    return [first[version] for version in sorted(first, key=lambda version: version != preferred)]


def canonical_address(text: str) -> str:
    """An IP address in its usual form; empty if the text is none that other machines can use."""
    try:
        return str(host_address(text))
    except ValueError:
        return ""


def family(address: str) -> int:
    """4 or 6, for an address in its usual form."""
    return 6 if ":" in address else 4


# -- hostname, domain and FQDN ---------------------------------------------------------------
#
# Source: docs/reference/names.csv: pod hostname, pod domain, FQDN as hostname; KEP-1797, KEP-4762
# (hostnameOverride).

LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_MAX_SUBDOMAIN = 253
MAX_HOSTNAME = 63
MAX_FQDN = 64


class HostnameError(ValueError):
    """A pod cannot be named as its spec requires; the message names the field."""


def pod_hostname(pod: Pod) -> str:
    """The short name: hostnameOverride, else hostname, else the pod's name, cut to 63 characters.

    Raises:
        HostnameError: a given name is not a DNS name.
    """
    override = pod.spec.get("hostnameOverride")
    if override is not None:
        if not SUBDOMAIN.fullmatch(override) or len(override) > _MAX_SUBDOMAIN:
            raise HostnameError(f'pod HostnameOverride "{override}" is not a valid DNS subdomain')
        return _cut(pod, override)
    hostname = pod.spec.get("hostname")
    if hostname and not LABEL.fullmatch(hostname):
        raise HostnameError(f'pod Hostname "{hostname}" is not a valid DNS label')
    return _cut(pod, hostname or pod.name)


def pod_domain(pod: Pod, cluster_domain: str) -> str:
    """``{subdomain}.{namespace}.svc.{cluster domain}``; empty without a subdomain, or with
    hostnameOverride.

    Raises:
        HostnameError: the subdomain is not a DNS label.
    """
    subdomain = pod.spec.get("subdomain")
    if not subdomain or pod.spec.get("hostnameOverride") is not None:
        return ""
    if not LABEL.fullmatch(subdomain):
        raise HostnameError(f'pod Subdomain "{subdomain}" is not a valid DNS label')
    return f"{subdomain}.{pod.namespace}.svc.{cluster_domain}"


def kernel_hostname(pod: Pod, cluster_domain: str) -> str:
    """The hostname in the pod's UTS namespace: with setHostnameAsFQDN, the FQDN.

    Raises:
        HostnameError: the FQDN is longer than the kernel accepts, or a name is not a DNS name.
    """
    hostname = pod_hostname(pod)
    domain = pod_domain(pod, cluster_domain)
    if not (domain and pod.spec.get("setHostnameAsFQDN")):
        return hostname
    fqdn = f"{hostname}.{domain}"
    if len(fqdn) > MAX_FQDN:
        raise HostnameError(
            f"failed to construct FQDN from pod hostname and cluster domain, FQDN {fqdn} is too "
            f"long ({MAX_FQDN} characters is the max, {len(fqdn)} characters requested)"
        )
    return fqdn


def _cut(pod: Pod, name: str) -> str:
    cut = name[:MAX_HOSTNAME].rstrip("-.")
    if not cut:
        raise HostnameError(f'hostname for pod "{pod.name}" was invalid: "{name}"')
    return cut


# -- changed copies of a spec or status ------------------------------------------------------


def replaced_containers(
    pod: Pod, replace: Callable[[api.Container, bool], api.Container]
) -> dict[str, Any]:
    """The container lists of a pod's spec (containers, initContainers) that were changed.

    ``replace`` gets each container and whether it is an init container; it returns the same object
    for one that stays.
    """
    changed: dict[str, Any] = {}
    for key in ("containers", "initContainers"):
        listed: list[api.Container] = pod.spec.get(key) or []  # type: ignore[assignment]
        made = [replace(container, key == "initContainers") for container in listed]
        if any(map(operator.is_not, made, listed)):
            changed[key] = made
    return changed


DISRUPTION_TARGET = "DisruptionTarget"
"""The condition of a pod that ends because of the node, not on its own (KEP-3329).

The agent sets it for preemption and shutdown, and other components set it, too."""


def with_disruption(
    status: api.PodStatus, message: str, now: float, generation: int = 0
) -> list[api.PodCondition]:
    """A status's conditions with DisruptionTarget. ``now``: Unix seconds; generation 0: unknown."""
    condition: api.PodCondition = {
        "type": DISRUPTION_TARGET,
        "status": "True",
        "reason": "TerminationByKubelet",
        "message": message,
        "lastTransitionTime": format_time(now),
    }
    if generation:
        condition["observedGeneration"] = generation
    kept = [c for c in status.get("conditions") or () if c.get("type") != DISRUPTION_TARGET]
    return [*kept, condition]


# -- mounts ----------------------------------------------------------------------------------


class Mount(Struct, frozen=True):
    """A host path that the agent mounts into a container."""

    container_path: str
    host_path: str
    readonly: bool = False
    propagation: str = "PRIVATE"
    """PRIVATE, HOST_TO_CONTAINER or BIDIRECTIONAL."""
    selinux_relabel: bool = False
    recursive_read_only: bool = False
    options: tuple[str, ...] = ()
    """The subset of noexec, nodev and nosuid that the runtime adds to the bind mount."""
    volume: str = ""
    """Name of the pod's volume; empty for the agent's own files."""
    spec_name: str = ""
    """Name of the PersistentVolume behind it; empty: there is none."""
    index: int = 0
    """Which of the container's volumeMounts it is."""
    image: str = ""
    """The image whose files are mounted, as named in the spec; ``host_path`` is then empty."""
    image_pull_policy: str = ""
    image_ref: str = ""
    """The same image by the runtime's name, once it is on the node."""
    image_sub_path: str = ""
    device: str = ""
    """Permissions (``mrw``, ``r``): ``host_path`` is a block device and appears as one in the
    container; empty: it is mounted."""
    group: int | None = None
    """A supplemental group that the container's processes get for access to it."""


def volume_groups(pod: Pod, mounts: Iterable[Mount]) -> list[int]:
    """The supplemental groups that mounts need besides those in the pod's securityContext.

    Source: docs/reference/behaviour.md, j2.
    """
    listed = (pod.spec.get("securityContext") or {}).get("supplementalGroups") or ()
    needed = {mount.group: None for mount in mounts if mount.group is not None}
    return [group for group in needed if group not in listed]


# -- devices, CPUs and memory that the node has granted --------------------------------------


class DeviceNode(Struct, frozen=True):
    """A device of the node that a container gets. Permissions: a subset of ``rwm``."""

    container_path: str
    host_path: str
    permissions: str


class Placement(Struct, frozen=True):
    """Where on the machine a container runs. Sets are lists of ids (``0-1,4``); empty: anywhere."""

    cpuset_cpus: str = ""
    cpuset_mems: str = ""
    no_cfs_quota: bool = False
    """Its CPUs are exclusive: it is not throttled when it reaches its CPU limit."""


NOWHERE = Placement()
"""Nothing in particular."""


class HeldResource(Struct, frozen=True):
    """Part of the machine that a container has, for people.

    Attributes:
        resource: as the container requests it: ``cpu``, ``memory``, ``vendor.example/gpu``.
        what: which CPUs or devices, or how many bytes.
        nodes: ids of the NUMA nodes they belong to.
    """

    container: str
    resource: str
    what: str
    nodes: tuple[int, ...] = ()


class DeviceCounts(Struct, frozen=True):
    """Plugin devices of a node, by resource: all of them, and those that can be allocated."""

    capacity: Mapping[str, int] = field(default_factory=dict)
    allocatable: Mapping[str, int] = field(default_factory=dict)


NO_DEVICES = DeviceCounts()


UNLIMITED = -1
"""A limit that is explicitly none, as in the CRI."""


class PodLimitsError(Exception):
    """A pod's limits could not be read or written; the message states which and why."""


class PodLimits(Struct, frozen=True):
    """Limits as set in the pod's cgroup. None: not set, or to be left unchanged."""

    shares: int | None = None
    """In the units of cgroup v1, also on v2."""
    quota_us: int | None = None
    """Microseconds of cpu in each period; UNLIMITED: no limit."""
    period_us: int | None = None
    memory: int | None = None
    """Bytes; UNLIMITED: no limit."""


# -- values that components exchange about pods ----------------------------------------------


class PullSecret(HidesFields, Struct, frozen=True):
    """A decoded entry of imagePullSecrets. Never printed: it holds credentials."""

    namespace: str
    name: str
    uid: str
    docker_config: Hidden[Mapping[str, object]]
    """The "auths" document: registry -> {auth | username, password | identitytoken}."""


def fnv1a_32(data: bytes) -> int:
    """The 32-bit FNV-1a hash (http://www.isthe.com/chongo/tech/comp/fnv); never for security."""
    value = 0x811C9DC5
    for byte in data:
        value = ((value ^ byte) * 0x01000193) & 0xFFFFFFFF
    return value


def fnv1a_64(data: bytes) -> int:
    """The 64-bit FNV-1a hash; never for security."""
    value = 0xCBF29CE484222325
    for byte in data:
        value = ((value ^ byte) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return value


class Excluded(Struct, frozen=True):
    """A limit of local storage that a critical pod exceeds without being evicted; in bytes.

    Attributes:
        of: what it limits, such as ``container main``.
        since: when it was measured first, in event-loop seconds.
    """

    of: str
    used: int
    limit: int
    since: float


class NodePods(Struct, frozen=True):
    """The uids of a node's pods, which housekeeping passes to what cleans up after pods."""

    desired: frozenset[str]
    """Those in the configuration, even while their admission is undecided."""
    possibly_running: frozenset[str]
    """Those whose containers may run: not yet stopped by their worker, or in the runtime."""

    @property
    def existing(self) -> frozenset[str]:
        """The pods whose files and resources must stay."""
        return self.desired | self.possibly_running


# -- node selectors, of pod affinity and persistent volumes ----------------------------------

_WHOLE = re.compile(r"[+-]?[0-9]{1,19}")


def matches(selector: Mapping[str, Any], labels: Mapping[str, str], name: str) -> bool:
    """Whether one of a NodeSelector's terms matches the node with these labels and this name."""
    terms = selector.get("nodeSelectorTerms") or ()
    return any(_matches_term(term, labels, name) for term in terms)


def _matches_term(term: Mapping[str, Any], labels: Mapping[str, str], name: str) -> bool:
    """Whether all requirements of a term match; a term without any matches nothing."""
    expressions = term.get("matchExpressions") or ()
    fields = term.get("matchFields") or ()
    if not expressions and not fields:
        return False
    return all(meets(entry, labels) for entry in expressions) and all(
        entry.get("key") == "metadata.name"
        and entry.get("operator") in ("In", "NotIn")
        and len(entry.get("values") or ()) == 1
        and meets(entry, {"metadata.name": name})
        for entry in fields
    )


def meets(requirement: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    """Whether one requirement matches; a malformed one matches nothing."""
    found = labels.get(requirement.get("key") or "")
    values: Sequence[str] = requirement.get("values") or ()
    match requirement.get("operator"):
        case "In":
            return found in values
        case "NotIn":
            return bool(values) and found not in values
        case "Exists":
            return not values and found is not None
        case "DoesNotExist":
            return not values and found is None
        case "Gt" | "Lt" as operator:
            (only,) = values if len(values) == 1 else (None,)
            number, bound = _whole(found), _whole(only)
            if number is None or bound is None:
                return False
            return number > bound if operator == "Gt" else number < bound
        case _:
            return False


def _whole(text: str | None) -> int | None:
    return int(text) if text is not None and _WHOLE.fullmatch(text) else None
