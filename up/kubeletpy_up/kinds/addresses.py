"""Warnings about addresses that are valid, but not in canonical form. Pure."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator

from kubeletpy.base.api.types import JSON
from kubeletpy_up.schema import formats

_DEPRECATED = "spec.externalIPs is deprecated and may no longer be implemented in some clusters"


def warnings(plural: str, new: JSON, old: JSON | None = None) -> list[str]:
    """The warnings to the client about newly added addresses."""
    known = set(_addresses(plural, old)) if old else set()
    found = [_warning(*each) for each in _addresses(plural, new) if each not in known]
    ranges = set(_ranges(plural, old)) if old else set()
    found += [_range_warning(*each) for each in _ranges(plural, new) if each not in ranges]
    if plural == "services" and (new.get("spec") or {}).get("externalIPs"):
        found.append(_DEPRECATED)
    return [warning for warning in found if warning]


def _addresses(plural: str, obj: JSON) -> Iterator[tuple[str, str]]:
    """Each address with the path of its field."""
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    if plural != "pods":
        return
    for index, alias in enumerate(spec.get("hostAliases") or ()):
        yield f"spec.hostAliases[{index}].ip", alias.get("ip") or ""
    for index, server in enumerate((spec.get("dnsConfig") or {}).get("nameservers") or ()):
        yield f"spec.dnsConfig.nameservers[{index}]", server
    for key in ("podIPs", "hostIPs"):
        for index, entry in enumerate(status.get(key) or ()):
            yield f"status.{key}[{index}].ip", entry.get("ip") or ""


def _ranges(plural: str, obj: JSON) -> Iterator[tuple[str, str]]:
    """Each range with the path of its field."""
    key = {"services": "loadBalancerSourceRanges", "nodes": "podCIDRs"}.get(plural)
    for index, value in enumerate((obj.get("spec") or {}).get(key or "") or ()):
        yield f"spec.{key}[{index}]", value.strip()


def _range_warning(path: str, value: str) -> str:
    if ":" not in value or formats.cidr(value):
        return ""
    return _canonical(f"{path}: IPv6 CIDR value", value, str(ipaddress.ip_network(value)))


def _warning(path: str, address: str) -> str:
    if ":" not in address or formats.ip_address(address):
        return ""
    return _canonical(f"{path}: IPv6 address", address, str(ipaddress.ip_address(address)))


def _canonical(what: str, value: str, canonical: str) -> str:
    if canonical == value:
        return ""
    return f'{what} "{value}" should be in RFC 5952 canonical format ("{canonical}")'
