"""Rules for the value of a single field beyond its type, and for the machine's facts. Pure.

A rule takes the decoded value and returns what is allowed, or an empty string if the value is fine.
Source: docs/reference/config.csv (column "allowed").
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Mapping
from typing import Any

from kubeletpy.base.api import quantity
from kubeletpy.base.api.names import MAX_NAME, is_name, namespace_of, normalize
from kubeletpy.base.api.times import format_duration
from kubeletpy.config.problems import Problem
from kubeletpy.config.settings import KubeletSettings, MemoryReservation, Taint

Rule = Callable[[Any], str]

_LABEL_NAME = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")
_DNS_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_IMAGE_PATTERN = re.compile(r"[a-z0-9][A-Za-z0-9.\-_:/]*")
_CPUSET_PART = re.compile(r"(\d{1,5})(?:-(\d{1,5}))?")


def one_of(*names: str) -> Rule:
    text = "must be one of " + ", ".join(name or '""' for name in names)
    return lambda value: "" if value in names else text


def between(low: float, high: float) -> Rule:
    return lambda value: "" if low <= value <= high else f"must be from {low} to {high}"


def at_least(low: float) -> Rule:
    return lambda value: "" if value >= low else f"must be at least {low}"


def above(low: float) -> Rule:
    return lambda value: "" if value > low else f"must be more than {low}"


def seconds_between(low: float, high: float) -> Rule:
    text = f"must be from {format_duration(low)} to {format_duration(high)}"
    return lambda value: "" if low <= value <= high else text


def seconds_at_least(low: float) -> Rule:
    text = f"must be at least {format_duration(low)}"
    return lambda value: "" if value >= low else text


def not_empty(value: str) -> str:
    return "" if value else "must not be empty"


def must_be_false(value: bool) -> str:
    return "must be false: running once is not supported" if value else ""


def ip_address(value: str) -> str:
    try:
        ipaddress.ip_address(value)
    except ValueError:
        return "must be an IP address"
    return ""


def host_address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """An address that other machines can use; ``::ffff:10.0.0.1`` is ``10.0.0.1``.

    Raises:
        ValueError: it is no address, or has a zone, which names an interface of one machine.
    """
    found = ipaddress.ip_address(text)
    if isinstance(found, ipaddress.IPv4Address):
        return found
    if found.scope_id is not None:
        raise ValueError(f"{text!r} has a zone")
    return found.ipv4_mapped or found


def cidr(value: str) -> str:
    """Empty, or one or two (dual-stack) comma-separated networks."""
    try:
        for part in value.split(",") if value else ():
            ipaddress.ip_network(part.strip(), strict=False)
    except ValueError:
        return "must be a network such as 10.0.0.0/24"
    return ""


def log_directory(value: str) -> str:
    clean = value.startswith("/") and value.isascii()
    parts = value.split("/")[1:]
    if clean and (value == "/" or not any(part in ("", ".", "..") for part in parts)):
        return ""
    return "must be an absolute path without .. or double slashes, in ASCII"


def each_one_of(*names: str) -> Rule:
    text = "must hold only " + ", ".join(names)
    return lambda values: "" if all(value in names for value in values) else text


def zero_or_at_least_second(value: float) -> str:
    return "" if value == 0 or value >= 1 else "must be 0s or at least 1s"


def enforcement(values: tuple[str, ...]) -> str:
    """``enforceNodeAllocatable``: known names, no duplicates, ``none`` alone, one form of each."""
    reserved = ("system-reserved", "kube-reserved")
    names = ("none", "pods", *reserved, *(f"{name}-compressible" for name in reserved))
    if wrong := each_one_of(*names)(values):
        return wrong
    if len(set(values)) != len(values):
        return "must not name anything twice"
    if "none" in values and len(values) > 1:
        return "none must stand alone"
    for name in reserved:
        if name in values and f"{name}-compressible" in values:
            return f"{name} and {name}-compressible exclude each other"
    return ""


def sysctls(values: tuple[str, ...]) -> str:
    """``allowedUnsafeSysctls``: names, or prefixes ending in ``*``, of namespaced sysctls only."""
    for value in values:
        name = normalize(value)
        prefix = name.endswith("*")
        stem = name.rstrip("*").rstrip(".") if prefix else name
        if not is_name(stem) or name.count("*") > prefix:
            return f"{value!r} is not a sysctl name or prefix ending in *"
        if namespace_of(name.rstrip("*"), pattern=True) is None:
            return f"{value!r} is not a namespaced sysctl (kernel.shm*, kernel.msg*, net.*, ...)"
    return ""


def default_sysctls(values: Mapping[str, str]) -> str:
    """``defaultPodSysctls``: names of namespaced sysctls, each once in whichever form."""
    seen: set[str] = set()
    for key in values:
        name = normalize(key)
        if not is_name(key):
            return f"{key[:MAX_NAME]!r} is not a sysctl name"
        if namespace_of(name) is None:
            return f"{key!r} is not a namespaced sysctl (kernel.shm*, kernel.msg*, net.*, ...)"
        if name in seen:
            return f"{name!r} is there twice, with dots and with slashes"
        seen.add(name)
    return ""


def taints(values: tuple[Taint, ...]) -> str:
    """``registerWithTaints``: qualified key, label value, known effect, no (key, effect) twice."""
    for taint in values:
        if not qualified_name(taint.key):
            return f"{taint.key!r} is not a valid taint key"
        if taint.value and not label_value(taint.value):
            return f"{taint.value!r} is not a valid taint value"
        if taint.effect not in ("NoSchedule", "PreferNoSchedule", "NoExecute"):
            return "effects are NoSchedule, PreferNoSchedule and NoExecute"
    if len({(taint.key, taint.effect) for taint in values}) != len(values):
        return "must not hold one key and effect twice"
    return ""


def dns_subdomain(text: str) -> bool:
    """Whether a text can be an API object's name."""
    return len(text) <= 253 and _DNS_SUBDOMAIN.fullmatch(text) is not None


