"""Service addresses: a clusterIP for each service that has one, node ports where requested.

Pure: what is already taken is an argument. Nothing here routes traffic.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable

from kubeletpy.base.api.types import JSON
from kubeletpy_up.errors import Cause, invalid

NODE_PORTS = range(30000, 32768)


def allocate(service: JSON, others: Iterable[JSON], cidr: str) -> JSON:
    """A copy of the service with its addresses.

    Args:
        service: with defaults.
        others: all other services.
        cidr: where clusterIPs come from; its first address is the API's own.

    Raises:
        ApiError: 422, the address is taken or outside ``cidr``, or none is left.
    """
    spec: JSON = dict(service.get("spec") or {})
    kind = spec.get("type") or "ClusterIP"
    if kind == "ExternalName":
        return service
    taken_addresses: set[str] = set()
    taken_ports: set[int] = set()
    for other in others:
        other_spec = other.get("spec") or {}
        taken_addresses.add(other_spec.get("clusterIP", ""))
        taken_ports.update(port.get("nodePort", 0) for port in other_spec.get("ports") or ())
    address = spec.get("clusterIP") or next(iter(spec.get("clusterIPs") or ()), "")
    if address != "None":
        address = _address(service, address, taken_addresses, cidr)
    spec["clusterIP"] = address
    spec["clusterIPs"] = [address]
    if kind in ("NodePort", "LoadBalancer"):
        spec["ports"] = _node_ports(service, spec.get("ports") or [], taken_ports)
    return {**service, "spec": spec}


def _refuse(service: JSON, field: str, message: str) -> Exception:
    cause = Cause("FieldValueInvalid", field, message)
    return invalid("Service", service["metadata"]["name"], [cause])


def _address(service: JSON, desired: str, taken: set[str], cidr: str) -> str:
    network = ipaddress.ip_network(cidr)
    if not desired:
        free = (str(host) for host in network.hosts())
        next(free)
        found = next((host for host in free if host not in taken), "")
        if not found:
            raise _refuse(service, "spec.clusterIPs", "Invalid value: []: range is full")
        return found
    try:
        inside = ipaddress.ip_address(desired) in network
    except ValueError:
        inside = False
    why = "" if inside else f"the provided IP is not in the valid range {cidr}"
    why = why or ("provided IP is already allocated" if desired in taken else "")
    if why:
        message = f'Invalid value: ["{desired}"]: failed to allocate IP {desired}: {why}'
        raise _refuse(service, "spec.clusterIPs", message)
    return desired


def _node_ports(service: JSON, ports: list[JSON], taken: set[int]) -> list[JSON]:
    used = taken | {port.get("nodePort", 0) for port in ports}
    found: list[JSON] = []
    for index, port in enumerate(ports):
        number = port.get("nodePort") or 0
        field = f"spec.ports[{index}].nodePort"
        if number and number not in NODE_PORTS:
            why = f"Invalid value: {number}: provided port is not in the valid range. "
            raise _refuse(service, field, why + "The range of valid ports is 30000-32767")
        if number in taken and number:
            raise _refuse(
                service, field, f"Invalid value: {number}: provided port is already allocated"
            )
        if not number:
            number = next((n for n in NODE_PORTS if n not in used), 0)
            if not number:
                raise _refuse(service, field, "Invalid value: 0: range is full")
            used.add(number)
        found.append({**port, "nodePort": number})
    return found
