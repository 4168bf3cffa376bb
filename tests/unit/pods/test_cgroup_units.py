"""Amounts in the units of cgroups."""

from __future__ import annotations

from decimal import Decimal

import pytest

from kubeletpy.pods.resources import (
    cpu_quota,
    cpu_shares,
    default_weight_to_shares,
    hugepage_limits,
    shares_of_container,
    shares_to_default_weight,
    shares_to_weight,
)


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
    supplied = {f"hugepages-{size}": Decimal(5), "memory": Decimal(1)}
    assert hugepage_limits(supplied) == {name: 5}


@pytest.mark.parametrize(
    ("shares", "weight"),
    [(0, 1), (2, 1), (3, 2), (102, 17), (512, 59), (1024, 100), (2048, 174), (262_144, 10_000)],
)
def test_weights_of_runc_1_3_2(shares: int, weight: int) -> None:
    assert shares_to_default_weight(shares) == weight


@pytest.mark.parametrize("millicores", [1, 10, 100, 250, 1000, 1500, 4000, 64_000, 300_000])
def test_shares_of_a_weight_by_either_conversion(millicores: int) -> None:
    shares = cpu_shares(millicores)
    for convert in (shares_to_weight, shares_to_default_weight):
        assert shares_of_container(convert(shares), [shares]) == shares
    known = default_weight_to_shares(shares_to_default_weight(shares))
    assert abs(known - shares) <= max(5, shares * 0.05)
