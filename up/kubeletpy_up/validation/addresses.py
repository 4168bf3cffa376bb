"""Addresses and ranges of services and nodes. Pure.

A value that the object had before passes, whatever it is, as on a real server. Rules:
docs/reference/api-server.md, ab.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from kubeletpy_up.schema import formats

if TYPE_CHECKING:
    from kubeletpy.base.api.types import JSON
    from kubeletpy_up.validation.report import Report

_SOURCE_RANGES = "service.beta.kubernetes.io/load-balancer-source-ranges"
_BALANCED_ONLY = "may only be used when `type` is 'LoadBalancer'"
_ONE_PER_FAMILY = "may specify no more than one IP for each IP family"


def service(report: Report, obj: JSON, old: JSON | None = None) -> None:
    """A service's clusterIPs, externalIPs and loadBalancerSourceRanges."""
    spec, before = obj.get("spec") or {}, (old or {}).get("spec") or {}
    if spec.get("type") != "ExternalName":
        _cluster(report, spec, before)
    known = before.get("externalIPs") or ()
    for index, address in enumerate(spec.get("externalIPs") or ()):
        problems = [] if address in known else formats.ip_address(address)
        problems = problems or (formats.special_address(address) if address not in known else [])
        report.all_invalid(f"spec.externalIPs[{index}]", address, problems)
    _source_ranges(report, obj, old or {})


def _cluster(report: Report, spec: JSON, before: JSON) -> None:
    where = "spec.clusterIPs"
    first = spec.get("clusterIP") or ""
    addresses = spec.get("clusterIPs") or ([first] if first else [])
    if addresses[:1] != [first] and addresses:
        why = "first value must match `clusterIP`" if first else ""
        report.invalid(where, addresses, why or "must be empty when `clusterIP` is not specified")
    known = before.get("clusterIPs") or ()
    sound = True
    for index, address in enumerate(addresses):
        if index == 0 and address == "None":
            if len(addresses) > 1:
                report.invalid(where, addresses, "'None' must be the first and only value")
                sound = False
            continue
        sound &= _check(report, f"{where}[{index}]", address, known, formats.ip_address)
    if len(addresses) > 2:
        report.invalid(where, addresses, "may only hold up to 2 values")
    if sound and len(addresses) > 1 and len({":" in each for each in addresses}) == 1:
        report.invalid(where, addresses, _ONE_PER_FAMILY)


def _source_ranges(report: Report, obj: JSON, old: JSON) -> None:
    spec = obj.get("spec") or {}
    annotations, before = (
        (each.get("metadata") or {}).get("annotations") or {} for each in (obj, old)
    )
    if spec.get("loadBalancerSourceRanges"):
        # the field's name in messages has a capital letter on a real server
        where = "spec.LoadBalancerSourceRanges"
        known = [
            each.strip() for each in (old.get("spec") or {}).get("loadBalancerSourceRanges") or ()
        ]
        ranges = [(f"{where}[{i}]", r) for i, r in enumerate(spec["loadBalancerSourceRanges"])]
    elif _SOURCE_RANGES in annotations:
        where, known = f"metadata.annotations[{_SOURCE_RANGES}]", []
        text = annotations[_SOURCE_RANGES].strip()
        changed = text and annotations[_SOURCE_RANGES] != before.get(_SOURCE_RANGES)
        ranges = [(where, each) for each in text.split(",")] if changed else []
    else:
        return
    if spec.get("type") != "LoadBalancer":
        report.forbidden(where, _BALANCED_ONLY)
    for path, value in ranges:
        _check(report, path, value.strip(), known, formats.cidr)


def node(report: Report, obj: JSON, old: JSON | None = None) -> None:
    """A node's podCIDRs and addresses; of the latter only that none is there twice."""
    where = "spec.podCIDRs"
    ranges = (obj.get("spec") or {}).get("podCIDRs") or []
    before = ((old or {}).get("spec") or {}).get("podCIDRs") or []
    if before and ranges != before:
        report.forbidden(where, 'node updates may not change podCIDR except from "" to valid')
    for index, value in enumerate(ranges):
        _check(report, f"{where}[{index}]", value, (), formats.cidr)
    families = {":" in each for each in ranges}
    if len(ranges) > 1 and (len(families) == 1 or len(ranges) > 2):
        report.invalid(where, ranges, "may specify no more than one CIDR for each IP family")
    if old is None:
        return
    seen: list[tuple[str, str]] = []
    for index, entry in enumerate((obj.get("status") or {}).get("addresses") or ()):
        pair = (entry.get("type") or "", entry.get("address") or "")
        if pair in seen:
            value = {"Type": pair[0], "Address": pair[1]}
            report.duplicate(f"status.addresses[{index}]", value)
        seen.append(pair)


def _check(
    report: Report, path: str, value: str, known: Collection[str], check: Callable[[str], list[str]]
) -> bool:
    problems = [] if value in known else check(value)
    report.all_invalid(path, value, problems)
    return not problems
