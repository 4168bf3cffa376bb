"""Limits of this package, defaults of fields."""

from __future__ import annotations

import pytest

from tests.stated import stated

STATED = {
    "cgroups/driver_check MAX_SEARCHES": 20,
    "cgroups/limits_read PAGE": 4096,
    "cgroups/limits_read _V1_UNLIMITED": 1 << 62,
    "cgroups/values NO_LIMIT": -1,
    "cgroups/values HUGEPAGES_UNBOUNDED": 1 << 62,
    "cgroups/values _MAX_WEIGHT": 10_000,
    "cgroups/values _SPAN_SHARES": 262142,
    "cgroups/values _SPAN_WEIGHT": 9999,
    "cgroups/values PodCgroupSettings.cpu_cfs_quota": True,
    "cgroups/values PodCgroupSettings.cpu_cfs_period_us": 100_000,
}


@pytest.mark.parametrize(("place", "value"), STATED.items())
def test_stated(place: str, value: float) -> None:
    found = stated(place)
    assert (type(found), found) == (type(value), value)