def qualified_name(text: str) -> bool:
    """Whether a text can be a label or taint key: ``[prefix/]name``."""
    prefix, slash, name = text.rpartition("/")
    if slash and not dns_subdomain(prefix):
        return False
    return label_value(name)


def label_value(text: str) -> bool:
    """Whether a text can be a label's value (not empty here)."""
    return len(text) <= 63 and _LABEL_NAME.fullmatch(text) is not None


def image_patterns(values: tuple[str, ...]) -> str:
    """``preloadedImagesVerificationAllowlist``: images without tag or digest, or ``prefix/*``."""
    for value in values:
        stem = value.removesuffix("/*")
        tagged = ":" in stem.rpartition("/")[2]
        if not _IMAGE_PATTERN.fullmatch(stem) or tagged or "//" in stem or stem.endswith("/"):
            return f"{value!r} is not an image without tag and digest, or such with a trailing /*"
    return ""


def memory_reservations(values: tuple[MemoryReservation, ...]) -> str:
    """``reservedMemory``: memory or hugepages, above zero, each once per NUMA node."""
    seen = set()
    for reservation in values:
        for name, amount in reservation.limits.items():
            if name != "memory" and not name.startswith("hugepages-"):
                return f"{name!r} is not memory or hugepages-SIZE"
            if quantity.parse(amount) == 0:
                return f"{name} of NUMA node {reservation.numa_node} must not be zero"
            if (reservation.numa_node, name) in seen:
                return f"{name} of NUMA node {reservation.numa_node} is given twice"
            seen.add((reservation.numa_node, name))
    return ""


def cpuset(value: str) -> str:
    return "" if parse_cpuset(value) is not None else "must be a list of CPUs such as 0-1,4"


def parse_cpuset(text: str) -> frozenset[int] | None:
    """The CPUs in a list such as ``0-1,4``; None when the text is not such a list."""
    cpus: set[int] = set()
    for part in text.split(",") if text else ():
        match = _CPUSET_PART.fullmatch(part.strip())
        if match is None:
            return None
        first = int(match[1])
        last = int(match[2] or first)
        if last < first:
            return None
        cpus.update(range(first, last + 1))
    return frozenset(cpus)


def tracing_endpoint(value: str) -> str:
    scheme, separator, _rest = value.partition("://")
    if not separator or scheme in ("dns", "unix", "unix-abstract"):
        return ""
    return "scheme must be dns, unix or unix-abstract"


def option_names(*names: str) -> Callable[[Mapping[str, str]], str]:
    """A map whose keys are known options."""
    text = "known options: " + ", ".join(names)
    return lambda value: "" if all(name in names for name in value) else text


# Settings and the machine, by facts that other code has read.


def check_host(
    settings: KubeletSettings,
    *,
    cgroup_version: int,
    swap_on: bool = False,
    online_cpus: frozenset[int] | None = None,
) -> list[Problem]:
    """The reasons why these settings can't work on this machine; empty: none.

    Args:
        settings: the agent's.
        cgroup_version: 1 (also for hybrid set-ups) or 2.
        swap_on: whether any swap is in use.
        online_cpus: the machine's CPUs; None when not known.

    Source: docs/reference/config.csv: failCgroupV1, singleProcessOOMKill, memorySwap.swapBehavior,
    failSwapOn, reservedSystemCPUs.
    """
    problems = []
    if cgroup_version == 1:
        if settings.fail_cgroup_v1:
            allowed = "this machine uses cgroup v1: boot it with cgroup v2, or set it to false"
            problems.append(Problem("failCgroupV1", "true", allowed))
        if settings.single_process_oom_kill is False:
            allowed = "must not be false on cgroup v1"
            problems.append(Problem("singleProcessOOMKill", "false", allowed))
        if settings.memory_swap.swap_behavior == "LimitedSwap":
            problems.append(Problem("memorySwap.swapBehavior", "LimitedSwap", "needs cgroup v2"))
    if swap_on and settings.fail_swap_on:
        allowed = "this machine has swap on: turn it off (swapoff -a), or set it to false"
        problems.append(Problem("failSwapOn", "true", allowed))
    if settings.reserved_system_cpus and online_cpus is not None:
        missing = (parse_cpuset(settings.reserved_system_cpus) or frozenset()) - online_cpus
        if missing:
            names = ",".join(str(cpu) for cpu in sorted(missing))
            value, allowed = settings.reserved_system_cpus, f"CPUs not online here: {names}"
            problems.append(Problem("reservedSystemCPUs", value, allowed))
    return problems
