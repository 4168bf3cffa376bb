"""Environment variables that point a container to the services of its namespace.

Source: docs/reference/behaviour.md, h4.
"""

from __future__ import annotations

from collections.abc import Iterable

from kubeletpy.base.api import types as api


def service_variables(
    services: Iterable[api.Service], namespace: str, links: bool
) -> dict[str, str]:
    """Variables for default/kubernetes, and with ``links`` for the namespace's other services.

    Services without a cluster IP have none.
    """
    variables: dict[str, str] = {}
    for service in _visible(services, namespace, links):
        _add_service(variables, service)
    return variables


def _visible(services: Iterable[api.Service], namespace: str, links: bool) -> list[api.Service]:
    """The visible services, one per name; default/kubernetes wins over a service of the
    namespace."""
    found: dict[str, api.Service] = {}
    for service in services:
        metadata = service.get("metadata") or {}
        spec = service.get("spec") or {}
        name = metadata.get("name") or ""
        if spec.get("clusterIP", "") in ("", "None") or not spec.get("ports"):
            continue
        if metadata.get("namespace") == "default" and name == "kubernetes":
            found[name] = service
        elif links and metadata.get("namespace") == namespace:
            found.setdefault(name, service)
    return list(found.values())


def _add_service(variables: dict[str, str], service: api.Service) -> None:
    prefix = _variable(service["metadata"]["name"])
    address = service["spec"]["clusterIP"]
    ports = service["spec"]["ports"]
    variables[f"{prefix}_SERVICE_HOST"] = address
    variables[f"{prefix}_SERVICE_PORT"] = str(ports[0].get("port"))
    for index, port in enumerate(ports):
        number = str(port.get("port"))
        protocol = port.get("protocol") or "TCP"
        if port.get("name"):
            variables[f"{prefix}_SERVICE_PORT_{_variable(port['name'])}"] = number
        host = f"[{address}]" if ":" in address else address
        url = f"{protocol.lower()}://{host}:{number}"
        if index == 0:
            variables[f"{prefix}_PORT"] = url
        one = f"{prefix}_PORT_{number}_{protocol.upper()}"
        variables[one] = url
        variables[f"{one}_PROTO"] = protocol.lower()
        variables[f"{one}_PORT"] = number
        variables[f"{one}_ADDR"] = address


def _variable(name: str) -> str:
    return name.replace("-", "_").upper()
