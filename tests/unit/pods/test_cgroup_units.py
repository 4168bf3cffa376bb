"""Amounts in the units of cgroups."""

from __future__ import annotations

from decimal import Decimal

import pytest

from kubeletpy.pods.cgroup_units import cpu_quota, cpu_shares, hugepage_limits


@pytest.mark.parametrize(
    ("millicores", "shares"),
    [
        (0, 2),
        (1, 2),
        (2, 2),
        (3, 3),
        (100, 102),
        (1000, 1024),
        (256_000, 262_144),
        (10**9, 262_144),
    ],
)
def test_shares(millicores: int, shares: int) -> None:
    assert cpu_shares(millicores) == shares


@pytest.mark.parametrize(
    ("millicores", "period", "quota"),
    [
        (-1, 100_000, 0),
        (0, 100_000, 0),
        (1, 100_000, 1000),
        (10, 100_000, 1000),
        (11, 100_000, 1100),
        (500, 100_000, 50_000),
        (500, 10_000, 5000),
        (2**62, 10**6, 2**63 - 1),
    ],
)
def test_quota(millicores: int, period: int, quota: int) -> None:
    assert cpu_quota(millicores, period) == quota


@pytest.mark.parametrize(
    ("size", "name"),
    [
        ("1Gi", "1GB"),
        ("2Mi", "2MB"),
        ("64Ki", "64KB"),
        ("1536Mi", "1536MB"),
        ("1023Mi", "1023MB"),
        ("1Ki", "1KB"),
        ("1023", "1023B"),
        ("0", "0B"),
    ],
)
def test_pages(size: str, name: str) -> None:
    given = {f"hugepages-{size}": Decimal(5), "memory": Decimal(1)}
    assert hugepage_limits(given) == {name: 5}
