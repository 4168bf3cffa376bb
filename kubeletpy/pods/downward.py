"""The downward API: a pod's own fields and resources, for its environment and volumes.

Source: docs/reference/behaviour.md, h2.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import ROUND_CEILING, Decimal

from kubeletpy.base.api import types as api
from kubeletpy.base.api.quantity import milli_value, parse
from kubeletpy.base.structs import Struct
from kubeletpy.pods.pod import Pod
from kubeletpy.pods.resources import COMPUTE, HUGEPAGES_PREFIX, pod_level_limit

_NODE_DEFAULTED = ("cpu", "memory", "ephemeral-storage")


class DownwardError(ValueError):
    """A reference to a field or resource that cannot be followed; the message names it."""


class NoNodeAddress(DownwardError):
    """A reference to an address of the node, which has none yet."""


class NodeFacts(Struct, frozen=True):
    """Facts about the node that a pod may read."""

    pod_ips: tuple[str, ...] = ()
    """The preferred family first."""
    host_ips: tuple[str, ...] = ()
    allocatable: Mapping[str, str] | None = None
    """Quantities; used in place of limits that a container does not have."""


def field_value(selector: api.ObjectFieldSelector, pod: Pod, facts: NodeFacts) -> str:
    """The value of a fieldRef in an environment.

    Raises:
        DownwardError: the field cannot be referenced.
    """
    path = selector.get("fieldPath") or ""
    if path.endswith("']"):
        holder, bracket, key = path.removesuffix("']").partition("['")
        if bracket and holder == "metadata.labels":
            return pod.labels.get(key, "")
        if bracket and holder == "metadata.annotations":
            return pod.annotations.get(key, "")
        raise DownwardError(f'fieldPath "{path}" does not support subscript')
    match path:
        case "metadata.name":
            return pod.name
        case "metadata.namespace":
            return pod.namespace
        case "metadata.uid":
            return pod.uid
        case "spec.nodeName":
            return pod.spec.get("nodeName") or ""
        case "spec.serviceAccountName":
            return pod.spec.get("serviceAccountName") or ""
        case "status.hostIP" | "status.hostIPs" if not facts.host_ips:
            raise _not_known(path)
        case "status.podIP" | "status.podIPs" if _waits_for_address(pod, facts):
            raise _not_known(path)
        case "status.hostIP":
            return facts.host_ips[0]
        case "status.hostIPs":
            return ",".join(facts.host_ips)
        case "status.podIP":
            return next(iter(facts.pod_ips), "")
        case "status.podIPs":
            return ",".join(facts.pod_ips)
        case _:
            raise DownwardError(f"unsupported fieldPath: {path}")


def _waits_for_address(pod: Pod, facts: NodeFacts) -> bool:
    """Whether the pod is to get the node's address, and there is none yet.

    A static pod does not wait: the API server may be one, and no address comes without it.
    """
    return pod.host_network and not pod.is_static and not facts.pod_ips


def _not_known(path: str) -> NoNodeAddress:
    return NoNodeAddress(
        f"{path} is not known: the Node object has no InternalIP; a cloud controller adds it, or "
        "start the node's agent with --node-ip"
    )


def resource_value(
    selector: api.ResourceFieldSelector, pod: Pod, container: api.Container, facts: NodeFacts
) -> str:
    """The value of a resourceFieldRef, in units of the divisor, rounded up.

    An unset limit falls back to the pod's, then to the node's allocatable.

    Raises:
        DownwardError: there is no such container or resource, or an amount is not a quantity.
    """
    name = selector.get("containerName")
    if name:
        container = _main_container(pod, name)
    wanted = selector.get("resource") or ""
    which, _, resource = wanted.partition(".")
    known = resource in _NODE_DEFAULTED or resource.startswith(HUGEPAGES_PREFIX)
    if which not in ("requests", "limits") or not known:
        raise DownwardError(f"unsupported container resource : {wanted}")
    resources = container.get("resources") or {}
    quantities = resources.get("requests") if which == "requests" else resources.get("limits")
    text = (quantities or {}).get(resource, "0")
    try:
        if which == "limits" and resource in _NODE_DEFAULTED and parse(text) == 0:
            text = _default_limit(pod, resource, facts)
        return _in_units(text, selector.get("divisor"), resource)
    except ValueError as error:
        raise DownwardError(f"resourceFieldRef {wanted}: {error}") from error


def _default_limit(pod: Pod, resource: str, facts: NodeFacts) -> str:
    allocatable = (facts.allocatable or {}).get(resource)
    if allocatable is None:
        return "0"
    of_pod = pod_level_limit(pod, resource) if resource in COMPUTE else None
    return of_pod if of_pod is not None and parse(of_pod) else allocatable


def _in_units(text: str, divisor: str | None, resource: str) -> str:
    if resource == "cpu":
        amount, unit = Decimal(milli_value(text)), Decimal(milli_value(divisor or "1") or 1000)
    else:
        amount, unit = parse(text), parse(divisor or "1") or Decimal(1)
    return str(int((amount / unit).to_integral_value(ROUND_CEILING)))


def _main_container(pod: Pod, name: str) -> api.Container:
    for container in (*pod.containers, *pod.init_containers):
        if container.get("name") == name:
            return container
    raise DownwardError(f"container {name} not found")
