"""Limits of this package, defaults of fields."""

from __future__ import annotations

import pytest

from tests.stated import stated

STATED = {
    "stats/cadvisor _NANO": 1e9,
    "stats/cadvisor _MICRO": 1e6,
    "stats/cgroup_text _TICK_NS": 10_000_000,
    "stats/cgroup_text _MICRO": 1000,
    "stats/disk_plan MAX_VOLUMES": 1000,
    "stats/disk_plan UNCOUNTABLE": 1 << 64,
    "stats/proc_text MAX_INTERFACES": 100,
    "stats/rates WINDOW_MIN_NS": 500_000_000,
    "stats/rates WINDOW_NS": 10_000_000_000,
    "stats/rates FORGET_NS": 600_000_000_000,
    "stats/resource _NANO": 1e9,
    "stats/usage UNLIMITED": 1 << 62,
    "stats/disk_plan PodStorage.total": 0,
    "stats/from_cri Layer.uncounted": False,
    "stats/usage DeviceIo.read_bytes": 0,
    "stats/usage DeviceIo.write_bytes": 0,
    "stats/usage DeviceIo.reads": 0,
    "stats/usage DeviceIo.writes": 0,
    "stats/usage GroupStats.at": 0,
    "stats/usage Interface.rx_bytes": 0,
    "stats/usage Interface.rx_errors": 0,
    "stats/usage Interface.tx_bytes": 0,
    "stats/usage Interface.tx_errors": 0,
    "stats/usage Interface.rx_packets": 0,
    "stats/usage Interface.rx_dropped": 0,
    "stats/usage Interface.tx_packets": 0,
    "stats/usage Interface.tx_dropped": 0,
    "stats/usage TreeUse.at_least": False,
    "stats/usage TreeUse.beyond": False,
    "stats/usage TreeUse.uncounted": False,
    "stats/usage CgroupUsage.created_at": 0,
    "stats/usage CgroupUsage.started_at": 0,
    "stats/usage PodDisk.pending": False,
}


@pytest.mark.parametrize(("place", "value"), STATED.items())
def test_stated(place: str, value: float) -> None:
    found = stated(place)
    assert (type(found), found) == (type(value), value)
